"""Where the time of a step goes, device by device. Pure: from what the calls say, in one clock.

At every instant a device is in one state: a role on it computes, or else the first of `WAITS` that is true of a call on
it, or else it is idle. So the states' seconds are the step's, whatever runs beside what.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from rlinf_cli.flow.timeline import Call, Kind

WAITS: tuple[Kind, ...] = ("sync", "onload", "offload", "wait_lock", "wait_space", "wait_data")
"""What a device does where nothing on it computes, the more telling first."""

STATES = (*WAITS, "idle")
"""All states besides computing, which is called as the role that computes."""

DeviceTime: TypeAlias = dict[str, float]
"""State -> seconds."""

_WAITING = -1
_Change: TypeAlias = tuple[float, str, int, int]
"""Time, state, the rank that computes (or _WAITING), and 1 for its begin or -1 for its end."""


@dataclass(frozen=True)
class Placed:
    """A call, and the devices of its rank."""

    call: Call
    devices: tuple[int, ...]


@dataclass(frozen=True)
class StepTime:
    """Where the time of a step went: its begin and end on the driver's `time.monotonic`, and each device's states."""

    began: float
    ended: float
    calls: Sequence[Placed]
    devices: Mapping[int, DeviceTime]
    opened: float = math.inf
    """When its first call could be issued, where that was before `began`: while the step before was under way."""

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    def metrics(self) -> dict[str, float]:
        """`timing/step_s`, and its parts as means over the devices."""
        means = {f"timing/{state}_s": value for state, value in mean(list(self.devices.values())).items()}
        return {"timing/step_s": self.seconds, **means}


def break_down(calls: Sequence[Placed], devices: Iterable[int], began: float, ended: float) -> StepTime:
    """Where the time of these devices went between two times. Where several ranks compute at once they share the time."""
    changes: dict[int, list[_Change]] = {device: [] for device in sorted(devices)}
    roles: dict[int, dict[str, None]] = {device: {} for device in changes}
    for placed in calls:
        found = list(_changes(placed.call, began, ended))
        for device in placed.devices if found else ():
            changes[device] += found
            roles[device][placed.call.role] = None
    return StepTime(began, ended, calls,
                    {device: _sweep(found, list(roles[device]), began, ended) for device, found in changes.items()})


def step_time(own: Sequence[Placed], others: Sequence[Placed], devices: Iterable[int], opened: float, before: float,
              now: float) -> StepTime:
    """Of a step whose own calls have all ended. Steps that are under way at once share the time that goes by, so each has what
    lies between the end of the step before it and its own: none is counted twice, and none is left out.

    `others`: calls of later steps, ended or under way (as if they ended now) · `opened`: when the step could begin ·
    `before`: when the step before it ended. `calls` of the result are those that ended in this time.
    """
    began = max(opened, before)
    last = max((_end(placed) for placed in own), default=now)
    ended = last if others and began < last < now else now
    calls = list({_key(placed): placed for placed in [*others, *own]}.values())
    seen = [placed for placed in calls if began < _end(placed) and (_end(placed) <= ended or not others)]
    return replace(break_down(calls, devices, began, ended), calls=seen, opened=opened)


def mean(times: Sequence[Mapping[str, float]]) -> DeviceTime:
    """Of several devices or steps: roles first, then the other states."""
    roles = dict.fromkeys(state for one in times for state in one if state not in STATES)
    return {state: sum(one.get(state, 0.0) for one in times) / len(times) for state in (*roles, *STATES)} if times else {}


def pieces(call: Call) -> Iterator[tuple[float, float, Kind | None]]:
    """A call from its begin to its end: times, and the kind of waiting; None where it computes."""
    at = began = call.timing.began
    for start, end, kind in call.timing.spans:
        yield at, began + start, None
        yield began + start, began + end, kind
        at = began + end
    yield at, began + call.timing.total, None


def _end(placed: Placed) -> float:
    return placed.call.timing.began + placed.call.timing.total


def _key(placed: Placed) -> tuple[str, int, str, float]:
    """A call that was asked about may have answered meanwhile; clocks of other nodes are rounded."""
    call = placed.call
    return call.role, call.rank, call.method, round(call.timing.began, 4)


def _changes(call: Call, began: float, ended: float) -> Iterator[_Change]:
    for start, end, kind in pieces(call):
        start, end = max(start, began), min(end, ended)
        if start < end:
            rank = call.rank if kind is None else _WAITING
            yield start, kind or call.role, rank, 1
            yield end, kind or call.role, rank, -1


def _sweep(changes: list[_Change], roles: Sequence[str], began: float, ended: float) -> DeviceTime:
    seconds = dict.fromkeys((*roles, *STATES), 0.0)
    counts: Counter[tuple[str, int]] = Counter()
    now = began
    for at, state, rank, change in sorted(changes):
        if at > now:
            _charge(seconds, counts, at - now)
            now = at
        counts[state, rank] += change
    _charge(seconds, counts, ended - now)
    return seconds


def _charge(seconds: DeviceTime, counts: Mapping[tuple[str, int], int], length: float) -> None:
    active = [key for key, count in counts.items() if count]
    computing = [role for role, rank in active if rank != _WAITING]
    if computing:
        for role in computing:
            seconds[role] += length / len(computing)
    else:
        waiting = {kind for kind, _ in active}
        seconds[next((kind for kind in WAITS if kind in waiting), "idle")] += length
