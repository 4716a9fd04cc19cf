"""What ordinary steps of a run show of its roles: the profile that a placement is made from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from statistics import median

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.flow.timeline import Call
from rlinf_cli.flow.worker import methods
from rlinf_cli.runs.breakdown import StepTime, pieces
from rlinf_cli.runs.conditions import settings, versions
from rlinf_cli.runs.roles import load_worker
from rlinf_cli.runs.step import StepReport
from rlinf_cli.scheduling.profile import BatchPoint, DecodePoint, Profile, RoleProfile
from rlinf_cli.workers.engine_share import Usage
from rlinf_cli.workflows.base import Role

FEWEST_STEPS = 8
"""Decode steps of a point of the curve."""
ALIKE = 1.5
"""Numbers of active responses within this ratio may be taken together."""
_WORK = (None, "sync", "onload", "offload")
"""What a call does that is no waiting for others."""


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
        self._sync: dict[int, list[float]] = defaultdict(list)
        self._between: dict[int, list[float]] = defaultdict(list)
        """Most ranks of a role -> seconds of each step: what the program itself needs grows with the number of processes."""

    def add(self, report: StepReport, ranks: Mapping[str, int]) -> None:
        """A step that has ended, on so many ranks of each role."""
        assert report.time is not None
        self._lengths += report.lengths
        waits = (call.timing.kinds.get("sync", 0.0) for call in _calls(report.time))
        self._sync[max(ranks.values())].append(max(waits, default=0.0))
        if report.time.opened >= report.time.began:  # else the step before was still under way
            self._between[max(ranks.values())].append(between_s(report.time, report.usage))
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
            tuple(self._lengths), self._config.rollout.group_size, {}, _at_most(self._sync), _at_most(self._between),
            hardware, device_memory, versions(), settings(self._config), "measured",
            datetime.now(timezone.utc).isoformat(timespec="seconds"))

    def _chunks(self, name: str, report: StepReport) -> int:
        """In how many pieces the role took the step; 0: nobody counted them."""
        if not self._roles[name].stateful or self._roles[name].scores:
            return report.chunks.get(name, 0)
        chunk = report.metrics.get("actor/chunk", 0.0)
        return max(1, round(report.count / chunk / self._config.rollout.group_size)) if chunk else 1

    def _role(self, name: str, found: _RoleSteps) -> RoleProfile:
        spec = methods(load_worker(self._roles[name].worker))
        onload, offload = (median(found.moves.get(kind, [0.0])) for kind in ("onload", "offload"))
        return RoleProfile(
            name, tuple(found.points), tuple(decode_points(found.decoding)), found.slots, median(found.prefill or [0.0]),
            onload_s=onload, offload_s=offload, needs_device=any(method.on_device for method in spec.values()))


def as_a_whole(roles: Collection[str], report: StepReport, ranks: Mapping[str, int]) -> BatchPoint:
    """Of a circle: from the first call of its roles to the end of the last."""
    assert report.time is not None
    timings = [call.timing for call in _calls(report.time) if call.role in roles]
    seconds = max(one.began + one.total for one in timings) - min(one.began for one in timings)
    return batch_point(report, max(ranks[role] for role in roles), seconds)


def _at_most(seconds: Mapping[int, Sequence[float]]) -> float:
    """The median of those with the most ranks."""
    return median(seconds[max(seconds)]) if seconds else 0.0


def computed(role: str, spent: StepTime) -> dict[int, float]:
    """Rank -> seconds that a role's calls computed in a step."""
    seconds: dict[int, float] = defaultdict(float)
    for call in _calls(spent):
        if call.role == role:
            seconds[call.rank] += call.timing.compute
    return seconds


def _loaded(call: Call) -> float:
    """Since when it has its devices."""
    ready = (end for _, end, kind in call.timing.spans if kind in ("wait_lock", "onload", "offload"))
    return call.timing.began + max(ready, default=0.0)


def batch_point(report: StepReport, ranks: int, seconds: float, chunks: int = 1) -> BatchPoint:
    """A step's samples, shared by so many ranks."""
    return BatchPoint(ranks, -(-report.count // ranks), -(-sum(report.lengths) // ranks), chunks, seconds)


def between_s(spent: StepTime, generating: Collection[str] = ()) -> float:
    """Seconds of a step in which no role works, on any device: nobody computes, moves, or passes weights on. What the roles
    `generating` do is work from beginning to end."""
    found, at = 0.0, spent.began
    for start, end in sorted(_work(spent, generating)):
        found += max(0.0, min(start, spent.ended) - at)
        at = max(at, end)
    return found + max(0.0, spent.ended - at)


def _work(spent: StepTime, generating: Collection[str]) -> Iterator[tuple[float, float]]:
    for placed in spent.calls:
        yield from ((start, end) for start, end, kind in pieces(placed.call) if kind in _WORK and end > start)
        if placed.call.role in generating and not placed.call.beside:
            yield _loaded(placed.call), placed.call.timing.began + placed.call.timing.total


def decode_points(entries: Mapping[tuple[int, int], Sequence[float]]) -> Iterator[DecodePoint]:
    """From (replicas, active responses) -> (decode steps, seconds). Where a number has too few steps, it counts with the next
    ones: short responses have few steps of each. What is too little even so is left out."""
    pool: list[tuple[int, float, float]] = []
    before = 0
    for (replicas, active), (steps, seconds) in sorted(entries.items()):
        if not active or not steps:
            continue
        if pool and (replicas != before or active > ALIKE * pool[0][0]):
            pool = []
        pool.append((active, steps, seconds))
        before, count = replicas, sum(steps for _, steps, _ in pool)
        if count >= FEWEST_STEPS:
            mean = sum(active * steps for active, steps, _ in pool) / count
            yield DecodePoint(replicas, round(mean), sum(seconds for _, _, seconds in pool) / count, count)
            pool = []


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
