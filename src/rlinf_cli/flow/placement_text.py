"""Placements as people write them: a file, or a text of one line.

A placement file is a YAML mapping from role to ranks; two more keys are optional::

    rollout: 0-3                             # a device, a range or several of both (0-1,3): one rank on each
    reward: 0                                # one rank on device 0
    actor: [[4, 5], 6-7]                     # a list: one rank an entry, here two ranks of two devices each
    fused: [[rollout, reference]]            # roles that share their processes: they have the same ranks
    granularity: {reward: 4-64, actor: 1-8}  # fewest and most items of a chunk that a role takes

A line is `ROLES:DEVICES,ROLES:DEVICES,...`: `+` joins what belongs together, roles or devices, as in
`rollout+reward:0-2,actor:3+5`. Each role has one rank on each of the devices; one that has a single rank, on the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from rlinf_cli.errors import CapacityError, UsageError, did_you_mean
from rlinf_cli.flow.placement import Bounds, Placement, Ranks, RoleSpec, fixed_of

FUSED, GRANULARITY = "fused", "granularity"
"""Keys of a file that are no roles."""


def is_file(text: str) -> bool:
    """Whether a placement is written in a file of this name."""
    return text.endswith((".yaml", ".yml", ".json"))


def is_line(text: str) -> bool:
    """Whether a placement is meant to be this text."""
    return ":" in text


def load_placement(path: Path, roles: Sequence[RoleSpec], devices: int, kind: str = "") -> Placement:
    """The placement that a file holds.

    Raises UsageError when it is no such file, names a role twice, not at all, or one that does not exist, gives it ranks it
    cannot have, or fuses roles of different ranks; CapacityError when it names more devices than there are.
    """
    given = dict(_entries(path))
    fused, granularity = given.pop(FUSED, None), given.pop(GRANULARITY, None)
    names = [role.name for role in roles]
    _check_names(str(path), given, names, (FUSED, GRANULARITY))
    ranks = {role.name: _ranks(path, role, given, devices) for role in roles}
    together = () if fused is None else tuple(_fused(_at(path, fused), fused, ranks))
    bounds = {} if granularity is None else dict(_bounds(_at(path, granularity), granularity, roles))
    return Placement(ranks, kind, together, bounds, fixed_of(roles))


def parse_placement(text: str, roles: Sequence[RoleSpec], devices: int, kind: str = "") -> Placement:
    """The placement that a line stands for. Raises as `load_placement`."""
    where = f"placement={text}"
    given: dict[str, list[int]] = {}
    for entry in text.split(","):
        named, colon, numbers = entry.partition(":")
        if not colon:
            raise UsageError(f"{where}: '{entry}' is no ROLES:DEVICES (roles of an entry, and devices, are joined by +, as in "
                             "rollout+reward:0-1+3,actor:2)")
        for name in named.split("+"):
            if name in given:
                raise UsageError(f"{where}: role '{name}' is there twice: keep one of them")
            given[name] = _range(numbers, f"{where}: role '{name}'", devices, "+")
    _check_names(where, given, [role.name for role in roles])
    for role in roles:
        if role.name not in given:
            raise UsageError(f"{where}: role '{role.name}' has no devices: add ,{role.name}:0")
    return Placement({role.name: _first(where, role, given[role.name]) for role in roles}, kind, fixed=fixed_of(roles))


def _first(where: str, role: RoleSpec, devices: Sequence[int]) -> Ranks:
    """A rank on each of the devices, or on as many as the role has ranks."""
    ranks = tuple((device,) for device in devices[: role.count])
    _check_count(f"{where}: role '{role.name}'", role, ranks)
    return ranks


def _check_names(where: str, given: Iterable[str], names: Sequence[str], others: Sequence[str] = ()) -> None:
    for name in given:
        if name not in names:
            hint = did_you_mean(name, [*names, *others]) or f"; the roles are {', '.join(names)}"
            raise UsageError(f"{where}: there is no role '{name}'{hint}")


def _check_count(where: str, role: RoleSpec, ranks: Ranks) -> None:
    if role.count not in (None, len(ranks)):
        raise UsageError(f"{where} runs on {role.count} rank{'s' * (role.count != 1)}, but has {len(ranks)} here")


# ---- files ----


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


def _at(path: Path, node: yaml.Node) -> str:
    return f"{path}:{node.start_mark.line + 1}"


def _ranks(path: Path, role: RoleSpec, given: Mapping[str, yaml.Node], devices: int) -> Ranks:
    if role.name not in given:
        raise UsageError(f"{path}: role '{role.name}' has no devices: add a line '{role.name}: 0'")
    node = given[role.name]
    where = f"{_at(path, node)}: role '{role.name}'"
    ranks = _read(node, where, devices)
    for number, rank in enumerate(ranks):
        _check_rank(f"{where}, rank {number}", rank)
    _check_count(where, role, ranks)
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


def _range(text: str, where: str, devices: int, separator: str = ",") -> list[int]:
    """`0-2,4` -> 0, 1, 2, 4."""
    found: list[int] = []
    for part in text.replace(" ", "").split(separator):
        match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise UsageError(f"{where}: '{text}' is no device or range of devices: write 0, 0-3 or 0{separator}2")
        first, last = int(match[1]), int(match[2] or match[1])
        if last >= devices:
            there = "is only device 0" if devices == 1 else f"are only devices 0 to {devices - 1}"
            raise CapacityError(f"{where} is placed on device {last}, but there {there}: raise cluster.devices, or "
                                "place it on those")
        found.extend(range(first, last + 1))
    return found


def _check_rank(where: str, rank: tuple[int, ...]) -> None:
    if not rank:
        raise UsageError(f"{where} has no device: give it one, as in [0]")
    if len(set(rank)) < len(rank):
        raise UsageError(f"{where} names a device twice: {list(rank)}")


def _fused(where: str, node: yaml.Node, ranks: Mapping[str, Ranks]) -> Iterator[tuple[str, ...]]:
    groups = [_names(where, entry) for entry in node.value] if isinstance(node, yaml.SequenceNode) else []
    if not groups:
        raise UsageError(f"{where}: fused is a list of lists of roles, as in [[rollout, actor]]")
    seen: set[str] = set()
    for group in groups:
        _check_names(f"{where}: fused", group, list(ranks))
        for name in group:
            if name in seen:
                raise UsageError(f"{where}: fused names role '{name}' twice: a role is in one process")
            if ranks[name] != ranks[group[0]]:
                raise UsageError(f"{where}: fused roles run on the same ranks, but '{group[0]}' on {_shown(ranks[group[0]])} "
                                 f"and '{name}' on {_shown(ranks[name])}")
            seen.add(name)
        yield tuple(name for name in ranks if name in group)  # in the order of the workflow


def _names(where: str, node: yaml.Node) -> list[str]:
    if isinstance(node, yaml.SequenceNode) and all(isinstance(entry, yaml.ScalarNode) for entry in node.value):
        names = [entry.value for entry in node.value]
        if len(names) > 1:
            return names
    raise UsageError(f"{where}: fused is a list of lists of two roles or more, as in [[rollout, actor]]")


def _shown(ranks: Ranks) -> str:
    return str([list(rank) for rank in ranks])


def _bounds(where: str, node: yaml.Node, roles: Sequence[RoleSpec]) -> Iterator[tuple[str, Bounds]]:
    if not isinstance(node, yaml.MappingNode):
        raise UsageError(f"{where}: granularity is a mapping from role to the items of a chunk, as in {{reward: 4-64}}")
    chunked = [role.name for role in roles if role.chunked]
    for key, value in node.value:
        _check_names(f"{where}: granularity", [key.value], [role.name for role in roles])
        if key.value not in chunked:
            raise UsageError(f"{where}: role '{key.value}' takes no chunks, so it has no granularity (those that do: "
                             f"{', '.join(chunked) or 'none'})")
        yield key.value, _items(f"{where}: granularity of '{key.value}'", value)


def _items(where: str, node: yaml.Node) -> Bounds:
    """`4-64` -> (4, 64); `8` -> (8, 8)."""
    match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", node.value) if isinstance(node, yaml.ScalarNode) else None
    low, high = (0, 0) if match is None else (int(match[1]), int(match[2] or match[1]))
    if not 1 <= low <= high:
        raise UsageError(f"{where} is a number of items or a range of them, 1 or more, as in 8 or 4-64")
    return low, high
