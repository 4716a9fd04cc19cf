"""What stages cost in a search: by number of devices, for each size of a chunk, best of all smaller numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.scheduling.costs import chunk_curve, memory_curve, stage_curve
from rlinf_cli.scheduling.problem import Decoding, Problem, Stage
from rlinf_cli.scheduling.search_arrivals import POINTS, arrivals

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

SIZES = 12
"""Chunk sizes that are tried, at most."""


@dataclass(frozen=True)
class Curves:
    """Of a stage on up to n = 0..N devices: idle ones are allowed, so nothing rises. `used`: how many it then runs on."""

    whole: Floats
    """Seconds of the whole batch, [N + 1]."""
    whole_used: Ints
    pace: Floats
    """Seconds of a chunk of each size, [sizes, N + 1]; inf where it does not stream, or needs a larger one. 0 for generation:"""
    pace_used: Ints
    arrivals: Floats | None
    """When each part of what it generates is there, [64, N + 1]; None for everything else."""
    units: Ints
    """Devices of a rank or replica on exactly n devices, [N + 1]."""


class Costs:
    """All curves of a problem. `reserved`: bytes that others leave on the stage's devices."""

    def __init__(self, problem: Problem, sizes: tuple[int, ...] | None = None) -> None:
        """With such sizes of chunk; None: `chunk_sizes`."""
        self.problem = problem
        self.most = problem.devices
        self.sizes = chunk_sizes(problem) if sizes is None else sizes
        self.counts = np.array([math.ceil(problem.samples / size) for size in self.sizes], np.int64)
        """Chunks of a batch, for each size."""
        self._choices = [stage.choices for stage in problem.stages]
        self._whole = [np.array([stage_curve(problem, one, self.most) for one in every]) for every in self._choices]
        self._chunks = [np.array([self._chunks_of(one) for one in every]) for every in self._choices]
        self._loaded = [np.array([memory_curve(one, self.most)[0] for one in every]) for every in self._choices]
        """Of each choice of a stage, [choices, ..., N + 1]."""
        self.alone = [seconds.min(axis=0) for seconds in self._whole]
        """Seconds of the whole batch on exactly n = 0..N devices, of each stage, whatever memory it needs, [N + 1]."""
        self.curves = lru_cache(maxsize=None)(self._curves)
        self._ahead = lru_cache(maxsize=None)(self._ahead_of)

    def left(self, place: int) -> float:
        """Most bytes that the stage leaves on a device when it has made room."""
        return max(float(math.ceil(memory_curve(one, 1)[1][-1])) for one in self._choices[place])

    def exactly(self, place: int, reserved: float) -> tuple[Floats, Ints]:
        """Seconds of the whole batch on exactly n = 0..N devices, beside so many bytes of others, and the devices of a rank or
        replica with which it is fastest, [N + 1] each. Stages with the same weights are taken together."""
        choice = self._chosen(place, reserved)
        units = np.array([one.unit for one in self._choices[place]])
        return _of(self._fitting(place, reserved), choice), units[choice]

    def _chosen(self, place: int, reserved: float) -> Ints:
        """Place of a choice, for each number of devices, [N + 1]."""
        if len(self._choices[place]) == 1:
            return np.zeros(self.most + 1, np.int64)
        weights = self.problem.stages[place].weights
        alike = [other for other, stage in enumerate(self.problem.stages) if weights and stage.weights == weights] or [place]
        seconds = [self._fitting(other, reserved) for other in alike]
        together = sum(np.where(np.isfinite(one).any(axis=0), one, 0.0) for one in seconds)
        choice: Ints = np.asarray(together).argmin(axis=0)
        return choice

    def _fitting(self, place: int, reserved: float) -> Floats:
        """Seconds of the whole batch where memory allows it, [choices, N + 1]."""
        fits = self._loaded[place] + reserved <= self.problem.device_memory
        found: Floats = np.where(fits, self._whole[place], np.inf)
        return found

    def occupied(self, place: int, reserved: float) -> Floats:
        """Seconds of a step for which the stage has its devices, where generation runs ahead, [N + 1]: it goes on from one batch
        to the next, so that the tail of the last is shared by all that are under way. Training publishes weights besides."""
        problem, stage = self.problem, self.problem.stages[place]
        whole = self.curves(place, reserved).whole + (problem.sync_s if stage.trains else 0.0)
        return np.minimum(whole, self._ahead(place, reserved)) if isinstance(stage.cost, Decoding) else whole

    def _ahead_of(self, place: int, reserved: float) -> Floats:
        batches = self.problem.staleness + 1
        several = replace(self.problem, lengths=np.tile(self.problem.lengths, batches))
        seconds = np.array([stage_curve(several, one, self.most) / batches for one in self._choices[place]])
        is_possible = np.isfinite(self.exactly(place, reserved)[0])
        return falling(np.where(is_possible, _of(seconds, self._chosen(place, reserved)), np.inf))[0]

    def late(self, arrivals: Floats, sizes: Ints, pace: Floats) -> Floats:
        """How much later all that follows in a pipeline ends than if all of the batch had been there at once. `arrivals`: [64,
        ...] · `sizes`: places of chunk sizes [sizes] · `pace`: seconds between two chunks [sizes, ...]. Returns [sizes, ...]."""
        pace = np.where(np.isfinite(pace), pace, 0.0)  # what cannot be is infinite without this
        places, before = self._parts[0][sizes], self._parts[1][sizes]
        steps = before.reshape(*before.shape, *[1] * (pace.ndim - 1))
        found: Floats = (arrivals[places] - steps * pace[:, None]).max(axis=1)
        return found

    @cached_property
    def _parts(self) -> tuple[Ints, Ints]:
        """For each size of chunk and part of a batch: which arrival completes the chunk that it is in, and how many chunks come
        before that one, [sizes, 64]."""
        chunk = np.ceil(self.counts[:, None] * np.arange(1, POINTS + 1) / POINTS).astype(np.int64)
        places = np.minimum(np.ceil(chunk / self.counts[:, None] * POINTS), POINTS).astype(np.int64) - 1
        return places, chunk - 1

    def _chunks_of(self, stage: Stage) -> Floats:
        nothing = np.full(self.most + 1, np.inf)
        if isinstance(stage.cost, Decoding):
            return np.zeros((len(self.sizes), self.most + 1)) if not stage.after else np.tile(nothing, (len(self.sizes), 1))
        chunks = [chunk_curve(self.problem, stage, self.most, size) if stage.streams and size % stage.least_chunk == 0
                  else nothing for size in self.sizes]
        return np.array(chunks).reshape(-1, self.most + 1)

    def _curves(self, place: int, reserved: float) -> Curves:
        seconds, units = self.exactly(place, reserved)
        whole, used = falling(seconds)
        chunks = _of(self._chunks[place], self._chosen(place, reserved))
        if not isinstance(self.problem.stages[place].cost, Decoding):
            return Curves(whole, used, *falling(np.where(np.isfinite(seconds), chunks, np.inf)), None, units)
        pace = np.where(np.isfinite(whole), chunks, np.inf)
        return Curves(whole, used, pace, np.tile(used, (len(self.sizes), 1)), self._arrivals(place, whole, used, units), units)

    def _arrivals(self, place: int, whole: Floats, used: Ints, units: Ints) -> Floats:
        found = np.full((POINTS, self.most + 1), np.inf)
        for one in self._choices[place]:
            counts = np.flatnonzero(np.isfinite(whole) & (units[used] == one.unit))
            if len(counts) and isinstance(one.cost, Decoding):
                found[:, counts] = arrivals(self.problem, one.cost, np.maximum(1, used[counts] // one.unit), whole[counts])
        return falling(found)[0]


def _of(values: Floats, choice: Ints) -> Floats:
    """[choices, ..., N + 1] -> [..., N + 1], those of the choice for each number of devices, [N + 1]."""
    is_single = len(values) == 1
    found: Floats = values[0] if is_single else np.take_along_axis(values, choice[(None,) * (values.ndim - 1)], axis=0)[0]
    return found


def chunk_sizes(problem: Problem) -> tuple[int, ...]:
    """Of at least two chunks: for each stage the least that it and the groups can do, and doubled again and again."""
    found: set[int] = set()
    for stage in problem.stages:
        size = math.lcm(problem.group, stage.least_chunk) if stage.streams else problem.samples
        while size < problem.samples:
            found.add(size)
            size *= 2
    return tuple(sorted(found)[-SIZES:])


def falling(values: Floats) -> tuple[Floats, Ints]:
    """The least of the values so far along the last axis, and where it first occurs."""
    least = np.minimum.accumulate(values, axis=-1)
    is_new = np.ones(values.shape, np.bool_)
    is_new[..., 1:] = least[..., 1:] < least[..., :-1]
    places = np.where(is_new, np.arange(values.shape[-1]), 0)
    return least, np.maximum.accumulate(places, axis=-1)
