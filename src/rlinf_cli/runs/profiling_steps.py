"""What `rlinf profile` sees of a step beyond what ordinary training keeps: who was joined to whom, memory, moves, transfers."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.devices import gpu_memory
from rlinf_cli.flow.handle import Handle
from rlinf_cli.rl.trajectory import Sample
from rlinf_cli.runs.breakdown import StepTime
from rlinf_cli.runs.doctor import memory
from rlinf_cli.runs.measuring import (
    StepMeasurements,
    add_decoding,
    batch_point,
    between_s,
    computed,
    decode_points,
    hardware,
)
from rlinf_cli.runs.step import RunStep, StepReport
from rlinf_cli.scheduling.fit import decoding
from rlinf_cli.scheduling.graph import Called, Graph, Node, graph_of, verify
from rlinf_cli.scheduling.profile import BatchPoint, DecodePoint, MemoryPoint, Profile, RoleProfile
from rlinf_cli.workers.engine_share import Usage
from rlinf_cli.workflows.base import Role


@dataclass(frozen=True)
class _Generated:
    """A step's generation: the slowest replica's, seconds of all of them together, and what their engines did."""

    point: BatchPoint
    seconds: float
    count: int
    usage: tuple[Usage, ...]


class Observed:
    """Of all steps, on all numbers of devices."""

    def __init__(self, config: RunConfig, roles: Sequence[Role]) -> None:
        self._steps = StepMeasurements(config, roles)
        self._memory: dict[tuple[str, int], tuple[float, float]] = {}
        """(role, ranks) -> most bytes of a process, most of them that were freed for others."""
        self._transfers: list[float] = []
        self._circles: dict[str, list[BatchPoint]] = defaultdict(list)
        self._decoding: dict[str, list[DecodePoint]] = defaultdict(list)
        self._between: dict[int, list[float]] = defaultdict(list)
        """Ranks -> seconds of each step in which nobody computes: with more of them, the first to end waits for the others."""
        self._generated: dict[str, list[_Generated]] = defaultdict(list)
        self._calls: dict[Called, None] = {}
        """Of all steps: not every one need do everything."""
        self.graph = Graph(())
        self.differences: list[str] = []

    def look(self, ranks: Mapping[str, int], step: RunStep) -> None:
        """A step whose channels are still there."""
        if not self._calls:
            self.differences = verify(graph_of(step.calls()), step.flowed())
        self._calls |= dict.fromkeys(step.calls())
        self.graph = graph_of(self._calls)
        for handle in step.handles:
            self._look(handle, ranks[handle.role])

    def add(self, report: StepReport, ranks: Mapping[str, int]) -> None:
        """A step that is to be counted, on so many ranks of each role."""
        self._steps.add(report, ranks)
        self._between[max(ranks.values())].append(between_s(report))
        for role, usages in report.usage.items():
            self._add_generation(role, usages, report, ranks[role])
        if report.samples:
            self._transfers.append(transfer_s(report.samples))
        for node in self.graph.nodes:
            if len(node.roles) > 1 and report.time is not None:
                self._circles[node.name].append(_as_a_whole(node, report, report.time, max(ranks[role] for role in node.roles)))

    def add_decoding(self, role: str, usages: Sequence[Usage]) -> None:
        """Of all replicas at once."""
        entries: dict[tuple[int, int], list[float]] = {}
        add_decoding(entries, usages, len(usages))
        self._decoding[role] += decode_points(entries)

    def profile(self, kind: str, devices: int) -> Profile:
        """All of it. `kind`, `devices`: of the devices that there are."""
        found = self._steps.profile(hardware(kind, devices), memory()[0] / devices if kind == "cpu" else gpu_memory())
        roles = {name: self._role(role) for name, role in found.roles.items()}
        whole = {name: RoleProfile(name, tuple(points)) for name, points in self._circles.items()}
        each = median(self._transfers or [0.0])
        between = median(self._between[min(self._between)]) if self._between else 0.0
        return replace(found, roles=roles | whole, transfers=dict.fromkeys(self.graph.edges, each), step_s=between)

    def _look(self, handle: Handle, ranks: int) -> None:
        loaded, freed = self._memory.get((handle.role, ranks), (0.0, 0.0))
        moves = itertools.chain.from_iterable(handle.switches())
        freed = max([freed, *(float(move.size) for move in moves if move.kind == "offload")])
        used = handle.device_memory() if handle.group.seats[0].kind == "cuda" else handle.peak_memory()
        self._memory[handle.role, ranks] = max([loaded, *map(float, used)]), freed

    def _role(self, role: RoleProfile) -> RoleProfile:
        name = role.role
        points = sorted((ranks, *found) for (own, ranks), found in self._memory.items() if own == name)
        steps_s = sorted([*role.decoding, *self._decoding[name]], key=lambda point: (point.replicas, point.active))
        found = replace(role, decoding=tuple(steps_s),
                        memory=tuple(MemoryPoint(ranks, loaded, max(0.0, loaded - freed)) for ranks, loaded, freed in points))
        steps = self._generated[name]
        if not steps_s or not steps:
            return found
        return replace(found, batches=tuple(step.point for step in steps), prefill_s=median(_besides(found, steps)))

    def _add_generation(self, role: str, usages: Sequence[Usage], report: StepReport, ranks: int) -> None:
        assert report.time is not None
        seconds = computed(role, report.time)
        if seconds:
            point = batch_point(report, ranks, max(seconds.values()))
            self._generated[role].append(_Generated(point, sum(seconds.values()), report.count, tuple(usages)))


def transfer_s(samples: Sequence[Sample]) -> float:
    """Seconds that a sample takes through a channel, to another process and back, group by group."""
    groups = [list(group) for _, group in itertools.groupby(samples, key=lambda sample: sample.group_id)]
    channel, began = Channel("profile-transfer"), time.perf_counter()
    for group in groups:
        channel.put(group)
        channel.get()
    seconds = time.perf_counter() - began
    channel.drop()
    return seconds / len(samples)


def _besides(role: RoleProfile, steps: Sequence[_Generated]) -> Iterator[float]:
    """Seconds that a response took besides its decode steps, in each step on the fewest ranks: reading the prompt, and all that
    is done for it outside of the engine."""
    cost, fewest = decoding(role), min(step.point.ranks for step in steps)
    for step in steps:
        if step.point.ranks == fewest and step.count:
            slower = float(cost.slowdown.at(float(fewest)))
            known = sum(slower * entry[0] * float(cost.step_s.at(float(active))) for usage in step.usage
                        for active, entry in itertools.chain(usage.decoding.items(), usage.mixed.items()))
            yield max(0.0, step.seconds - known) / step.count / slower


def _as_a_whole(node: Node, report: StepReport, spent: StepTime, ranks: int) -> BatchPoint:
    """From the first call of a circle's roles to the end of the last."""
    calls = [placed.call.timing for placed in spent.calls if placed.call.role in node.roles and not placed.call.beside]
    seconds = max(one.began + one.total for one in calls) - min(one.began for one in calls)
    return batch_point(report, ranks, seconds)
