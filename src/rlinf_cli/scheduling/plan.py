"""What a search decides: who runs where, in which chunks, how far ahead; and what that is predicted to cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

from rlinf_cli.scheduling.problem import Source
from rlinf_cli.scheduling.tree import Tree, layout

Mode = Literal["temporal", "spatial", "hybrid"]


@dataclass(frozen=True)
class Prediction:
    """Of one iteration in the long run. `busy`: device group (a stage's name, or several that share devices, `a+b`) -> state
    -> seconds of the iteration; the states are stages' names, `switch`, `sync` and `idle`, and add up to `step_s`."""

    step_s: float
    stages: Mapping[str, float] = field(default_factory=dict)
    """Seconds for which each stage computes on its devices (a mean over them)."""
    busy: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    memory: Mapping[str, float] = field(default_factory=dict)
    """Device group -> most bytes on one of its devices."""
    bound_by: str = ""
    """What an iteration would be shorter without, in a few words: `rollout tail 38 %`."""
    extrapolated: tuple[str, ...] = ()
    """What of it lies outside of what was measured."""
    source: Source = "measured"


@dataclass(frozen=True)
class Plan:
    """An execution. `chunk`: samples that a stage hands on at once, where it is in a pipeline · `units`: devices of a rank or
    replica of stages that have a choice."""

    tree: Tree
    chunk: Mapping[str, int] = field(default_factory=dict)
    staleness: int = 0
    prediction: Prediction | None = None
    units: Mapping[str, int] = field(default_factory=dict)

    @property
    def devices(self) -> Mapping[str, range]:
        """Stage -> devices."""
        return layout(self.tree)

    @property
    def mode(self) -> Mode:
        """Of the stages that need devices: `temporal`: all in turn on the same ones · `spatial`: each on its own · `hybrid`."""
        places = [set(devices) for devices in self.devices.values() if devices]
        if all(one == places[0] for one in places):
            return "temporal"
        return "spatial" if all(one.isdisjoint(other) for one, other in combinations(places, 2)) else "hybrid"


@dataclass(frozen=True)
class Rejected:
    """A plan that was not chosen, and why in a few words."""

    plan: Plan
    why: str


@dataclass(frozen=True)
class Found:
    """What a search came to. `others`: runners-up, with pure temporal and pure spatial among them where they are feasible."""

    best: Plan
    others: Sequence[Rejected] = ()
    considered: int = 0
    """Plans that were costed, those of the dynamic programme counted once each."""
    simulated: int = 0
    seconds: float = 0.0
