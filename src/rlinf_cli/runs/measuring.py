"""What ordinary steps of a run show of its roles: the profile that a placement is made from."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from statistics import fmean, median

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.flow.timeline import Kind
from rlinf_cli.flow.worker import methods
from rlinf_cli.runs.roles import load_worker
from rlinf_cli.runs.step import StepReport
from rlinf_cli.scheduling.profile import BatchPoint, DecodePoint, Profile, RoleProfile
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
    onload: list[float] = field(default_factory=list)
    offload: list[float] = field(default_factory=list)


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
        self._idle.append(report.metrics["timing/idle_s"] + report.metrics["timing/wait_lock_s"])
        self._sync.append(max(self._seconds(report, "sync").values(), default=0.0))
        compute = self._seconds(report, None)
        for name, measured in self._measured.items():
            if report.usage and self._generates(name):
                self._add_usage(measured, report, ranks[name])
            elif name in compute:
                chunk = report.metrics.get("actor/chunk", 0.0) if self._roles[name].stateful else 0.0
                chunks = max(1, round(report.count / chunk / self._config.rollout.group_size)) if chunk else 1
                measured.points.append(BatchPoint(ranks[name], -(-report.count // ranks[name]),
                                                  -(-sum(report.lengths) // ranks[name]), chunks, compute[name]))
        for kind, times in (("onload", "onload"), ("offload", "offload")):
            for name, seconds in self._seconds(report, kind).items():  # type: ignore[arg-type]
                getattr(self._measured[name], times).append(seconds)

    def profile(self, hardware: str, device_memory: float = float("inf")) -> Profile:
        """What has been measured."""
        return Profile(
            self._config.workflow, {name: self._role(name, found) for name, found in self._measured.items()},
            tuple(self._lengths), self._config.rollout.group_size, {}, median(self._sync or [0.0]), median(self._idle or [0.0]),
            hardware, device_memory, versions(), settings(self._config), "measured",
            datetime.now(timezone.utc).isoformat(timespec="seconds"))

    def _generates(self, name: str) -> bool:
        return "rollout" in self._roles and name == "rollout"

    def _add_usage(self, measured: _RoleSteps, report: StepReport, replicas: int) -> None:
        per_step = {}
        for usage in report.usage:
            measured.slots = usage.slots
            for active, (steps, seconds) in usage.decoding.items():
                entry = measured.decoding.setdefault((replicas, active), [0.0, 0.0])
                entry[0] += steps
                entry[1] += seconds
        per_step = {active: seconds / steps for (_, active), (steps, seconds) in measured.decoding.items() if steps}
        read = sum(seconds - steps * per_step.get(active, 0.0) for usage in report.usage
                   for active, (steps, seconds) in usage.mixed.items())
        if report.count:
            measured.prefill.append(max(0.0, read) / report.count)

    def _role(self, name: str, found: _RoleSteps) -> RoleProfile:
        decoding = tuple(DecodePoint(replicas, active, seconds / steps)
                         for (replicas, active), (steps, seconds) in sorted(found.decoding.items())
                         if steps >= FEWEST_STEPS and active)
        spec = methods(load_worker(self._roles[name].worker))
        return RoleProfile(
            name, tuple(found.points), decoding, found.slots, median(found.prefill or [0.0]),
            onload_s=fmean(found.onload or [0.0]), offload_s=fmean(found.offload or [0.0]),
            needs_device=any(method.on_device for method in spec.values()))

    def _seconds(self, report: StepReport, kind: Kind | None) -> dict[str, float]:
        """Of each role, the slowest rank's: computing, or waiting of a kind."""
        assert report.time is not None
        ranks: dict[tuple[str, int], float] = defaultdict(float)
        for placed in report.time.calls:
            call = placed.call
            if call.role in self._measured and not call.beside:
                timing = call.timing
                ranks[call.role, call.rank] += timing.compute if kind is None else timing.kinds.get(kind, 0.0)
        found: dict[str, float] = {}
        for (role, _), seconds in ranks.items():
            found[role] = max(found.get(role, 0.0), seconds)
        return found


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
