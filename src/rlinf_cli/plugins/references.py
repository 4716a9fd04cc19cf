"""A user's own reward function, named as `module:function` or `path/to/file.py:function`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from rlinf_cli.errors import UsageError, did_you_mean

PARTS = {
    "prompt": "prompt",
    "response": "response",
    "completion": "response",
    "solution_str": "response",
    "answer": "answer",
    "ground_truth": "answer",
}
"""Parameter name -> the part of the sample that it receives. `sample` receives all of it, any other name a column."""

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_RESPONSES = {"sample", *(name for name, part in PARTS.items() if part == "response")}


class Scored(Protocol):
    """What a reward function can see of a sample."""

    prompt: str
    response: str
    answer: str | None
    columns: Mapping[str, Any]


class FunctionReward:
    """A function as a reward: its parameters are filled by their names.

    `sample`, the names in `PARTS`, and columns of the data; a `**` parameter takes the columns that are left. A
    parameter with a default keeps it when the data has no such column, or no answer.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        parameters = inspect.signature(function).parameters.values()
        self._names = [p.name for p in parameters if p.kind in _NAMED]
        self._required = {p.name for p in parameters if p.name in self._names and p.default is p.empty}
        self._rest = any(p.kind is p.VAR_KEYWORD for p in parameters)

    @property
    def columns(self) -> list[str]:
        """The data columns that it cannot do without."""
        return [name for name in self._names if name in self._required and name != "sample" and name not in PARTS]

    def score(self, sample: Scored) -> float | Mapping[str, float]:
        """What the function returns. Raises ValueError when the data lacks what it needs, and whatever it raises."""
        given: dict[str, Any] = {}
        for name in self._names:
            found, value = _lookup(sample, name)
            if found:
                given[name] = value
            elif name in self._required:
                raise ValueError(_lack(sample, name))
        if self._rest:
            given |= {name: value for name, value in sample.columns.items() if name not in self._names}
        result: float | Mapping[str, float] = self._function(**given)
        return result


def _lookup(sample: Scored, name: str) -> tuple[bool, Any]:
    """Whether the sample has what a parameter of this name receives, and the value."""
    if name == "sample":
        return True, sample
    if name in PARTS:
        value = getattr(sample, PARTS[name])
        return value is not None, value
    return name in sample.columns, sample.columns.get(name)


def _lack(sample: Scored, name: str) -> str:
    if name in PARTS:
        return f"the reward needs {name!r}, but the data has no answers (see data.answer_key)"
    return f"the reward needs {name!r}, which is no column of the data (columns: {_listed(sample.columns)})"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def load_function(reference: str) -> Callable[..., Any]:
    """Import the function. UsageError says what is wrong with the reference, the module or the function.

    A module is looked for where Python looks, then in the current directory; a file from the current directory.
    """
    place, _, attribute = reference.rpartition(":")
    is_file = place.endswith(".py")
    if not attribute or not (is_file or all(part.isidentifier() for part in place.split("."))):
        raise UsageError(f"{reference!r} names no reward function; write module:function or path/to/file.py:function")
    module = _import_file(Path(place)) if is_file else _import_module(place)
    function: Callable[..., Any] = _attribute(module, attribute, reference)
    _check_signature(function, reference)
    return function


def check_function(reference: str, columns: Collection[str] | None = None) -> None:
    """Raise UsageError unless the function can be imported and, when the data's `columns` are given, called."""
    reward = FunctionReward(load_function(reference))
    if columns is None:
        return
    for name in reward.columns:
        if name not in columns:
            raise UsageError(f"reward {reference} needs {name!r}, which is no column of the data"
                             f" (columns: {_listed(columns)}){did_you_mean(name, [*columns, *PARTS])}")


def _import_module(name: str) -> ModuleType:
    _search(os.getcwd())
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # a user's module may raise anything
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{name}.".startswith(f"{missing}."):
            near = did_you_mean(missing, (path.stem for path in Path.cwd().glob("*.py")))
            raise UsageError(f"no module {missing!r} for the reward; install it, or run from the directory "
                             f"that holds it{near}") from error
        raise _import_failed(name, error) from error


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        near = did_you_mean(path.name, (other.name for other in path.parent.glob("*.py")))
        raise UsageError(f"no file {path} for the reward{near}")
    full = path.resolve()
    _search(str(full.parent))
    name = "rlinf_reward_" + re.sub(r"\W", "_", str(full))
    spec = importlib.util.spec_from_file_location(name, full)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a user's module may raise anything
        del sys.modules[name]
        raise _import_failed(str(path), error) from error
    return module


def _search(directory: str) -> None:
    # last, so that a user's file never takes the place of an installed module
    if directory not in sys.path:
        sys.path.append(directory)
    importlib.invalidate_caches()


def _import_failed(name: str, error: BaseException) -> UsageError:
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return UsageError(f"importing {name} for the reward raised {what} ({_origin(name, error)})")


def _origin(name: str, error: BaseException) -> str:
    """The line of the user's code that raised, as `FILE, line N`."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename not in (__file__, importlib.__file__) and not frame.filename.startswith("<frozen"):
            return f"{frame.filename}, line {frame.lineno}"
    return name


def _attribute(module: ModuleType, attribute: str, reference: str) -> Any:
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            home = getattr(module, "__file__", None) or module.__name__
            raise UsageError(f"reward {reference}: {home} has no {attribute!r}"
                             f"{did_you_mean(part, dir(found))}")
        found = getattr(found, part)
    return found


def _check_signature(function: Any, reference: str) -> None:
    if not callable(function) or inspect.isclass(function):
        raise UsageError(f"reward {reference} is {_article(function)}, not a function")
    if inspect.iscoroutinefunction(function):
        raise UsageError(f"reward {reference} is async; it must be an ordinary function")
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError as error:
        raise UsageError(f"reward {reference} does not tell its parameters; wrap it in a function") from error
    fixed = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
    if fixed:
        raise UsageError(f"reward {reference} cannot be called by name: parameter {fixed[0]!r} is positional-only")
    if _RESPONSES.isdisjoint(p.name for p in parameters if p.kind in _NAMED):
        raise UsageError(f"reward {reference} does not take the response: give it a parameter named sample, response or"
                         f" completion (it has: {_listed(p.name for p in parameters)})")


def _article(value: Any) -> str:
    return "a class" if inspect.isclass(value) else f"of type {type(value).__name__}"
