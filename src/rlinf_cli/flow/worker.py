"""What runs in the ranks of a role: a plain class, written as if it ran alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rlinf_cli.flow.ports import ports

Method = TypeVar("Method", bound=Callable[..., Any])

_CONTROL, _CONCURRENT, _ON_DEVICE = "__rlinf_control__", "__rlinf_concurrent__", "__rlinf_on_device__"
_PRIVATE = ("close",)
"""Called by the host, never through a group."""


class Worker:
    """Base of all workers. Public methods are called through a `Group`, one at a time in order of submission.

    The attributes below are there before `__init__` runs.
    """

    role: str
    rank: int
    world: int
    """Ranks of this role."""
    device: str
    """`cpu` or `cuda:0`, the first of the rank's devices."""
    node: str
    devices: tuple[int, ...]
    """The rank's devices, as placements number them; in CUDA they are `cuda:0`, `cuda:1`, ..."""
    run_directory: Path
    init_method: str
    """`tcp://HOST:PORT` where the ranks of this role can meet; empty when there is but one."""

    def onload(self) -> int:
        """Bring what the methods need onto the devices; the bytes that were moved."""
        return 0

    def offload(self) -> int:
        """Free the devices' memory, as configured; the bytes that are free now. Called between two calls `on_device`, when
        another role waits for the devices."""
        return 0

    def close(self) -> None:
        """The last call: end processes, close files."""


def control(method: Method) -> Method:
    """Mark a method that runs beside the current call, in a thread of its own: abort, pause, update_weights.

    Control calls of a caller run one at a time in order of submission.
    """
    setattr(method, _CONTROL, True)
    return method


def concurrent(method: Method) -> Method:
    """Mark a method whose calls run beside each other, each in a thread of its own, those issued first beginning first."""
    setattr(method, _CONCURRENT, True)
    return method


def on_device(method: Method) -> Method:
    """Mark a method that computes on the rank's devices: where they are shared with other roles, it runs only while its
    group holds them, and what the worker needs is on them then."""
    setattr(method, _ON_DEVICE, True)
    return method


@dataclass(frozen=True)
class MethodSpec:
    """What a group needs to know of a method; can be sent where the worker's class cannot be imported."""

    name: str
    control: bool
    concurrent: bool
    on_device: bool
    ins: tuple[str, ...]
    """Arguments that are channels the method takes from."""
    outs: tuple[str, ...]
    """Arguments that are channels the method puts into."""
    signature: inspect.Signature
    """Without `self`, annotations and the values of defaults."""


def methods(worker: type[Worker]) -> dict[str, MethodSpec]:
    """The methods of a worker that a group can call."""
    members = {name: inspect.getattr_static(worker, name) for name in dir(worker)}
    return {name: _spec(name, member) for name, member in members.items()
            if inspect.isfunction(member) and not name.startswith("_") and name not in _PRIVATE}


def _spec(name: str, method: Callable[..., Any]) -> MethodSpec:
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty,
                          default=parameter.default if parameter.default is inspect.Parameter.empty else None)
        for parameter in list(inspect.signature(method).parameters.values())[1:]]
    ins, outs = (tuple(argument for argument, port in ports(method).items() if port.direction == direction)
                 for direction in ("in", "out"))
    is_control, is_concurrent, is_on_device = (getattr(method, mark, False) for mark in (_CONTROL, _CONCURRENT, _ON_DEVICE))
    return MethodSpec(name, is_control, is_concurrent, is_on_device, ins, outs, inspect.Signature(parameters))
