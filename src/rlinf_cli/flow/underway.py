"""What all ranks are at, asked of their processes while their calls go on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ray

from rlinf_cli.flow.client import client
from rlinf_cli.flow.timeline import CLOCK, Call

if TYPE_CHECKING:
    from rlinf_cli.flow.group import Group

_PATIENCE_S = 5.0
"""Processes that do not say in time are left out."""


def under_way(groups: Iterable[Group]) -> list[Call]:
    """Calls so far, as if they ended now, and calls that ended within the last moments, in this machine's `time.monotonic`."""
    known = {group.role: group for group in groups}
    hosts = {group.actors[rank]: group.seats[rank].node for group in known.values() for rank in group.present}
    asked = {host.running.options(concurrency_group="host").remote(): node for host, node in hosts.items()}
    said = ray.wait(list(asked), num_returns=len(asked), timeout=_PATIENCE_S)[0] if asked else []
    return [_marked(call, known) for ref in said for call in _said(ref, asked[ref]) if call.role in known]


def _said(ref: Any, node: str) -> Iterator[Call]:
    with contextlib.suppress(ray.exceptions.RayError):  # it has died: whoever waits for it is told
        clock, packed = ray.get(ref)
        shift = 0.0 if node == client().node else clock - CLOCK
        yield from (one for sent in packed for one in Call.unpack(sent).shifted(shift).everything())


def _marked(call: Call, groups: dict[str, Group]) -> Call:
    """A process does not know which of its calls are control calls."""
    spec = groups[call.role].methods.get(call.method)
    return replace(call, beside=spec is not None and spec.control)
