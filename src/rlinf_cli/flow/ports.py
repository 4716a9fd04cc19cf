"""What a worker's method takes from and puts into channels, declared where it is defined::

    def generate(self, prompts: In[Prompt], samples: Out[Sample]) -> None: ...

Known from the class alone, so the graph can be drawn, and the end of each producer be told, before anything runs.
"""

from __future__ import annotations

import builtins
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar, get_args

from rlinf_cli.flow.channel import Channel

T = TypeVar("T")
Direction = Literal["in", "out"]


@dataclass(frozen=True, slots=True)
class Port:
    """A channel argument: which way items flow, and their type."""

    direction: Direction
    item: Any


if TYPE_CHECKING:

    class In(Channel, Generic[T]):
        """A channel that the method takes items from."""

    class Out(Channel, Generic[T]):
        """A channel that the method puts items into; it is told when the call of the last rank ends."""

else:

    class _Ports:
        def __init__(self, direction: Direction) -> None:
            self._direction = direction

        def __getitem__(self, item: Any) -> Any:
            return Annotated[Channel, Port(self._direction, item)]

    In, Out = _Ports("in"), _Ports("out")


def ports(method: Callable[..., Any]) -> dict[str, Port]:
    """The ports of a method, by the name of the argument."""
    found = {name: _port(parameter.annotation, method) for name, parameter in inspect.signature(method).parameters.items()}
    return {name: port for name, port in found.items() if port is not None}


def _port(annotation: Any, method: Callable[..., Any]) -> Port | None:
    if isinstance(annotation, str):
        annotation = _resolve(annotation, method.__globals__) if re.search(r"\b(In|Out)\[", annotation) else None
    return _find(annotation)


def _find(annotation: Any) -> Port | None:
    """Also in `Out[X] | None`."""
    if isinstance(annotation, Port):
        return annotation
    return next((port for part in get_args(annotation) if (port := _find(part)) is not None), None)


def _resolve(annotation: str, names: dict[str, Any]) -> Any:
    """What an annotation stands for, even where names, also `In` and `Out`, are imported for type checkers only."""
    return eval(annotation, {}, _Names({"In": In, "Out": Out, **names}))


class _Names(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, _Unknown(name))


class _Unknown:
    """Stands for a name that exists only while types are checked, and for all that is looked up in it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> _Unknown:
        return _Unknown(f"{self._name}.{name}")

    def __getitem__(self, item: Any) -> _Unknown:
        return self

    def __or__(self, other: Any) -> _Unknown:
        return self

    __ror__ = __or__

    def __repr__(self) -> str:
        return self._name
