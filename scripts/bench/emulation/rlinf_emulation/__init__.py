"""Components that sleep as long as they are told to: what is left of a run's time is the program's own.

For benchmarks only. The processes, channels, locks and weights are real; the durations are declared.
"""

from rlinf_cli.api import Extension, hookimpl


@hookimpl
def register_engines() -> list[Extension]:
    return [Extension("emulated", target="rlinf_emulation.engine:EmulatedEngine",
                      config="rlinf_emulation.lengths:EmulatedEngineConfig",
                      summary="responses of declared lengths, made at one speed whatever runs beside them")]


@hookimpl
def register_trainers() -> list[Extension]:
    return [Extension("emulated", target="rlinf_emulation.trainer:EmulatedTrainer",
                      config="rlinf_emulation.lengths:EmulatedTrainerConfig", summary="a declared time a token")]


@hookimpl
def register_algorithms() -> list[Extension]:
    return [Extension("emulated", target="rlinf_emulation.algorithm:EmulatedAlgorithm",
                      config="rlinf_emulation.lengths:EmulatedAlgorithmConfig",
                      summary="every sample takes part by itself")]


@hookimpl
def register_environments() -> list[Extension]:
    return [Extension("emulated", target="rlinf_emulation.simulator:EmulatedEnvironment",
                      config="rlinf_emulation.lengths:EmulatedEnvironmentConfig",
                      summary="a simulator that takes a declared time a step")]


@hookimpl
def register_policies() -> list[Extension]:
    return [Extension("emulated", target="rlinf_emulation.simulator:EmulatedPolicy",
                      config="rlinf_emulation.lengths:EmulatedPolicyConfig",
                      summary="a policy that takes a declared time for each environment")]
