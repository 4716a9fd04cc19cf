"""Where agents and tools are tried: the dialogues, episodes and calls of a run, with a tokenizer of one token a byte and a policy
that says what it is told to."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from rlinf_cli.api import Completion, Prompt, Request, RunConfig, Sample, Sampling, ToolSpec
from rlinf_cli.workers.agents.chat import ChatTemplate
from rlinf_cli.workers.agents.conversation import Limits, Surroundings
from rlinf_cli.workers.agents.episodes import Episodes, Tally
from rlinf_cli.workers.agents.toolbox import Toolbox
from rlinf_cli.workers.agents.toolbox import ToolFailure as ToolFailure
from rlinf_cli.workers.agents.toolbox import check_arguments as check_arguments
from rlinf_cli.workers.prompts import PromptEncoder

END = 256
"""The token that ends a message; the others are bytes."""
END_TEXT = "<end>"
TASK = Prompt("0-0", text="What is 6 times 7?", answer="42")
NEW, SHOWN = 400, 200
"""Tokens that a turn, and what is shown at once, may have."""
VERSION = 3

Script = Sequence[str | bytes]
"""What a policy says, a turn each; the last one again and again."""


class ByteTokenizer:
    """What of a transformers tokenizer is used. Its chat template writes `[role]content<end>`."""

    chat_template = "[role]content<end>"
    eos_token_id = END
    all_special_tokens = (END_TEXT,)

    def __call__(self, text: str | Sequence[str], add_special_tokens: bool = False) -> dict[str, Any]:
        return {"input_ids": _ids(text) if isinstance(text, str) else [_ids(one) for one in text]}

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        end = b"" if skip_special_tokens else END_TEXT.encode()
        return b"".join(end if token == END else bytes([token]) for token in ids).decode(errors="replace")

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None,
                            tokenize: bool = False, add_generation_prompt: bool = False) -> str:
        told = [{"role": "system", "content": json.dumps(list(tools))}] if tools else []
        texts = [f"[{message['role']}]{_content(message)}{END_TEXT}\n" for message in [*told, *messages]]
        return "".join(texts) + "[assistant]" * add_generation_prompt


def _ids(text: str) -> list[int]:
    parts = re.split(f"({END_TEXT})", text)
    return [token for part in parts for token in ([END] if part == END_TEXT else part.encode())]


def _content(message: Mapping[str, Any]) -> str:
    content = message["content"]
    if not isinstance(content, str):
        raise TypeError(f"the content of a message must be a text, not {content!r:.40}")
    return content + (json.dumps(message["tool_calls"]) if message.get("tool_calls") else "")


class ByteEncoder(PromptEncoder):
    """Prompts of any length."""

    def __init__(self) -> None:
        self._model, self._longest, self.tokenizer = Path("bytes"), 1 << 30, ByteTokenizer()


class ScriptedPolicy:
    """Says what the script of a task says, as an engine does: up to a text that stops it, else with its end token, and cut off
    at its limit."""

    def __init__(self, scripts: Mapping[str, Script]) -> None:
        self._scripts = scripts
        self.made: dict[str, list[Completion]] = {}
        """Of each dialogue."""

    async def answer(self, request: Request, episode: str, fresh: int) -> Completion:
        script, turn = self._scripts[episode.partition("/")[0]], int(request.id.rpartition("/")[2])
        for _ in range(1 + len(script[0]) % 5):  # some take longer than others
            await asyncio.sleep(0)
        ids, finish = said(script[min(turn, len(script) - 1)], request.sampling)
        logprobs = np.full(len(ids), -0.1 * (turn + 1), np.float32)
        made = Completion(request.id, np.array(ids, np.int32), logprobs, np.full(len(ids), VERSION, np.int32), finish)
        self.made.setdefault(episode, []).append(made)
        return made


def said(text: str | bytes, sampling: Sampling) -> tuple[list[int], Any]:
    """Tokens, and how they end."""
    data = text.encode() if isinstance(text, str) else text
    ends = [data.index(stop.encode()) + len(stop.encode()) for stop in sampling.stop if stop.encode() in data]
    ids = list(data[: min(ends)]) if ends else [*data, END]
    return (ids, "stop") if len(ids) <= sampling.max_new_tokens else (ids[: sampling.max_new_tokens], "length")


@dataclass
class Stage:
    """An agent on it, with tools that have been opened."""

    agent: Any
    tools: Toolbox
    encoder: PromptEncoder = field(default_factory=ByteEncoder)

    async def play(self, scripts: Mapping[str, Script], task: Prompt, turns: int,
                   room: int) -> tuple[dict[str, list[Sample]], ScriptedPolicy]:
        """An episode of each script, all at once: its samples, by the name of the script. `room`: tokens after the task."""
        policy = ScriptedPolicy(scripts)
        begun = max(len(self.encoder.encode(self.agent.prepare(replace(task, id=name)))[1]) for name in scripts)
        limits = Limits(turns, begun + room, SHOWN)
        around = Surroundings(policy, self.encoder, ChatTemplate(self.encoder.tokenizer, "the check"), self.tools, limits)
        episodes, sampling = Episodes(self.agent, around, len(scripts)), Sampling(NEW, stop_token_ids=(END,))
        groups = [episodes.group(replace(task, id=name), 1, sampling, Tally()) for name in scripts]
        return dict(zip(scripts, await asyncio.gather(*groups), strict=True)), policy


async def toolbox(tools: Sequence[Any]) -> Toolbox:
    """Opened; a call that fails is not tried again."""
    made = Toolbox(tools, replace(RunConfig().tools, retries=0))
    await made.open()
    return made


def play_episode(agent: Any, script: Script, tools: Sequence[Any] = (), task: Prompt = TASK, turns: int = 16,
                 room: int = 8192) -> Sample:
    """What an episode of an agent comes to when the policy says `script`, a text a turn. `tools`: what can be called; the agent
    has been built with their specs."""

    async def played() -> Sample:
        box = await toolbox(tools)
        try:
            found, _ = await Stage(agent, box).play({task.id: script}, task, turns, room)
            return found[task.id][0]
        finally:
            await box.close()

    return asyncio.run(played())


def arguments_for(spec: ToolSpec) -> dict[str, Any]:
    """Some that fit its schema: those that are needed."""
    properties = spec.parameters.get("properties", {})
    return {name: _value(properties.get(name, {})) for name in spec.parameters.get("required", ())}


def _value(schema: Mapping[str, Any]) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    made = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}, "null": None}
    return made.get(str(schema.get("type")), "hello")
