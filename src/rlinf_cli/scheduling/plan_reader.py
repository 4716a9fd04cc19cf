"""Reading the YAML of a plan file, with the line of whatever is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import yaml

from rlinf_cli.errors import UsageError, did_you_mean
from rlinf_cli.scheduling.plan import Prediction
from rlinf_cli.scheduling.tree import Tree, parse

Ranks: TypeAlias = tuple[tuple[int, ...], ...]


def root_of(path: Path) -> yaml.MappingNode:
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"plan {path} cannot be read: {reason}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"plan {path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(root, yaml.MappingNode):
        raise UsageError(f"{path} is no plan: a mapping with a 'tree' is needed, as `rlinf plan --out` writes it")
    return root


def entries_of(node: yaml.MappingNode, path: Path, keys: Sequence[str],
               prefix: str = "") -> Iterator[tuple[str, tuple[yaml.Node, yaml.Node]]]:
    """Key -> nodes; those of a mapping in it too, as `roles.actor`."""
    seen = set()
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        if name in seen:
            raise UsageError(f"{path}:{key.start_mark.line + 1}: '{name}' is there twice: keep one of them")
        if not prefix and name not in keys:
            raise UsageError(f"{path}:{key.start_mark.line + 1}: there is no '{name}' in a plan{did_you_mean(name, keys)}; "
                             f"it has {', '.join(keys)}")
        seen.add(name)
        yield name, (key, value)
        if name in ("roles", "chunk") and isinstance(value, yaml.MappingNode):
            yield from entries_of(value, path, keys, f"{name}.")


class Reader:
    """Values of a plan file, or a sentence about them."""

    def __init__(self, path: Path, nodes: Mapping[str, yaml.Node], lines: Mapping[str, int]) -> None:
        self._path, self._nodes, self._lines = path, nodes, lines

    def tree(self) -> Tree:
        if "tree" not in self._nodes:
            raise UsageError(f"{self._path} is no plan: it has no 'tree', as in 'tree: rollout 1 | actor 1'")
        try:
            return parse(self.string("tree"))
        except ValueError as error:
            raise self._wrong("tree", f"{error} (as in 'rollout 2 | (reference 1, actor 1)')") from error

    def string(self, key: str) -> str:
        node = self._nodes.get(key)
        if node is None:
            return ""
        if not isinstance(node, yaml.ScalarNode):
            raise self._wrong(key, "a text is needed here")
        return str(node.value)

    def number(self, key: str, default: int, least: int = 0) -> int:
        words = self.string(key)
        if not words:
            return default
        if not (words.isascii() and words.isdigit()) or int(words) < least:
            raise self._wrong(key, f"'{words}' is no whole number from {least}")
        return int(words)

    def chunk(self) -> dict[str, int]:
        return {key.partition(".")[2]: self.number(key, 1, 1) for key in self._inside("chunk")}

    def roles(self) -> dict[str, Ranks]:
        return {key.partition(".")[2]: tuple(self._ranks(key)) for key in self._inside("roles")}

    def prediction(self) -> Prediction | None:
        """Only what is compared with: a prediction is made anew from the profile."""
        node = self._nodes.get("prediction")
        seconds = [value for key, value in node.value if key.value == "step_s"] if isinstance(node, yaml.MappingNode) else []
        try:
            return Prediction(float(seconds[0].value)) if seconds else None
        except (TypeError, ValueError) as error:
            raise self._wrong("prediction", "step_s is no number of seconds") from error

    def _inside(self, key: str) -> list[str]:
        node = self._nodes.get(key)
        if node is not None and not isinstance(node, yaml.MappingNode):
            raise self._wrong(key, "a mapping from role is needed here")
        return [name for name in self._nodes if name.startswith(f"{key}.")]

    def _ranks(self, key: str) -> Iterator[tuple[int, ...]]:
        node = self._nodes[key]
        if isinstance(node, yaml.ScalarNode):
            yield from self._of_a_size(key, node)
            return
        for entry in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            yield tuple(device for one in (entry.value if isinstance(entry, yaml.SequenceNode) else [entry])
                        for device in self._devices(key, one))

    def _of_a_size(self, key: str, node: yaml.ScalarNode) -> Iterator[tuple[int, ...]]:
        """`0-7 by 2`: four ranks of two devices."""
        words, by, size = str(node.value).partition(" by ")
        devices = list(self._devices(key, yaml.ScalarNode(node.tag, words)))
        unit = int(size) if by and size.strip().isdigit() else 1
        if by and (not size.strip().isdigit() or not unit or len(devices) % unit):
            raise self._wrong(key, f"'{node.value}' are no ranks of equal size: write devices and how many a rank has, as in "
                                   "0-7 by 2")
        yield from (tuple(devices[first:first + unit]) for first in range(0, len(devices), unit))

    def _devices(self, key: str, node: yaml.Node) -> Iterator[int]:
        words = str(node.value) if isinstance(node, yaml.ScalarNode) else "a mapping"
        for part in words.replace(" ", "").split(","):
            match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", part)
            if match is None or int(match[2] or match[1]) < int(match[1]):
                raise self._wrong(key, f"'{part}' is no device or range of devices: write 0, 0-3 or 0,2")
            yield from range(int(match[1]), int(match[2] or match[1]) + 1)

    def _wrong(self, key: str, what: str) -> UsageError:
        return UsageError(f"{self._path}:{self._lines[key]}: {key}: {what}")
