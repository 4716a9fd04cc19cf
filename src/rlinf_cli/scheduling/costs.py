"""What stages cost: seconds and memory by number of devices, from the laws that were measured or assumed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.scheduling.generation import estimated_seconds
from rlinf_cli.scheduling.problem import Batch, Decoding, Problem, Stage
from rlinf_cli.scheduling.tree import Tree, layout

Floats: TypeAlias = NDArray[np.float64]


def devices_of_unit(stage: Stage) -> int:
    """Devices of one rank or replica; 0 for what needs none."""
    return stage.unit if stage.needs_device else 0


def feasible(problem: Problem, stage: Stage, most: int) -> NDArray[np.bool_]:
    """Whether the stage can run on n = 0..most devices, [most + 1]."""
    unit = devices_of_unit(stage)
    counts = np.arange(most + 1)
    found: NDArray[np.bool_] = counts == 0
    if unit == 0:
        return found
    if stage.counts:
        found = np.isin(counts, stage.counts)
        return found
    units = problem.samples // max(stage.least_chunk, problem.group if isinstance(stage.cost, Decoding) else 1)
    limit = stage.cost.most_ranks if isinstance(stage.cost, Batch) else 0
    found = (counts > 0) & (counts % unit == 0) & (counts // unit <= max(1, units))
    return found & (counts // unit <= limit) if limit else found


def law_of(cost: Batch, ranks: Floats | float) -> tuple[Floats, Floats, Floats]:
    """Chunk, sample and token seconds at `ranks`, of any shape."""
    known = np.log([count for count, _ in cost.laws])
    places = np.log(np.maximum(np.asarray(ranks, np.float64), 1.0))
    rows = [[law.chunk_s, law.sample_s, law.token_s] for _, law in cost.laws]
    chunk, sample, token = (np.interp(places, known, [row[place] for row in rows]) for place in range(3))
    return chunk, sample, token


def stage_curve(problem: Problem, stage: Stage, most: int) -> Floats:
    """Seconds of the whole batch, alone on n = 0..most devices; inf where it cannot run. [most + 1]. Generation is an
    estimate (`generation.estimated_seconds`): which plan is best is decided by simulation."""
    seconds = np.full(most + 1, np.inf)
    places = np.flatnonzero(feasible(problem, stage, most))
    if isinstance(stage.cost, Decoding):
        replicas = np.maximum(places // max(1, devices_of_unit(stage)), 1)
        seconds[places] = estimated_seconds(stage.cost, problem.lengths, replicas, problem.dealing, problem.group)
        return seconds
    chunk, each = _rates(problem, stage, stage.cost, places)
    seconds[places] = stage.cost.step_s + chunk + each * problem.samples
    return seconds


def chunk_curve(problem: Problem, stage: Stage, most: int, chunk: int) -> Floats:
    """Seconds for which a chunk of so many samples occupies the stage in a full pipeline, on n = 0..most devices; inf where
    it cannot run. [most + 1]"""
    share = min(1.0, chunk / problem.samples)
    if isinstance(stage.cost, Decoding):
        return stage_curve(problem, stage, most) * share
    seconds = np.full(most + 1, np.inf)
    places = np.flatnonzero(feasible(problem, stage, most))
    fixed, each = _rates(problem, stage, stage.cost, places)
    seconds[places] = fixed + each * chunk + stage.cost.step_s * share
    return seconds


def service(stage: Stage, devices: int, lengths: NDArray[np.int64]) -> tuple[float, Floats, float]:
    """Of a stage that does not generate, on so many devices: seconds a chunk costs by itself, seconds of samples of such
    lengths [as `lengths`], and seconds once a batch."""
    assert isinstance(stage.cost, Batch)
    ranks = ranks_of(stage, devices)
    chunk, sample, token = law_of(stage.cost, float(ranks))
    each = (float(sample) + float(token) * lengths) / ranks
    return float(chunk), each, stage.cost.step_s


def ranks_of(stage: Stage, devices: int) -> int:
    """Ranks or replicas on so many devices; one for what needs none."""
    return int(_ranks(stage, np.array([devices]))[0])


def memory_curve(stage: Stage, most: int) -> tuple[Floats, Floats]:
    """Bytes on each of n = 0..most devices, while the stage computes and after it has made room, [most + 1] each."""
    memory = stage.memory
    counts = np.maximum(np.arange(most + 1), 1)
    loaded = memory.fixed + memory.shared / counts
    left = np.full(most + 1, 0.0 if memory.host else memory.left)
    if not stage.needs_device:
        return np.zeros(most + 1), np.zeros(most + 1)
    return loaded, left


def device_groups(tree: Tree) -> list[tuple[range, tuple[str, ...]]]:
    """The devices that the same stages use, in order, with those stages; stages without devices are left out."""
    places = {stage: devices for stage, devices in layout(tree).items() if devices}
    edges = sorted({edge for devices in places.values() for edge in (devices.start, devices.stop)})
    groups = []
    for first, last in pairwise(edges):
        users = tuple(stage for stage, devices in places.items() if devices.start <= first and last <= devices.stop)
        if users:
            groups.append((range(first, last), users))
    return groups


def group_memory(problem: Problem, tree: Tree) -> dict[str, float]:
    """Most bytes on a device: `a+b`, the stages that share it -> bytes. Those that hold the same weights hold them once, and
    neither makes room for the other."""
    places = layout(tree)
    found: dict[str, float] = {}
    for _, users in device_groups(tree):
        found["+".join(users)] = max(need for _, need in _needs(problem, users, places))
    return found


def fits(problem: Problem, tree: Tree) -> str:
    """Empty where every device has enough memory, else what is missing where, in a sentence."""
    places = layout(tree)
    for devices, users in device_groups(tree):
        stage, need = max(_needs(problem, users, places), key=lambda pair: pair[1])
        if need > problem.device_memory:
            others = [name for name in users if name != stage]
            beside = f" beside what {', '.join(others)} leave{'s' * (len(others) == 1)} there" if others else ""
            return (f"{stage} needs {need / 1e9:.1f} GB on each of devices {devices.start}-{devices.stop - 1}{beside}, "
                    f"and they have {problem.device_memory / 1e9:.1f} GB")
    return ""


def _needs(problem: Problem, users: tuple[str, ...], places: Mapping[str, range]) -> Iterator[tuple[str, float]]:
    """Of each stage on a device: bytes while it computes, with what the others leave."""
    stages = [problem.stage(name) for name in users]
    for stage in stages:
        loaded, _ = memory_curve(stage, len(places[stage.name]))
        left = sum(memory_curve(other, len(places[other.name]))[1][-1] for other in stages if other is not stage)
        yield stage.name, float(loaded[-1] + left)


def extrapolated(problem: Problem, tree: Tree) -> tuple[str, ...]:
    """What a prediction of the tree takes from outside of what was measured, in a few words each; of analytic costs, which are
    computed for any number, nothing."""
    notes: list[str] = []
    if problem.source == "analytic":
        return ()
    for name, devices in layout(tree).items():
        stage = problem.stage(name)
        units = max(1, len(devices) // max(1, devices_of_unit(stage)))
        if isinstance(stage.cost, Decoding):
            active = min(stage.cost.slots, -(-problem.samples // units))
            if len(stage.cost.step_s.xs) > 1 and not stage.cost.step_s.covers(active):
                notes.append(f"{name} with {active} active responses (measured up to {stage.cost.step_s.xs[-1]:g})")
            if len(stage.cost.slowdown.xs) > 1 and not stage.cost.slowdown.covers(units):
                notes.append(f"{name} on {units} replicas (measured up to {stage.cost.slowdown.xs[-1]:g})")
        elif not stage.cost.laws[0][0] <= units <= stage.cost.laws[-1][0]:
            notes.append(f"{name} on {units} ranks (measured up to {stage.cost.laws[-1][0]})")
    return tuple(notes)


def _rates(problem: Problem, stage: Stage, cost: Batch, counts: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Seconds a chunk costs by itself, and those of a mean sample, on so many devices."""
    ranks = _ranks(stage, counts)
    chunk, sample, token = law_of(cost, ranks.astype(np.float64))
    mean = problem.tokens / problem.samples
    each: Floats = (np.asarray(sample) + np.asarray(token) * mean) / ranks
    return np.asarray(chunk), each


def _ranks(stage: Stage, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    unit = devices_of_unit(stage)
    return np.maximum(counts // unit, 1) if unit else np.ones_like(counts)
