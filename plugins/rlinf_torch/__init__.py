"""Generation and training on plain PyTorch."""

from __future__ import annotations

from rlinf_cli.api import Extension, hookimpl


@hookimpl
def register_trainers() -> list[Extension]:
    return [Extension("torch", target="rlinf_torch.trainer:TorchTrainer",
                      config="rlinf_torch.trainer_config:TorchTrainerConfig",
                      summary="AdamW on PyTorch, data parallel: every rank holds the whole model")]


@hookimpl
def register_engines() -> list[Extension]:
    return [Extension("torch", target="rlinf_torch.engine:TorchEngine",
                      config="rlinf_torch.engine_config:TorchEngineConfig",
                      summary="continuous batching in the worker's own process, on CPU or GPU")]
