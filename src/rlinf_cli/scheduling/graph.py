"""The stage graph of a workflow, from the calls that one of its steps issued: who makes what whom works on.

Declared ports say which channels a call takes from and puts into; who shares a channel is joined by an edge. Roles that pass
items around in a circle cannot be placed one after the other: they are one node, and are measured as one. New weights are
edges of their own, from one step to the next, and make no circle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

DRIVER = "driver"
"""Whoever runs the workflow: it may put into channels and take from them as it likes."""


@dataclass(frozen=True)
class Called:
    """A call as it was issued. `ins`, `outs`: names of the channels that it was given for its ports · `groups`: roles that it
    was given to call itself. A call without channels brings them weights; one with channels works with them, in a circle."""

    role: str
    method: str
    ins: tuple[str, ...] = ()
    outs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ends:
    """The roles at both ends of a channel, as declared."""

    producers: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Node:
    """A stage: a role, or several that pass items around in a circle."""

    roles: tuple[str, ...]

    @property
    def name(self) -> str:
        return "+".join(self.roles)


@dataclass(frozen=True)
class Graph:
    """`nodes`: producers first, otherwise in the order of their first calls · `edges`: (producer, consumer), by role, those
    within a node included · `publications`: (from, to), of weights."""

    nodes: tuple[Node, ...]
    edges: tuple[tuple[str, str], ...] = ()
    publications: tuple[tuple[str, str], ...] = ()
    channels: Mapping[str, Ends] = field(default_factory=dict)

    def node(self, role: str) -> Node:
        return next(node for node in self.nodes if role in node.roles)

    def after(self, node: Node) -> tuple[str, ...]:
        """Names of the nodes whose items it takes."""
        found = (self.node(producer) for producer, consumer in self.edges if consumer in node.roles)
        return tuple(dict.fromkeys(one.name for one in found if one != node))


def graph_of(calls: Iterable[Called]) -> Graph:
    """The graph of a step. Calls of a role are one node, however many channels they have."""
    issued = list(calls)
    channels = _channels(issued)
    roles = list(dict.fromkeys(role for call in issued for role in (call.role, *call.groups)))
    edges = tuple(dict.fromkeys([*_along(channels.values()), *_circles(issued)]))
    published = dict.fromkeys((call.role, target) for call in issued for target in call.groups if not call.ins + call.outs)
    return Graph(condense(roles, edges), edges, tuple(published), channels)


def condense(roles: Sequence[str], edges: Collection[tuple[str, str]]) -> tuple[Node, ...]:
    """Roles that can be reached from each other as one node; producers first."""
    reached = {role: _reached(role, edges) for role in roles}
    nodes = tuple(dict.fromkeys(
        Node(tuple(other for other in roles if other == role or (other in reached[role] and role in reached[other])))
        for role in roles))
    return tuple(_ordered(nodes, edges))


def _channels(calls: Sequence[Called]) -> dict[str, Ends]:
    names = dict.fromkeys(name for call in calls for name in (*call.ins, *call.outs))
    return {name: Ends(tuple(dict.fromkeys(call.role for call in calls if name in call.outs)),
                       tuple(dict.fromkeys(call.role for call in calls if name in call.ins))) for name in names}


def _along(channels: Iterable[Ends]) -> Iterator[tuple[str, str]]:
    for ends in channels:
        yield from ((producer, consumer) for producer in ends.producers for consumer in ends.consumers if producer != consumer)


def _circles(calls: Iterable[Called]) -> Iterator[tuple[str, str]]:
    """Who asks another role, and waits for its answers, in the midst of its own items."""
    for call in calls:
        for target in call.groups if call.ins + call.outs else ():
            yield from ((call.role, target), (target, call.role))


def _reached(role: str, edges: Collection[tuple[str, str]]) -> set[str]:
    found: set[str] = set()
    fresh = {role}
    while fresh:
        fresh = {consumer for producer, consumer in edges if producer in fresh} - found
        found |= fresh
    return found


def _ordered(nodes: Sequence[Node], edges: Collection[tuple[str, str]]) -> Iterator[Node]:
    left = list(nodes)
    while left:
        waiting = {role for node in left for role in node.roles}
        ready = next(node for node in left
                     if not any(consumer in node.roles and producer in waiting and producer not in node.roles
                                for producer, consumer in edges))
        left.remove(ready)
        yield ready


# ---- what was declared, beside what flowed ----


@dataclass(frozen=True)
class Flowed:
    """Of a channel: items that each process put and took, by its role, or its roles joined by `+`."""

    put: Mapping[str, int] = field(default_factory=dict)
    taken: Mapping[str, int] = field(default_factory=dict)


def verify(graph: Graph, flowed: Mapping[str, Flowed]) -> list[str]:
    """Where a step's items flowed otherwise than its calls declare, a sentence each. `flowed`: by channel; one that is not in it
    was not looked at."""
    return [sentence for channel, found in flowed.items()
            for sentence in _differences(channel, graph.channels.get(channel, Ends()), found)]


def _differences(channel: str, ends: Ends, found: Flowed) -> Iterator[str]:
    total = sum(found.put.values())
    for role in ends.producers:
        if not _of(role, found.put):
            yield f"{role} declares that it puts into '{channel}', but put nothing there"
    for role in ends.consumers if total else ():
        if not _of(role, found.taken):
            yield f"{role} declares that it takes from '{channel}', but took none of {_items(total)}"
    yield from _undeclared(found.put, ends.producers, f"put into '{channel}'", "Out")
    yield from _undeclared(found.taken, ends.consumers, f"took from '{channel}'", "In")


def _undeclared(counts: Mapping[str, int], declared: Collection[str], did: str, port: str) -> Iterator[str]:
    for process, count in counts.items():
        roles = process.split("+")
        if count and process != DRIVER and not set(roles) & set(declared):
            yield (f"{process} {did} ({_items(count)}), which no method that was called declares: annotate the argument with "
                   f"{port}[...], or the plan does not know of it")


def _of(role: str, counts: Mapping[str, int]) -> int:
    return sum(count for process, count in counts.items() if role in process.split("+"))


def _items(count: int) -> str:
    return "1 item" if count == 1 else f"{count} items"
