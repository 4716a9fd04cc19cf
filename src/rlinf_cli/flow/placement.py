"""Which ranks a role has and which devices each rank runs on. Pure: no Ray, no devices are touched.

A placement file is a YAML mapping from role to ranks::

    rollout: 0-3          # a device, a range or several of both (0-1,3): one rank on each
    reward: 0             # one rank on device 0
    actor: [[4, 5], 6-7]  # a list: one rank an entry, here two ranks of two devices each
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import yaml

from rlinf_cli.errors import CapacityError, UsageError, did_you_mean

Ranks = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class RoleSpec:
    """A role, and how many ranks it can have: `all`: one a device, or as the placement says; `one`; or a number."""

    name: str
    ranks: Literal["all", "one"] | int = "all"

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
    name: str = field(default="custom", compare=False)

    def __getitem__(self, role: str) -> Ranks:
        return self.ranks[role]

    def __iter__(self) -> Iterator[str]:
        return iter(self.ranks)

    def __len__(self) -> int:
        return len(self.ranks)

    def devices(self, role: str) -> tuple[int, ...]:
        """The devices of a role, each once, in ascending order."""
        return tuple(sorted({device for rank in self.ranks[role] for device in rank}))

    def to_yaml(self) -> str:
        """The text of a placement file that loads to this placement."""
        lines = [f"{role}: [{', '.join(str(list(rank)) for rank in ranks)}]" for role, ranks in self.ranks.items()]
        return "\n".join([f"# {describe(self)}", *lines, ""])


def temporal(roles: Sequence[RoleSpec], devices: int, kind: str = "") -> Placement:
    """All roles take turns on all devices. Raises CapacityError when a role has more ranks than there are devices."""
    return Placement({role.name: _one_a_device(role, devices) for role in roles}, kind, "temporal")


def load_placement(path: Path, roles: Sequence[RoleSpec], devices: int, kind: str = "") -> Placement:
    """The placement that a file holds.

    Raises UsageError when it is no such file, names a role twice, not at all, or one that does not exist, or gives it
    ranks it cannot have; CapacityError when it names more devices than there are.
    """
    given = dict(_entries(path))
    names = [role.name for role in roles]
    for name in given:
        if name not in names:
            hint = did_you_mean(name, names) or f"; the roles are {', '.join(names)}"
            raise UsageError(f"{path}: there is no role '{name}'{hint}")
    return Placement({role.name: _ranks(path, role, given, devices) for role in roles}, kind)


def describe(placement: Placement) -> str:
    """One line: `temporal: rollout, reward, actor share cpu:0-1`, `custom: rollout | actor on cpu:0 | cpu:1`."""
    roles: dict[tuple[int, ...], list[str]] = {}
    for role in placement:
        devices = placement.devices(role)
        roles.setdefault(devices, []).append(role)
    everything = tuple(sorted({device for devices in roles for device in devices}))
    if placement.name == "temporal" or len(roles) == 1:
        return f"{placement.name}: {', '.join(placement)} share {_label(placement.kind, everything)}"
    left = " | ".join(", ".join(names) for names in roles.values())
    return f"{placement.name}: {left} on {' | '.join(_label(placement.kind, devices) for devices in roles)}"


def _one_a_device(role: RoleSpec, devices: int) -> Ranks:
    count = devices if role.count is None else role.count
    if count > devices:
        raise CapacityError(f"role '{role.name}' has {count} ranks and each needs a device, but there are {devices}: "
                            f"raise cluster.devices to {count}")
    return tuple((device,) for device in range(count))


def _entries(path: Path) -> Iterator[tuple[str, yaml.Node]]:
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"placement={path}: cannot be read: {reason}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"placement={path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(root, yaml.MappingNode):
        raise UsageError(f"placement={path}: a mapping from role to devices is needed, as in 'rollout: 0-1'")
    seen: set[str] = set()
    for key, value in root.value:
        if key.value in seen:
            raise UsageError(f"{path}:{key.start_mark.line + 1}: role '{key.value}' is there twice: keep one of them")
        seen.add(key.value)
        yield key.value, value


def _ranks(path: Path, role: RoleSpec, given: Mapping[str, yaml.Node], devices: int) -> Ranks:
    if role.name not in given:
        raise UsageError(f"{path}: role '{role.name}' has no devices: add a line '{role.name}: 0'")
    node = given[role.name]
    where = f"{path}:{node.start_mark.line + 1}: role '{role.name}'"
    ranks = _read(node, where, devices)
    for number, rank in enumerate(ranks):
        _check(f"{where}, rank {number}", rank)
    if role.count not in (None, len(ranks)):
        raise UsageError(f"{where} runs on {role.count} rank{'s' * (role.count != 1)}, but has {len(ranks)} here")
    return ranks


def _read(node: yaml.Node, where: str, devices: int) -> Ranks:
    """A scalar is one rank a device; a list is one rank an entry."""
    if isinstance(node, yaml.SequenceNode):
        ranks = tuple(_rank(entry, where, devices) for entry in node.value)
    elif isinstance(node, yaml.ScalarNode):
        ranks = tuple((device,) for device in _range(node.value, where, devices))
    else:
        raise UsageError(f"{where}: write devices, as in 0-1 or [[0, 1], [2, 3]]")
    if not ranks:
        raise UsageError(f"{where} has no rank: give it a device, as in 0")
    return ranks


def _rank(node: yaml.Node, where: str, devices: int) -> tuple[int, ...]:
    if isinstance(node, yaml.SequenceNode) and all(isinstance(entry, yaml.ScalarNode) for entry in node.value):
        return tuple(device for entry in node.value for device in _range(entry.value, where, devices))
    if isinstance(node, yaml.ScalarNode):
        return tuple(_range(node.value, where, devices))
    raise UsageError(f"{where}: a rank is a device or a list of devices, as in [[0, 1], [2, 3]]")


def _range(text: str, where: str, devices: int) -> list[int]:
    """`0-2,4` -> 0, 1, 2, 4."""
    found: list[int] = []
    for part in text.replace(" ", "").split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise UsageError(f"{where}: '{text}' is no device or range of devices: write 0, 0-3 or 0,2")
        first, last = int(match[1]), int(match[2] or match[1])
        if last >= devices:
            there = "is only device 0" if devices == 1 else f"are only devices 0 to {devices - 1}"
            raise CapacityError(f"{where} is placed on device {last}, but there {there}: raise cluster.devices, or "
                                "place it on those")
        found.extend(range(first, last + 1))
    return found


def _check(where: str, rank: tuple[int, ...]) -> None:
    if not rank:
        raise UsageError(f"{where} has no device: give it one, as in [0]")
    if len(set(rank)) < len(rank):
        raise UsageError(f"{where} names a device twice: {list(rank)}")


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
