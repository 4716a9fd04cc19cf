"""Where the time of a step goes, device by device. Pure: from what the calls say, in one clock.

At every instant a device is in one state: a role on it computes, or else the first of `WAITS` that is true of a call on
it, or else it is idle. So the states' seconds are the step's, whatever runs beside what.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rlinf_cli.flow.timeline import Call, Kind

WAITS: tuple[Kind, ...] = ("sync", "onload", "offload", "wait_lock", "wait_space", "wait_data")
"""What a device does where nothing on it computes, the more telling first."""

STATES = (*WAITS, "idle")
"""All states besides computing, which is called as the role that computes."""

DeviceTime: TypeAlias = dict[str, float]
"""State -> seconds."""

_Change: TypeAlias = tuple[float, str, bool, int]
"""Time, state, whether it is computing, and 1 for its begin or -1 for its end."""


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

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    def metrics(self) -> dict[str, float]:
        """`timing/step_s`, and its parts as means over the devices."""
        means = {f"timing/{state}_s": value for state, value in mean(list(self.devices.values())).items()}
        return {"timing/step_s": self.seconds, **means}


def break_down(calls: Sequence[Placed], devices: Iterable[int], began: float, ended: float) -> StepTime:
    """Where the time of these devices went between two times. Where several calls compute at once they share the time."""
    changes: dict[int, list[_Change]] = {device: [] for device in sorted(devices)}
    roles: dict[int, dict[str, None]] = {device: {} for device in changes}
    for placed in calls:
        found = list(_changes(placed.call, began, ended))
        for device in placed.devices if found else ():
            changes[device] += found
            roles[device][placed.call.role] = None
    return StepTime(began, ended, calls,
                    {device: _sweep(found, list(roles[device]), began, ended) for device, found in changes.items()})


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


def _changes(call: Call, began: float, ended: float) -> Iterator[_Change]:
    for start, end, kind in pieces(call):
        start, end = max(start, began), min(end, ended)
        if start < end:
            yield start, kind or call.role, kind is None, 1
            yield end, kind or call.role, kind is None, -1


def _sweep(changes: list[_Change], roles: Sequence[str], began: float, ended: float) -> DeviceTime:
    seconds = dict.fromkeys((*roles, *STATES), 0.0)
    computing: dict[str, int] = {}
    waiting: dict[str, int] = {}
    now = began
    for at, state, computes, change in sorted(changes):
        if at > now:
            _charge(seconds, computing, waiting, at - now)
            now = at
        counts = computing if computes else waiting
        counts[state] = counts.get(state, 0) + change
    _charge(seconds, computing, waiting, ended - now)
    return seconds


def _charge(seconds: DeviceTime, computing: Mapping[str, int], waiting: Mapping[str, int], length: float) -> None:
    total = sum(computing.values())
    if total:
        for role, count in computing.items():
            seconds[role] += length * count / total
    else:
        seconds[next((kind for kind in WAITS if waiting.get(kind)), "idle")] += length
