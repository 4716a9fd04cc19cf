"""The tools of a run, with their limits: how many calls at once, how long one may take, how often it is tried, what is
remembered."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlinf_cli.config.sections import ToolsConfig
from rlinf_cli.contracts.tool import Tool, ToolError, ToolSpec
from rlinf_cli.errors import PluginError, RlinfError
from rlinf_cli.sandbox.child import summary

FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 5.0
"""Before a call is tried again: doubled each time, and drawn between half of it and all of it."""


class ToolFailure(RlinfError):
    """A tool has failed as often as it may: its episode is given up."""


@dataclass
class ToolUsage:
    """What the calls of one tool have come to. `seconds`: of those that were answered by the tool itself."""

    calls: int = 0
    cached: int = 0
    mistakes: int = 0
    """Calls that the policy got wrong."""
    retries: int = 0
    failures: int = 0
    seconds: float = 0.0


@dataclass
class Toolbox:
    """All tools of a process. Used from one event loop."""

    tools: Sequence[Tool]
    config: ToolsConfig
    usage: dict[str, ToolUsage] = field(default_factory=dict)

    async def open(self) -> None:
        """Raises RlinfError where a tool cannot be had, or two offer the same name."""
        self._owners: dict[str, tuple[Tool, ToolSpec]] = {}
        self._cache: OrderedDict[str, asyncio.Future[str]] = OrderedDict()
        self._turns = asyncio.Semaphore(self.config.concurrency)
        for tool in self.tools:
            await tool.open()
            for spec in tool.specs():
                if spec.name in self._owners:
                    raise PluginError(f"two tools of tools.name={self.config.name} offer a function {spec.name!r}: leave one out")
                self._owners[spec.name] = tool, spec
        self.usage = {name: ToolUsage() for name in self._owners}

    async def close(self) -> None:
        for tool in self.tools:
            await tool.close()

    @property
    def specs(self) -> list[ToolSpec]:
        return [spec for _, spec in self._owners.values()]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """The answer; what the policy did wrong is one too. Raises ToolFailure when the tool has failed for good."""
        if name not in self._owners:
            known = ", ".join(self._owners) or "none"
            return f"Error: there is no tool {name!r}. There are: {known}."
        tool, spec = self._owners[name]
        usage = self.usage[name]
        usage.calls += 1
        try:
            check_arguments(spec, arguments)
            if not (spec.cacheable and self.config.cache):
                return await self._answer(tool, spec, arguments)
            return await self._remembered(tool, spec, arguments)
        except ToolError as error:
            usage.mistakes += 1
            return f"Error: {error}"

    async def _remembered(self, tool: Tool, spec: ToolSpec, arguments: Mapping[str, Any]) -> str:
        """Of several equal calls at a time, one is made. What failed is not remembered."""
        key = json.dumps([spec.name, arguments], sort_keys=True)
        found = self._cache.get(key)
        if found is not None:
            self._cache.move_to_end(key)
            self.usage[spec.name].cached += 1
            return await asyncio.shield(found)
        made = self._cache[key] = asyncio.ensure_future(self._answer(tool, spec, arguments))
        while len(self._cache) > self.config.cache:
            self._cache.popitem(last=False)
        try:
            return await asyncio.shield(made)
        except BaseException:
            if self._cache.get(key) is made:
                del self._cache[key]
            raise

    async def _answer(self, tool: Tool, spec: ToolSpec, arguments: Mapping[str, Any]) -> str:
        usage, cause = self.usage[spec.name], ""
        for attempt in range(self.config.retries + 1):
            if attempt:
                usage.retries += 1
                await asyncio.sleep(random.uniform(0.5, 1.0) * min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** (attempt - 1)))
            try:
                return await self._once(tool, spec, arguments)
            except ToolError:
                raise
            except (TimeoutError, asyncio.TimeoutError):  # Python 3.10 has two
                cause = f"no answer within tools.timeout_s={self.config.timeout_s:g} s"
            except Exception as error:  # whatever a tool raises is counted, told and survived
                cause = summary(error)
        usage.failures += 1
        raise ToolFailure(f"tool {spec.name} failed {self.config.retries + 1} times, the last time with {cause}")

    async def _once(self, tool: Tool, spec: ToolSpec, arguments: Mapping[str, Any]) -> str:
        async with self._turns:
            began = time.monotonic()
            answer = await asyncio.wait_for(tool.call(spec.name, arguments), self.config.timeout_s)
            if not isinstance(answer, str):
                raise TypeError(f"it answers with a {type(answer).__name__}, not with a text")
            self.usage[spec.name].seconds += time.monotonic() - began
            return answer


def check_arguments(spec: ToolSpec, arguments: Mapping[str, Any]) -> None:
    """Whether arguments fit the schema: names, and plain types. Raises ToolError saying what does not fit."""
    properties, needed = spec.parameters.get("properties", {}), spec.parameters.get("required", ())
    missing = [name for name in needed if name not in arguments]
    if missing:
        raise ToolError(f"{spec.name} needs {', '.join(missing)}.")
    unknown = [name for name in arguments if name not in properties]
    if unknown and not spec.parameters.get("additionalProperties", False):
        raise ToolError(f"{spec.name} does not know {', '.join(unknown)}; it takes {', '.join(properties) or 'nothing'}.")
    for name, value in arguments.items():
        wanted = properties.get(name, {}).get("type")
        if isinstance(wanted, str) and not _fits(value, wanted):
            raise ToolError(f"{name} of {spec.name} must be of type {wanted}, not {value!r}.")


_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "array": (list, tuple), "object": (dict,),
    "null": (type(None),)}


def _fits(value: Any, wanted: str) -> bool:
    if isinstance(value, bool):
        return wanted == "boolean"
    return isinstance(value, _TYPES.get(wanted, (object,)))
