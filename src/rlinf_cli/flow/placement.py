"""Which ranks a role has, which devices each rank runs on, and which roles share their processes. Pure: no Ray, no devices
are touched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

from rlinf_cli.errors import CapacityError, UsageError

Ranks = tuple[tuple[int, ...], ...]
Bounds = tuple[int, int]
"""Fewest and most items of a chunk."""


@dataclass(frozen=True)
class RoleSpec:
    """A role, and how many ranks it can have: `all`: one a device, or as the placement says; `one`; or a number."""

    name: str
    ranks: Literal["all", "one"] | int = "all"
    trains: bool = False
    """Works on whole sequences, with a model: trains it, or scores with it. Not what generates them."""
    chunked: bool = False
    """Takes what it works on in chunks, whose size can be bounded."""

    @property
    def count(self) -> int | None:
        """Ranks that it must have; None: any number."""
        return None if self.ranks == "all" else 1 if self.ranks == "one" else self.ranks


@dataclass(frozen=True)
class Placement(Mapping[str, Ranks]):
    """Role -> its ranks, each a tuple of device numbers."""

    ranks: Mapping[str, Ranks]
    kind: str = field(default="", compare=False)
    """`cpu` or `cuda`, for people; empty when it is not known."""
    fused: tuple[tuple[str, ...], ...] = ()
    """Roles that share their processes; they have the same ranks."""
    granularity: Mapping[str, Bounds] = field(default_factory=dict)
    """Bounds of the chunks that a role takes; a role that is not named chooses for itself."""
    fixed: frozenset[str] = field(default=frozenset(), compare=False)
    """Roles whose number of ranks is settled, and that so say nothing of the mode."""

    def __getitem__(self, role: str) -> Ranks:
        return self.ranks[role]

    def __iter__(self) -> Iterator[str]:
        return iter(self.ranks)

    def __len__(self) -> int:
        return len(self.ranks)

    def devices(self, role: str) -> tuple[int, ...]:
        """The devices of a role, each once, in ascending order."""
        return tuple(sorted({device for rank in self.ranks[role] for device in rank}))

    def processes(self) -> list[tuple[str, ...]]:
        """All roles, those together that share their processes."""
        partners = {roles[0]: roles for roles in self.fused}
        guests = {role for roles in self.fused for role in roles[1:]}
        return [partners.get(role, (role,)) for role in self.ranks if role not in guests]

    @property
    def mode(self) -> Literal["temporal", "spatial", "hybrid"]:
        """`temporal`: all roles take turns on the same devices · `spatial`: each has its own · `hybrid`: neither."""
        decisive = [role for role in self.ranks if role not in self.fixed] or list(self.ranks)
        sets = {frozenset(self.devices(role)) for role in decisive}
        guests = {frozenset(self.devices(role)) for role in self.ranks} - sets
        if len(sets) == 1 and all(guest <= one for one in sets for guest in guests):
            return "temporal"
        apart = all(one.isdisjoint(other) for one, other in combinations(sets, 2))
        inside = all(guest <= one or guest.isdisjoint(one) for guest in guests for one in sets)
        return "spatial" if len(sets) > 1 and apart and inside else "hybrid"

    def to_yaml(self) -> str:
        """The text of a placement file that loads to this placement."""
        lines = [f"{role}: [{', '.join(str(list(rank)) for rank in ranks)}]" for role, ranks in self.ranks.items()]
        if self.fused:
            lines.append(f"fused: [{', '.join('[' + ', '.join(roles) + ']' for roles in self.fused)}]")
        if self.granularity:
            bounds = (f"{role}: {low}-{high}" for role, (low, high) in self.granularity.items())
            lines.append(f"granularity: {{{', '.join(bounds)}}}")
        return "\n".join([f"# {describe(self)}", *lines, ""])


def temporal(roles: Sequence[RoleSpec], devices: int, kind: str = "") -> Placement:
    """All roles take turns on all devices. Raises CapacityError when a role has more ranks than there are devices."""
    everywhere = range(devices)
    return Placement({role.name: one_a_device(role, everywhere) for role in roles}, kind, fixed=fixed_of(roles))


def spatial(roles: Sequence[RoleSpec], devices: int, kind: str = "") -> Placement:
    """Roles that train or score with models on the second half of the devices, the others on the first (the larger, of an
    odd number). Raises CapacityError when a half has too few devices for a role."""
    if devices < 2:
        raise CapacityError("placement=spatial needs 2 devices, but there is only 1: raise cluster.devices, or write "
                            "placement=temporal")
    first = -(-devices // 2)
    halves = {False: range(first), True: range(first, devices)}
    return Placement({role.name: one_a_device(role, halves[role.trains]) for role in roles}, kind, fixed=fixed_of(roles))


def one_a_device(role: RoleSpec, devices: Sequence[int]) -> Ranks:
    """The ranks of a role, from the first device on. Raises CapacityError when there are too few."""
    count = len(devices) if role.count is None else role.count
    if count > len(devices):
        raise CapacityError(f"role '{role.name}' has {count} ranks and each needs a device, but there are {len(devices)}: "
                            f"raise cluster.devices to {count}")
    return tuple((device,) for device in devices[:count])


def fixed_of(roles: Sequence[RoleSpec]) -> frozenset[str]:
    """The roles whose number of ranks is settled."""
    return frozenset(role.name for role in roles if role.count is not None)


def fuse(placement: Placement) -> Placement:
    """Roles with the same ranks on the same devices share their processes. A placement that names its fused roles is left as
    it is. Raises UsageError when there are no such roles."""
    if placement.fused:
        return placement
    alike: dict[Ranks, list[str]] = {}
    for role, ranks in placement.items():
        alike.setdefault(ranks, []).append(role)
    fused = tuple(tuple(roles) for roles in alike.values() if len(roles) > 1)
    if not fused:
        raise UsageError("cluster.fused=true, but no two roles have the same ranks on the same devices "
                         f"({describe(placement)}): place them alike, or leave it out")
    return Placement(placement.ranks, placement.kind, fused, placement.granularity, placement.fixed)


def describe(placement: Placement) -> str:
    """One line: `temporal: rollout, reward, actor share cpu:0-1`, `spatial: rollout+reward | actor on cpu:0 | cpu:1 (+: in
    one process)`."""
    processes = {"+".join(roles): placement.devices(roles[0]) for roles in placement.processes()}
    note = " (+: in one process)" if placement.fused else ""
    if placement.mode == "temporal":
        everything = sorted({device for devices in processes.values() for device in devices})
        verb = "share" if len(placement) > 1 else "on"
        return f"temporal: {', '.join(processes)} {verb} {_label(placement.kind, everything)}{note}"
    places: dict[tuple[int, ...], list[str]] = {}
    for process, devices in processes.items():
        places.setdefault(devices, []).append(process)
    left = " | ".join(", ".join(names) for names in places.values())
    return f"{placement.mode}: {left} on {' | '.join(_label(placement.kind, devices) for devices in places)}{note}"


def _label(kind: str, devices: Sequence[int]) -> str:
    """`cpu:0-1,3`; without a kind `devices 0-1,3`."""
    runs: list[list[int]] = []
    for device in devices:
        if runs and device == runs[-1][-1] + 1:
            runs[-1].append(device)
        else:
            runs.append([device])
    text = ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"{kind}:{text}" if kind else f"device{'s' * (len(devices) > 1)} {text}"
