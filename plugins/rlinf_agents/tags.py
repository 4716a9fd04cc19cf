"""`tags`: the policy calls a tool by writing its argument between <tool> and </tool>, and reads the answer in its own text.

    ... <search>the river at Holm</search>          the turn ends here
    <information>Doc 1 ...</information>            shown, not trained
    ... <answer>Vessa</answer>                      the episode ends here

Source: Search-R1 (arXiv 2503.09516). Deviation: any tool that needs one text can be called so, and a turn that does neither
ends the episode unless `agent.invalid` says what is shown then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rlinf_agents.config import TagsConfig
from rlinf_cli.api import Conversation, Prompt, ToolSpec, UsageError


class TagsAgent:
    """Contract: `rlinf_cli.api.Agent`."""

    def __init__(self, config: TagsConfig, tools: Sequence[ToolSpec]) -> None:
        self.config = config
        self._arguments = arguments(tools)
        names = [*self._arguments, *([config.answer_tag] if config.answer_tag else [])]
        self._stops = tuple(f"</{name}>" for name in names)
        self._call = re.compile(rf"<({'|'.join(map(re.escape, self._arguments))})>((?:(?!</?\1>).)*)</\1>\s*\Z", re.DOTALL)

    def prepare(self, task: Prompt) -> Prompt:
        return task

    async def run(self, conversation: Conversation, task: Prompt) -> None:
        while True:
            turn = await conversation.generate(stop=self._stops)
            called = self._call.search(turn.text)
            if called is not None:
                name, argument = called.groups()
                answer = await conversation.call(name, {self._arguments[name]: argument.strip()})
                conversation.show(self._shown(answer), role="tool", name=name)
            elif self.config.invalid and turn.finish == "stop" and not self._answers(turn.text):
                conversation.show(self.config.invalid)
            else:
                return

    def _answers(self, text: str) -> bool:
        return bool(self.config.answer_tag) and f"</{self.config.answer_tag}>" in text

    def _shown(self, answer: str) -> str:
        tag = self.config.result_tag
        return f"\n\n<{tag}>{answer}</{tag}>\n\n"


def arguments(tools: Sequence[ToolSpec]) -> Mapping[str, str]:
    """Tool -> its one argument. Raises UsageError where a tool needs another kind, or there is none."""
    found: dict[str, str] = {}
    for tool in tools:
        needed = list(tool.parameters.get("required", ()))
        kinds = {name: one.get("type") for name, one in tool.parameters.get("properties", {}).items()}
        if len(needed) != 1 or kinds.get(needed[0]) != "string":
            raise UsageError(f"agent.name=tags calls tools with one text, but {tool.name} needs "
                             f"{', '.join(needed) or 'nothing'}: use agent.name=functions, or leave the tool out")
        found[tool.name] = needed[0]
    if not found:
        raise UsageError("agent.name=tags needs a tool to call: name some with tools.name, as tools.name=search")
    return found
