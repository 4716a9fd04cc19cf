"""`functions`: the policy calls tools as its chat template tells it to, several at once; answers come as messages of role `tool`.

    <tool_call>
    {"name": "search", "arguments": {"query": "the river at Holm"}}
    </tool_call>

A turn without a call ends the episode. The form is Hermes'; a model whose chat template does not tell of tools is
refused. A call that is not of this form is answered with what is wrong with it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlinf_agents.config import FunctionsConfig
from rlinf_cli.api import Conversation, Prompt, ToolSpec, UsageError

_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
FORM = '<tool_call>{"name": NAME, "arguments": {...}}</tool_call>'


class FunctionsAgent:
    """Contract: `rlinf_cli.api.Agent`."""

    def __init__(self, config: FunctionsConfig, tools: Sequence[ToolSpec]) -> None:
        if not tools:
            raise UsageError("agent.name=functions needs a tool to call: name some with tools.name, as tools.name=search")
        self.config = config
        self._tools = [{"type": "function", "function": {"name": tool.name, "description": tool.description,
                                                         "parameters": dict(tool.parameters)}} for tool in tools]

    def prepare(self, task: Prompt) -> Prompt:
        messages = task.messages or [{"role": "user", "content": task.text or ""}]
        return replace(task, text=None, messages=messages, tools=self._tools)

    async def run(self, conversation: Conversation, task: Prompt) -> None:
        while True:
            turn = await conversation.generate()
            calls = _CALL.findall(turn.text)
            if not calls or turn.finish != "stop":
                return
            answers = [self._answer(conversation, place, call) for place, call in enumerate(calls)]
            conversation.send(await asyncio.gather(*answers))

    async def _answer(self, conversation: Conversation, place: int, call: str) -> Mapping[str, Any]:
        """The message that answers one call."""
        try:
            name, given = parsed(call)
        except ValueError as error:
            return {"role": "tool", "name": "", "content": f"Error: {error} Calls are written {FORM}."}
        if place >= self.config.parallel:
            return {"role": "tool", "name": name, "content": f"Error: only {self.config.parallel} calls at once are carried out."}
        return {"role": "tool", "name": name, "content": await conversation.call(name, given)}


def parsed(call: str) -> tuple[str, Mapping[str, Any]]:
    """Name and arguments. Raises ValueError saying what is wrong."""
    try:
        document = json.loads(call)
    except ValueError as error:
        raise ValueError(f"this is no JSON ({error}).") from error
    name, given = (document.get("name"), document.get("arguments", {})) if isinstance(document, dict) else (None, None)
    if not isinstance(name, str) or not isinstance(given, dict):
        raise ValueError("a call has a name and arguments.")
    return name, given
