"""What the numbers of a profile depend on: machine, versions, settings. Nothing is imported for it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path

from rlinf_cli.config.schema import RunConfig

SETTINGS = ("workflow", "model.name", "critic.model", "algorithm.name", "algorithm.epochs", "algorithm.minibatches",
            "rollout.group_size", "rollout.max_prompt_tokens", "rollout.max_new_tokens", "deterministic")
"""Keys that the numbers of a profile depend on, whatever the plugins; of `engine` and `trainer` (in an environment: of `env`,
`model` and `trainer`) besides all, but for these."""
OF_NO_EFFECT = ("lr", "schedule", "warmup_steps", "betas", "weight_decay", "max_grad_norm", "lora_alpha")
VERSIONS = ("rlinf-cli", "torch", "transformers", "ray")


def versions() -> dict[str, str]:
    """Of what the numbers depend on; nothing is imported."""
    return {"python": platform.python_version(), **dict(_versions())}


def _versions() -> Iterator[tuple[str, str]]:
    for name in VERSIONS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            yield name, importlib.metadata.version(name)


def settings(config: RunConfig) -> dict[str, str]:
    """The keys that the numbers of a profile depend on."""
    acts = bool(config.env.name)
    named = {*SETTINGS, "rollout.steps"} if acts else {*SETTINGS}
    without = {*OF_NO_EFFECT, "count"} if acts else {*OF_NO_EFFECT}
    sections = ("env.", "model.", "trainer.") if acts else ("engine.", "trainer.")
    return {key: value for key, value in _flat(config.to_dict()).items()
            if key in named or (key.startswith(sections) and key.rpartition(".")[2] not in without)}


def _flat(tree: Mapping[str, object], before: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in tree.items():
        found |= _flat(value, f"{before}{key}.") if isinstance(value, Mapping) else {f"{before}{key}": str(value)}
    return found


def hardware(kind: str, devices: int) -> str:
    """`2 cpu · Intel Xeon 8488C · 24 GB`."""
    return " · ".join([f"{devices} {kind}", _processor(), f"{_memory_gb():.0f} GB"])


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
