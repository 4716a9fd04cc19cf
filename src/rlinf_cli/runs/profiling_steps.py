"""What `rlinf profile` sees of a step beyond what ordinary training keeps: who was joined to whom, memory, moves, transfers."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.devices import gpu_memory
from rlinf_cli.flow.handle import Handle
from rlinf_cli.rl.trajectory import Sample
from rlinf_cli.runs.conditions import hardware
from rlinf_cli.runs.doctor import memory
from rlinf_cli.runs.measuring import (
    StepMeasurements,
    add_decoding,
    as_a_whole,
    batch_point,
    computed,
    decode_points,
)
from rlinf_cli.runs.step import RunStep, StepReport
from rlinf_cli.scheduling.fit import decoding, nonnegative
from rlinf_cli.scheduling.graph import Called, Graph, graph_of, verify
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
        self._config, self._roles = config, roles
        self._steps = StepMeasurements(config, roles)
        self._memory: dict[tuple[str, int], tuple[float, float]] = {}
        """(role, ranks) -> most bytes of a process, most of them that were freed for others."""
        self._transfers: list[float] = []
        self._circles: dict[str, list[BatchPoint]] = defaultdict(list)
        self._decoding: dict[str, list[DecodePoint]] = defaultdict(list)
        self._generated: dict[str, list[_Generated]] = defaultdict(list)
        self._calls: dict[Called, None] = {}
        """Of all steps: not every one need do everything."""
        self.graph = Graph(())
        self.differences: list[str] = []

    def without_steps(self) -> Observed:
        """What was seen of calls and memory, to add other steps to."""
        found = Observed(self._config, self._roles)
        found._memory, found._calls, found.graph = self._memory, self._calls, self.graph
        return found

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
        for role, usages in report.usage.items():
            self._add_generation(role, usages, report, ranks[role])
        if report.samples:
            self._transfers.append(transfer_s(report.samples))
        for node in self.graph.nodes:
            if len(node.roles) > 1 and report.time is not None:
                self._circles[node.name].append(as_a_whole(node.roles, report, ranks))

    def add_decoding(self, role: str, usages: Sequence[Usage]) -> None:
        """Of all replicas at once."""
        entries: dict[tuple[int, int], list[float]] = {}
        add_decoding(entries, usages, len(usages))
        self._decoding[role] += decode_points(entries)

    def profile(self, kind: str, devices: int) -> Profile:
        """All of it. `kind`, `devices`: of the devices that there are."""
        found = self._steps.profile(hardware(kind, devices), memory()[0] / devices if kind == "cpu" else gpu_memory())
        roles = {name: self._role(role) for name, role in found.roles.items()}
        whole = {name: RoleProfile(name, tuple(points), memory=self._memory_of(name.split("+")))
                 for name, points in self._circles.items()}
        each = median(self._transfers or [0.0])
        return replace(found, roles=roles | whole, transfers=dict.fromkeys(self.graph.edges, each))

    def _look(self, handle: Handle, ranks: int) -> None:
        loaded, freed = self._memory.get((handle.role, ranks), (0.0, 0.0))
        moves = itertools.chain.from_iterable(handle.switches())
        freed = max([freed, *(float(move.size) for move in moves if move.kind == "offload")])
        used = handle.device_memory() if handle.group.seats[0].kind == "cuda" else handle.peak_memory()
        self._memory[handle.role, ranks] = max([loaded, *map(float, used)]), freed

    def _memory_of(self, members: Sequence[str]) -> tuple[MemoryPoint, ...]:
        """Of several roles on the same devices, where each was measured."""
        counts = sorted(set.intersection(*({ranks for own, ranks in self._memory if own == name} for name in members)))
        sums = ((ranks, *map(sum, zip(*(self._memory[name, ranks] for name in members), strict=True))) for ranks in counts)
        return tuple(MemoryPoint(ranks, loaded, max(0.0, loaded - freed)) for ranks, loaded, freed in sums)

    def _role(self, role: RoleProfile) -> RoleProfile:
        name = role.role
        points = sorted((ranks, *found) for (own, ranks), found in self._memory.items() if own == name)
        steps_s = sorted([*role.decoding, *self._decoding[name]], key=lambda point: (point.replicas, point.active))
        found = replace(role, decoding=tuple(steps_s),
                        memory=tuple(MemoryPoint(ranks, loaded, max(0.0, loaded - freed)) for ranks, loaded, freed in points))
        steps = self._generated[name]
        if not steps_s or not steps:
            return found
        call_s, each_s = _besides(found, steps)
        return replace(found, batches=tuple(step.point for step in steps), call_s=call_s, prefill_s=each_s)

    def _add_generation(self, role: str, usages: Sequence[Usage], report: StepReport, ranks: int) -> None:
        assert report.time is not None
        seconds = computed(role, report.time)
        if seconds:
            point = batch_point(report, ranks, max(seconds.values()))
            took = max(sum(seconds.values()), sum(usage.occupied for usage in usages))  # an engine may go on while a call waits
            self._generated[role].append(_Generated(point, took, report.count, tuple(usages)))


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


def _besides(role: RoleProfile, steps: Sequence[_Generated]) -> tuple[float, float]:
    """Seconds that a replica takes besides its decode steps, once a batch, and for each response: reading the prompt, and all
    that is done for it outside of the engine. All of it goes with responses where every step had as many."""
    cost = decoding(role)
    found: dict[float, list[float]] = defaultdict(list)
    for step in steps:
        replicas, slower = step.point.ranks, float(cost.slowdown.at(float(step.point.ranks)))
        known = sum(made * float(cost.step_s.at(float(active))) for usage in step.usage for active, made in _made(usage))
        found[step.count / replicas].append((step.seconds / slower - known) / replicas)
    counts, seconds = np.array(list(found)), np.array([median(each) for each in found.values()])
    if len(found) == 1:
        return 0.0, max(0.0, float(seconds[0] / max(counts[0], 1.0)))
    call_s, each_s = nonnegative(np.stack([np.ones_like(counts), counts], axis=1), seconds)
    return float(call_s), float(each_s)


def _made(usage: Usage) -> Iterator[tuple[int, float]]:
    """Active responses, and decode steps with so many: all of them, by whomever the engine was driven."""
    for active, (steps, _) in itertools.chain(usage.decoding.items(), usage.mixed.items()):
        yield active, steps
    yield from usage.undriven.items()
