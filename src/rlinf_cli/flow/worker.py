"""What runs in the ranks of a role: a plain class, written as if it ran alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rlinf_cli.flow.ports import ports

Method = TypeVar("Method", bound=Callable[..., Any])

_CONTROL = "__rlinf_control__"
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

    def onload(self) -> None:
        """Bring what the methods need onto the devices."""

    def offload(self) -> None:
        """Free the devices' memory."""

    def close(self) -> None:
        """The last call: end processes, close files."""


def control(method: Method) -> Method:
    """Mark a method that runs beside the current call, in a thread of its own: abort, pause, update_weights.

    Control calls of a caller run one at a time in order of submission.
    """
    setattr(method, _CONTROL, True)
    return method


@dataclass(frozen=True)
class MethodSpec:
    """What a group needs to know of a method; can be sent where the worker's class cannot be imported."""

    name: str
    control: bool
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
    outs = tuple(argument for argument, port in ports(method).items() if port.direction == "out")
    return MethodSpec(name, getattr(method, _CONTROL, False), outs, inspect.Signature(parameters))
