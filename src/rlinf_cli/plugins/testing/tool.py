"""Whether a tool keeps the contract of `rlinf_cli.api.Tool`."""

from __future__ import annotations

import asyncio
import copy
import functools
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from rlinf_cli.api import ToolError, ToolSpec
from rlinf_cli.plugins.extension import describe
from rlinf_cli.plugins.testing.findings import a, require, run_all, target_of
from rlinf_cli.plugins.testing.stage import check_arguments

NAME = re.compile(r"[A-Za-z0-9_]+")
TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
LONGEST_S = 60.0
"""That anything may take."""

Call = tuple[str, Mapping[str, Any]]


def check_tool(target: Any, config: Any = None, calls: Sequence[Call] = ()) -> None:
    """Raise AssertionError unless it opens, tells what it offers, answers with texts, also many calls at once, and closes.

    `target`: the class, built as `target(config)`, or its extension. `calls`: names and arguments that it can answer; without
    them none is made.
    """
    tool_class, config = target_of(target, config)
    loop = asyncio.new_event_loop()
    try:
        case = _Case(tool_class(config), calls, loop)
        run_all(case.tells_what_is_known_before_it_is_opened, case.opens)
        run_all(case.tells_what_it_offers)
        run_all(case.answers_with_a_text, case.leaves_arguments_as_they_are, case.answers_many_calls_at_once,
                case.answers_after_a_call_that_was_given_up, case.closes)
    finally:
        loop.close()


class _Case:
    def __init__(self, tool: Any, calls: Sequence[Call], loop: asyncio.AbstractEventLoop) -> None:
        self._tool, self._calls, self._loop = tool, calls, loop
        self._specs: dict[str, ToolSpec] = {}

    def tells_what_is_known_before_it_is_opened(self) -> None:
        known = list(self._tool.specs())
        require(all(isinstance(spec, ToolSpec) for spec in known),
                f"specs() before open() must give what is known by then, or nothing; it gave {known!r:.80}")

    def opens(self) -> None:
        self._do("open", self._tool.open)

    def closes(self) -> None:
        self._do("close", self._tool.close)

    def tells_what_it_offers(self) -> None:
        specs = list(self._tool.specs())
        require(bool(specs) and all(isinstance(spec, ToolSpec) for spec in specs),
                f"specs() must give rlinf_cli.api.ToolSpec, at least one; it gave {specs!r:.80}")
        self._specs = {spec.name: spec for spec in specs}
        require(len(self._specs) == len(specs), f"specs() has a name twice: {', '.join(str(spec.name) for spec in specs)}")
        for spec in specs:
            _require_spec(spec)
        require(list(self._tool.specs()) == specs, "specs() gives others when it is asked again")

    def answers_with_a_text(self) -> None:
        self._answers(self._calls)

    def leaves_arguments_as_they_are(self) -> None:
        for name, arguments in self._calls:
            given = copy.deepcopy(dict(arguments))
            self._do("call", functools.partial(self._tool.call, name, given))
            require(given == arguments, f"call({name!r}, ...) changes its arguments")

    def answers_many_calls_at_once(self) -> None:
        alone = [self._answers([call])[0] for call in self._calls]
        together = self._answers([*self._calls, *self._calls[::-1]])
        for (name, arguments), one, *others in zip(self._calls, alone, together, together[::-1], strict=False):
            require(not self._specs[name].cacheable or others == [one, one],
                    f"{name} says that it is cacheable, but {dict(arguments)!r:.80} gets {one!r:.80} alone and "
                    f"{next((other for other in others if other != one), one)!r:.80} among others")

    def answers_after_a_call_that_was_given_up(self) -> None:
        """As a call is that takes longer than `tools.timeout_s`."""
        for name, arguments in self._calls:
            self._loop.run_until_complete(_given_up(self._tool.call(name, dict(arguments))))
            self._answers([(name, arguments)])

    def _answers(self, calls: Sequence[Call]) -> list[str]:
        """Of calls that are made at once."""
        return list(self._do("call", lambda: asyncio.gather(*[self._answer(*call) for call in calls]))) if calls else []

    async def _answer(self, name: str, arguments: Mapping[str, Any]) -> str:
        where = f"call({name!r}, {dict(arguments)!r:.80})"
        require(name in self._specs, f"{where}: specs() has no {name!r}, but {', '.join(self._specs)}")
        try:
            check_arguments(self._specs[name], arguments)
            answer = await self._tool.call(name, dict(arguments))
        except ToolError as error:
            raise AssertionError(f"{where} is refused, as a mistake of the policy: {error}") from error
        except Exception as error:  # its right, but not for a call that it is to answer
            raise AssertionError(f"{where} raised {describe(error)}") from error
        require(isinstance(answer, str), f"{where} must answer with a text, not {a(answer)}")
        return str(answer)

    def _do(self, what: str, begin: Callable[[], Awaitable[Any]]) -> Any:
        async def done() -> Any:
            begun = begin()
            require(hasattr(begun, "__await__"), f"{what}() must be `async def`")
            return await asyncio.wait_for(begun, LONGEST_S)

        try:
            return self._loop.run_until_complete(done())
        except asyncio.TimeoutError as error:
            raise AssertionError(f"{what}() has not ended within {LONGEST_S:g} s") from error


def _require_spec(spec: ToolSpec) -> None:
    require(isinstance(spec.name, str) and NAME.fullmatch(spec.name) is not None,
            f"a function is called {spec.name!r}: names are made of letters, digits and _")
    require(isinstance(spec.description, str) and bool(spec.description.strip()),
            f"{spec.name} has no description, which is what a policy is told of it")
    require(isinstance(spec.cacheable, bool), f"cacheable of {spec.name} must be a bool, not {a(spec.cacheable)}")
    schema = spec.parameters
    require(isinstance(schema, Mapping) and schema.get("type") == "object" and isinstance(schema.get("properties", {}), Mapping),
            f"parameters of {spec.name} must be a JSON schema of type object, {{'type': 'object', 'properties': {{...}}}}; they "
            f"are {schema!r:.80}")
    try:
        json.dumps(dict(schema))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"parameters of {spec.name} cannot be written as JSON: {error}") from error
    properties = schema.get("properties", {})
    for name, one in properties.items():
        kind = one.get("type", "string") if isinstance(one, Mapping) else None
        require(not isinstance(kind, str | None) or kind in TYPES,
                f"argument {name} of {spec.name} must be a schema with a type of {', '.join(TYPES)}; it is {one!r:.80}")
    unknown = [name for name in schema.get("required", ()) if name not in properties]
    require(not unknown, f"{spec.name} needs {', '.join(unknown)}, which its properties do not have")


async def _given_up(call: Awaitable[str]) -> None:
    begun = asyncio.ensure_future(call)
    await asyncio.sleep(0)
    begun.cancel()
    await asyncio.gather(begun, return_exceptions=True)
