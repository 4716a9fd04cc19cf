"""What ordinary steps of a run show of its roles: the profile that a placement is made from."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from statistics import median

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.flow.timeline import Call
from rlinf_cli.flow.worker import methods
from rlinf_cli.runs.breakdown import StepTime
from rlinf_cli.runs.roles import load_worker
from rlinf_cli.runs.step import StepReport
from rlinf_cli.scheduling.profile import BatchPoint, DecodePoint, Profile, RoleProfile
from rlinf_cli.workers.engine_share import Usage
from rlinf_cli.workflows.base import Role

FEWEST_STEPS = 8
"""Decode steps that a number of active responses must have been measured with."""
SETTINGS = ("workflow", "model.name", "algorithm.name", "algorithm.epochs", "algorithm.minibatches", "rollout.group_size",
            "rollout.max_prompt_tokens", "rollout.max_new_tokens", "deterministic")
"""Keys that the numbers of a profile depend on, whatever the plugins; of `engine` and `trainer` besides all, but for these."""
OF_NO_EFFECT = ("lr", "schedule", "warmup_steps", "betas", "weight_decay", "max_grad_norm", "lora_alpha")
VERSIONS = ("rlinf-cli", "torch", "transformers", "ray")


@dataclass
class _RoleSteps:
    points: list[BatchPoint] = field(default_factory=list)
    decoding: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    """(replicas, active) -> [steps, seconds]."""
    slots: int = 0
    prefill: list[float] = field(default_factory=list)
    """Seconds a response, of each step."""
    moves: dict[str, list[float]] = field(default_factory=dict)
    """`onload` or `offload` -> seconds, of each step in which there was one."""


class StepMeasurements:
    """Of a run's steps, one after the other. `ranks`: of each role."""

    def __init__(self, config: RunConfig, roles: Sequence[Role]) -> None:
        self._config, self._roles = config, {role.name: role for role in roles}
        self._measured = {role.name: _RoleSteps() for role in roles}
        self._lengths: list[int] = []
        self._sync: list[float] = []
        self._idle: list[float] = []

    def add(self, report: StepReport, ranks: Mapping[str, int]) -> None:
        """A step that has ended, on so many ranks of each role."""
        assert report.time is not None
        self._lengths += report.lengths
        self._idle.append(between_s(report))
        waits = (call.timing.kinds.get("sync", 0.0) for call in _calls(report.time))
        self._sync.append(max(waits, default=0.0))
        for name, measured in self._measured.items():
            if name in report.usage:
                _add_usage(measured, report.usage[name], ranks[name], report.count)
            elif seconds := computed(name, report.time):
                measured.points.append(batch_point(report, ranks[name], max(seconds.values()), self._chunks(name, report)))
        for (name, kind), took in report.moves.items():
            self._measured[name].moves.setdefault(kind, []).append(took)

    def profile(self, hardware: str, device_memory: float = float("inf")) -> Profile:
        """What has been measured."""
        return Profile(
            self._config.workflow, {name: self._role(name, found) for name, found in self._measured.items()},
            tuple(self._lengths), self._config.rollout.group_size, {}, median(self._sync or [0.0]), median(self._idle or [0.0]),
            hardware, device_memory, versions(), settings(self._config), "measured",
            datetime.now(timezone.utc).isoformat(timespec="seconds"))

    def _chunks(self, name: str, report: StepReport) -> int:
        """In how many pieces the role took the step."""
        chunk = report.metrics.get("actor/chunk", 0.0) if self._roles[name].stateful else 0.0
        return max(1, round(report.count / chunk / self._config.rollout.group_size)) if chunk else 1

    def _role(self, name: str, found: _RoleSteps) -> RoleProfile:
        spec = methods(load_worker(self._roles[name].worker))
        onload, offload = (median(found.moves.get(kind, [0.0])) for kind in ("onload", "offload"))
        return RoleProfile(
            name, tuple(found.points), tuple(decode_points(found.decoding)), found.slots, median(found.prefill or [0.0]),
            onload_s=onload, offload_s=offload, needs_device=any(method.on_device for method in spec.values()))


def computed(role: str, spent: StepTime) -> dict[int, float]:
    """Rank -> seconds that a role's calls computed in a step."""
    seconds: dict[int, float] = defaultdict(float)
    for call in _calls(spent):
        if call.role == role:
            seconds[call.rank] += call.timing.compute
    return seconds


def batch_point(report: StepReport, ranks: int, seconds: float, chunks: int = 1) -> BatchPoint:
    """A step's samples, shared by so many ranks."""
    return BatchPoint(ranks, -(-report.count // ranks), -(-sum(report.lengths) // ranks), chunks, seconds)


def between_s(report: StepReport) -> float:
    """Seconds of a step in which nobody computes, moves or waits for data."""
    return report.metrics["timing/idle_s"] + report.metrics["timing/wait_lock_s"]


def decode_points(entries: Mapping[tuple[int, int], Sequence[float]]) -> Iterator[DecodePoint]:
    """From (replicas, active responses) -> (decode steps, seconds), those that were measured with enough steps."""
    for (replicas, active), (steps, seconds) in sorted(entries.items()):
        if active and steps >= FEWEST_STEPS:
            yield DecodePoint(replicas, active, seconds / steps)


def add_decoding(entries: dict[tuple[int, int], list[float]], usages: Iterable[Usage], replicas: int) -> None:
    """Add what engines that work at once have told."""
    for usage in usages:
        for active, (steps, seconds) in usage.decoding.items():
            entry = entries.setdefault((replicas, active), [0.0, 0.0])
            entry[0] += steps
            entry[1] += seconds


def _add_usage(measured: _RoleSteps, usages: Sequence[Usage], replicas: int, count: int) -> None:
    measured.slots = usages[0].slots
    add_decoding(measured.decoding, usages, replicas)
    per_step = {active: seconds / steps for (_, active), (steps, seconds) in measured.decoding.items() if steps}
    read = sum(seconds - steps * per_step.get(active, 0.0) for usage in usages
               for active, (steps, seconds) in usage.mixed.items())
    if count:
        measured.prefill.append(max(0.0, read) / count)


def _calls(spent: StepTime) -> Iterator[Call]:
    """The ordinary ones."""
    return (placed.call for placed in spent.calls if not placed.call.beside)


def versions() -> dict[str, str]:
    """Of what the numbers depend on; nothing is imported."""
    return {"python": platform.python_version(), **dict(_versions())}


def _versions() -> Iterator[tuple[str, str]]:
    for name in VERSIONS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            yield name, importlib.metadata.version(name)


def settings(config: RunConfig) -> dict[str, str]:
    """The keys that the numbers of a profile depend on."""
    every = _flat(config.to_dict())
    return {key: value for key, value in every.items() if key in SETTINGS or (
        key.startswith(("engine.", "trainer.")) and key.rpartition(".")[2] not in OF_NO_EFFECT)}


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
