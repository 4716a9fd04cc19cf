"""What an execution is searched for: stages and what they cost, the batch, the devices. Data only.

One iteration is a batch of `samples` responses, in groups that are never split. A *stage* is a role, or several that
form a cycle and are measured as one. Times are seconds, memory bytes, sizes samples or tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Source: TypeAlias = Literal["measured", "analytic", "emulated"]


@dataclass(frozen=True)
class Curve:
    """A measured curve: between its points it is taken to be straight, before the first and beyond the last as its
    nearest piece is. One point is a constant."""

    xs: tuple[float, ...]
    ys: tuple[float, ...]

    def at(self, x: NDArray[Any] | float) -> NDArray[np.float64]:
        """Values at `x`, of any shape; never below 0."""
        places = np.asarray(x, np.float64)
        if len(self.xs) == 1:
            return np.full(places.shape, self.ys[0])
        xs, ys = np.asarray(self.xs), np.asarray(self.ys)
        piece = np.clip(np.searchsorted(xs, places) - 1, 0, len(xs) - 2)
        slope = (ys[piece + 1] - ys[piece]) / (xs[piece + 1] - xs[piece])
        values: NDArray[np.float64] = np.maximum(ys[piece] + slope * (places - xs[piece]), 0.0)
        return values

    def covers(self, x: float) -> bool:
        """Whether `x` lies between measured points: what does not is extrapolated."""
        return self.xs[0] <= x <= self.xs[-1]


@dataclass(frozen=True)
class Decoding:
    """Cost of generation. A replica works on up to `slots` responses at once and begins the next when one ends; while k are
    active a decode step, a token for each, takes `step_s` at k."""

    step_s: Curve
    slots: int
    devices_per_replica: int = 1
    prefill_s: float = 0.0
    """For the prompt of one response."""
    call_s: float = 0.0
    """Once a batch, whatever its size."""
    slowdown: Curve = Curve((1.0,), (1.0,))
    """Replicas at work at once -> factor on all times: on one machine they share its memory's bandwidth."""


@dataclass(frozen=True)
class Law:
    """Seconds of a rank: `chunk_s` for each chunk that it takes, and for what is in it."""

    chunk_s: float = 0.0
    sample_s: float = 0.0
    token_s: float = 0.0
    """A token of a response; the tokens of prompts are in `sample_s`."""


@dataclass(frozen=True)
class Batch:
    """Cost of everything that is not generation: affine in what a rank is given; ranks share a batch equally."""

    laws: tuple[tuple[int, Law], ...]
    """Ranks for which it was measured -> law, ascending. Between them, and beyond them, rates are interpolated in the logarithm
    of ranks, and kept beyond the last."""
    devices_per_rank: int = 1
    step_s: float = 0.0
    """Once a batch: an optimiser step, or what else has nothing to do with its size."""
    most_ranks: int = 0
    """0: any number. 1: a helper that does not scale."""


@dataclass(frozen=True)
class Memory:
    """Of a role on one device of its own: `fixed` whatever the number of devices, `shared` divided among them; `left` stays
    there when it has made room for another."""

    fixed: float = 0.0
    shared: float = 0.0
    left: float = 0.0
    host: bool = False
    """What has made room lies in main memory: of no account for the device."""


@dataclass(frozen=True)
class Spread:
    """What a stage costs with another number of devices a rank or replica."""

    cost: Decoding | Batch
    memory: Memory = Memory()


@dataclass(frozen=True)
class Apart:
    """What a cycle costs where its members have devices of their own. `widths`: number of devices -> how many each member has, in
    their order."""

    cost: Batch
    widths: tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Stage:
    """A node of the graph. `after`: the stages whose items it takes."""

    name: str
    cost: Decoding | Batch
    after: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    """What it is made of; empty: the role of its own name."""
    memory: Memory = Memory()
    counts: tuple[int, ...] = ()
    """Numbers of devices that it can use; empty: every multiple of what a rank or replica needs."""
    needs_device: bool = True
    """False: it computes beside others, such as a reward on a processor, and takes no device from anybody."""
    streams: bool = True
    """False: it needs its whole batch before it begins, as a trainer does that goes over it more than once."""
    weights: str = ""
    """Stages that name the same weights hold one copy of them, and change places for free."""
    trains: bool = False
    """Makes the weights that generation waits for; the end of an iteration."""
    least_chunk: int = 1
    """Samples that it must have at once: a group, a micro-batch."""
    spreads: tuple[Spread, ...] = ()
    """Other numbers of devices a rank or replica that it can have. Stages with the same weights have the same ones."""

    apart: Apart | None = None
    """Of a cycle whose members could also have devices of their own; None where they cannot, or have."""
    widths: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """Of a cycle whose members have devices of their own: see `Apart`."""

    @property
    def members(self) -> tuple[str, ...]:
        return self.roles or (self.name,)

    @property
    def unit(self) -> int:
        """Devices of a rank or replica."""
        return self.cost.devices_per_replica if isinstance(self.cost, Decoding) else self.cost.devices_per_rank

    @property
    def choices(self) -> tuple[Stage, ...]:
        """Itself with each number of devices a rank or replica, its own first. Those with another number hold other weights."""
        if not self.spreads:
            return (self,)
        every = (Spread(self.cost, self.memory), *self.spreads)
        alone = [replace(self, cost=one.cost, memory=one.memory, spreads=()) for one in every]
        return tuple(replace(stage, weights=stage.weights and f"{stage.weights}/{stage.unit}") for stage in alone)


@dataclass(frozen=True)
class Problem:
    """All that a placement depends on."""

    stages: tuple[Stage, ...]
    """In an order in which producers come first."""
    devices: int
    lengths: NDArray[np.int64] = field(repr=False)
    """Tokens of each response of a batch [samples], in the order of the prompts."""
    pool: NDArray[np.int64] | None = field(default=None, repr=False)
    """Lengths that batches are drawn from, one after the other: what a small batch takes depends on which it has. None: every
    batch has `lengths`."""
    group: int = 1
    """Samples of a prompt, which go together."""
    device_memory: float = float("inf")
    switch_s: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(from, to) -> seconds for which a device is for nobody when it changes hands; missing: 0."""
    transfer_s: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(producer, consumer) -> seconds a sample needs from one to the other; missing: 0."""
    sync_s: float = 0.0
    """New weights from the trainer to generation."""
    step_s: float = 0.0
    """Of an iteration, that is nobody's: what the program itself needs between two."""
    staleness: int = 0
    """Steps that generation may be ahead; 0: synchronous."""
    dealing: Literal["as_taken", "round_robin"] = "as_taken"
    """How replicas get their samples: the next one to whoever has room, or dealt beforehand."""
    interleaves: bool = False
    """Whether stages that share weights and devices can work on one chunk after another, in turn, without waiting for the
    whole batch. The program's device lock hands devices over a batch at a time."""
    whole_samples: bool = False
    """Whether a sample is trained on one rank, so that nobody helps with the last one; else ranks share all work equally. The
    program's trainers are dealt whole samples."""
    source: Source = "measured"
    hardware: str = ""
    notes: tuple[str, ...] = ()
    """What the reader of a prediction must know: what was extrapolated, what was assumed."""

    def __post_init__(self) -> None:
        known: set[str] = set()
        for stage in self.stages:
            missing = [name for name in stage.after if name not in known]
            if missing or stage.name in known:
                raise ValueError(f"stage '{stage.name}' comes twice, or before '{', '.join(missing)}', whose items it takes")
            known.add(stage.name)

    @property
    def samples(self) -> int:
        return len(self.lengths)

    @property
    def tokens(self) -> int:
        """Of all responses."""
        return int(self.lengths.sum())

    def stage(self, name: str) -> Stage:
        return next(stage for stage in self.stages if stage.name == name)

    def spread(self, units: Mapping[str, int]) -> Problem:
        """With so many devices a rank or replica of the named stages, where a stage has a choice; else its own number."""
        if not any(stage.spreads for stage in self.stages):
            return self
        chosen = [next((one for one in stage.choices if one.unit == units.get(stage.name)), stage.choices[0])
                  for stage in self.stages]
        return replace(self, stages=tuple(chosen))

    def with_cycles_apart(self) -> Problem | None:
        """The same with the members of cycles on devices of their own; None where no cycle can be so."""
        if not any(stage.apart for stage in self.stages):
            return None
        stages = tuple(stage if stage.apart is None else replace(
            stage, cost=stage.apart.cost, counts=tuple(count for count, _ in stage.apart.widths), apart=None,
            widths=stage.apart.widths) for stage in self.stages)
        return replace(self, stages=stages)

    def switch(self, before: Stage, after: Stage) -> float:
        """Seconds between the two on the same devices."""
        if before.weights and before.weights == after.weights:
            return 0.0
        return self.switch_s.get((before.name, after.name), 0.0)


def topological(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """In an order in which producers come first; otherwise as given. Raises ValueError where there is a cycle."""
    left, done = list(stages), {}
    while left:
        ready = next((stage for stage in left if all(name in done for name in stage.after)), None)
        if ready is None:
            raise ValueError(f"a cycle among {', '.join(stage.name for stage in left)}")
        left.remove(ready)
        done[ready.name] = ready
    return tuple(done.values())
