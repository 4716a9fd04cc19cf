"""Whether an agent keeps the contract of `rlinf_cli.api.Agent`, whatever its policy says."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rlinf_cli.api import Conversation, EpisodeOver, Prompt, Sample, ToolSpec, Turn, UsageError
from rlinf_cli.plugins.extension import describe
from rlinf_cli.plugins.testing.findings import a, require, run_all, target_of
from rlinf_cli.plugins.testing.stage import TASK, Script, ScriptedPolicy, Stage, ToolFailure, arguments_for, toolbox

TASKS = TASK, replace(TASK, text=None, messages=[{"role": "user", "content": TASK.text or ""}])
SCENES = ((4, 4000), (1, 4000), (4, 500), (4, 40), (4, 3), (4, 0))
"""Turns that an episode may have, and tokens."""
LONGEST_S = 60.0
"""That the episodes of a scene may take: the policy answers at once."""
MOST_USES = 1000
"""That an episode may make of its conversation."""

ODD: Sequence[str | bytes] = (
    "", "42", "so " * 1000, "<answer>" * 300, bytes(range(256)), " \n\t", "\x00\u202e\U0001f600é", "((((" * 90, "{[" * 90, "3",
    "[]", '{"a": [1, {}]}', "</answer></search><search>", "<search><answer>42</answer></search>",
    "<no_such_tool>x</no_such_tool>", '<tool_call>{"name": "no_such_tool", "arguments": {}}</tool_call>',
    '<tool_call>{"name": 3}</tool_call>', "<tool_call>{</tool_call>", "<tool_call>", "CALL", "CALL x", "CALL no_such_tool {}",
)
"""What a policy may come up with."""


def check_agent(target: Any, config: Any = None, tools: Sequence[Any] | None = None, scripts: Sequence[Script] = ()) -> None:
    """Raise AssertionError unless its episodes end, raise nothing, keep apart and train what was sampled, whatever is said.

    `target`: the class, built as `target(config, specs)`, or its extension. `tools`: what it can call (default: one that says a
    text again). `scripts`: what a policy says, turn by turn, that the agent does something about, such as a call in its own form.
    """
    agent_class, config = target_of(target, config)
    loop = asyncio.new_event_loop()
    try:
        box = loop.run_until_complete(toolbox([_Kept(tool) for tool in ([_Echo()] if tools is None else tools)]))
        case = _Case(lambda: agent_class(config, box.specs), box, scripts, loop)
        run_all(case.takes_these_tools)
        run_all(case.prepares_tasks)
        run_all(case.ends_whatever_the_policy_says, case.trains_what_was_sampled, case.keeps_episodes_apart)
        loop.run_until_complete(box.close())
    finally:
        loop.run_until_complete(_ended(asyncio.all_tasks(loop)))
        loop.close()


async def _ended(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _Echo:
    """Says a text again."""

    def specs(self) -> Sequence[ToolSpec]:
        return [ToolSpec("echo", "Say a text again.", {"type": "object", "properties": {"text": {"type": "string"}},
                                                       "required": ["text"]})]

    async def open(self) -> None:
        """Nothing to load."""

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        return f"{arguments['text']}"

    async def close(self) -> None:
        """Nothing is open."""


class _Kept:
    """A tool whose answers are kept, so that an episode gets the same ones each time that it is run."""

    def __init__(self, tool: Any) -> None:
        self._tool = tool
        self.open, self.call, self.close = tool.open, tool.call, tool.close

    def specs(self) -> Sequence[ToolSpec]:
        return [replace(spec, cacheable=True) for spec in self._tool.specs()]


@dataclass(frozen=True)
class _Played:
    """The episodes of a scene, and what was wrong in them."""

    samples: Mapping[str, list[Sample]]
    policy: ScriptedPolicy
    problems: Mapping[str, str]


class _Case:
    def __init__(self, build: Callable[[], Any], box: Any, scripts: Sequence[Script], loop: asyncio.AbstractEventLoop) -> None:
        self._build, self._box, self._loop = build, box, loop
        odd: list[Script] = [*[[text] for text in ODD], ODD]
        self._scripts = {f"script-{number}": script for number, script in enumerate([*odd, *_calls(box.specs), *scripts])}
        self._tasks: list[Prompt] = []
        self._scenes: list[tuple[Prompt, int, int]] = []
        self._played: list[_Played] = []

    def takes_these_tools(self) -> None:
        names = ", ".join(spec.name for spec in self._box.specs) or "none"
        try:
            self._build()
        except UsageError as error:
            raise AssertionError(f"it refuses the tools that it was built with here ({names}): {error} (give check_agent the "
                                 "tools that it needs)") from error

    def prepares_tasks(self) -> None:
        agent, refused = self._build(), ""
        for task in TASKS:
            kept = copy.deepcopy(task)
            try:
                found = agent.prepare(task)
            except UsageError as error:  # its right, but not for texts and messages both
                refused = str(error)
                continue
            _require_task(found, task)
            require(task == kept, "prepare() changes the task that it is given: use dataclasses.replace")
            require(agent.prepare(task) == found, "prepare() gives something else when it sees a task again")
            self._tasks.append(task)
        require(bool(self._tasks), f"prepare() refuses a task that is a text, and one of messages: {refused}")
        self._scenes = [(task, *scene) for task in self._tasks for scene in SCENES]

    def ends_whatever_the_policy_says(self) -> None:
        told: dict[str, str] = {}
        for task, turns, room in self._scenes:
            played = self._play(self._build(), self._scripts, task, turns, room)
            self._played.append(played)
            for name, problem in played.problems.items():
                where = f"where the policy said {_quoted(self._scripts[name])} (with {turns} turns and {room} tokens)"
                told.setdefault(problem, f"{problem}, {where}")
        require(not told, "\n".join(told.values()))

    def trains_what_was_sampled(self) -> None:
        for played in self._played:
            for sample in [one for samples in played.samples.values() for one in samples]:
                made = played.policy.made.get(sample.id, [])
                sampled = [] if sample.error else [token for one in made for token in one.token_ids.tolist()]
                require(sample.response_ids[sample.mask].tolist() == sampled,
                        f"episode {sample.id} trains other tokens than those that the policy made: an agent only appends, by "
                        "generate(), show() and send()")

    def keeps_episodes_apart(self) -> None:
        for (task, turns, room), played in zip(self._scenes, self._played, strict=True):
            for name, script in self._scripts.items():
                if name not in played.problems:
                    alone = self._play(self._build(), {name: script}, task, turns, room)
                    require(_content(alone.samples[name]) == _content(played.samples[name]),
                            f"the episode where the policy said {_quoted(script)} was another one among others than alone: one "
                            "object serves all episodes, so what belongs to one stays in run()")

    def _play(self, agent: Any, scripts: Mapping[str, Script], task: Prompt, turns: int, room: int) -> _Played:
        watched = _Watched(agent)
        playing = Stage(watched, self._box).play(scripts, task, turns, room)
        try:
            samples, policy = self._loop.run_until_complete(asyncio.wait_for(playing, LONGEST_S))
        except asyncio.TimeoutError as error:
            raise AssertionError(f"episodes have not ended {LONGEST_S:g} s after they began, with a policy that answers at "
                                 "once") from error
        except _Endless as error:
            raise AssertionError(str(error)) from error
        return _Played(samples, policy, watched.problems)


def _require_task(found: Any, task: Prompt) -> None:
    require(isinstance(found, Prompt), f"prepare() must give a rlinf_cli.api.Prompt, not {a(found)}")
    require((found.text is None) != (found.messages is None), "prepare() must give a task with text or messages, and not both")
    require(found.id == task.id and found.answer == task.answer, "prepare() must leave id and answer of the task as they are")


def _calls(specs: Sequence[ToolSpec]) -> list[Script]:
    """Calls of each tool in several forms: once, and again and again."""
    made: list[Script] = []
    for spec in specs:
        arguments = arguments_for(spec)
        first, written = next(iter(arguments.values()), ""), json.dumps(arguments)
        for form in (f"<{spec.name}>{first}</{spec.name}>", f"CALL {spec.name} {first}", f"CALL {spec.name} {written}",
                     f'<tool_call>{{"name": "{spec.name}", "arguments": {written}}}</tool_call>'):
            made += [f"I ask.\n{form}", "42"], [form]
    return made


def _quoted(script: Script) -> str:
    return f"{script[0]!r:.60}"


def _content(samples: Sequence[Sample]) -> list[str]:
    """What an episode was, however its branches are called."""
    return sorted(repr([one.prompt_ids.tolist(), one.response_ids.tolist(), one.mask.tolist(), one.transcript, one.finish,
                        one.error, None if one.token_rewards is None else one.token_rewards.tolist()]) for one in samples)


class _Endless(BaseException):
    """An episode that goes on and on. Agents do not catch it."""


@dataclass
class _Watched:
    """The agent, with what it does wrong noted."""

    agent: Any
    problems: dict[str, str] = field(default_factory=dict)
    """Name of a script -> the first thing that was wrong in its episode."""

    def prepare(self, task: Prompt) -> Any:
        return self.agent.prepare(task)

    async def run(self, conversation: Conversation, task: Prompt) -> None:
        try:
            running = self.agent.run(_Conversation(conversation, [0]), task)
            require(inspect.isawaitable(running), "run() must be `async def`")
            await running
        except (EpisodeOver, ToolFailure):
            raise
        except AssertionError as error:
            self.problems.setdefault(task.id, str(error))
            raise
        except Exception as error:  # of UsageError too: it would end the run
            self.problems.setdefault(task.id, f"run() raised {describe(error)}")
            raise RuntimeError("noted") from error


@dataclass
class _Conversation:
    """What the contract has of a dialogue, and nothing else."""

    _real: Any
    _uses: list[int]
    """How often it, and its branches, have been used."""

    @property
    def room(self) -> int:
        return int(self._use().room)

    async def generate(self, stop: Sequence[str] = (), max_new_tokens: int = 0) -> Turn:
        require(not isinstance(stop, str) and all(isinstance(one, str) and one for one in stop),
                f"generate(stop=...) takes a sequence of texts that are not empty, not {stop!r:.40}")
        turn: Turn = await self._use().generate(stop, max_new_tokens)
        return turn

    def show(self, text: str, role: str = "user", name: str = "") -> None:
        require(isinstance(text, str), f"show() takes a text, not {a(text)}")
        self._use().show(text, role, name)

    def send(self, messages: Sequence[Mapping[str, Any]]) -> None:
        self._use().send(messages)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        require(isinstance(name, str) and isinstance(arguments, Mapping),
                f"call() takes a name and a mapping, not {a(name)} and {a(arguments)}")
        return str(await self._use().call(name, arguments))

    def earn(self, reward: float) -> None:
        require(math.isfinite(reward), f"earn() takes a finite number, not {reward}")
        self._use().earn(reward)

    def branch(self, prompt: Prompt) -> _Conversation:
        return _Conversation(self._use().branch(prompt), self._uses)

    def _use(self) -> Any:
        self._uses[0] += 1
        if self._uses[0] > MOST_USES:
            raise _Endless(f"run() has used its conversation {MOST_USES} times and goes on: does it go on after EpisodeOver?")
        return self._real
