"""`check_agent` and `check_tool` find each of these faults, in an agent or a tool that is otherwise good."""

import asyncio
import contextlib
import math
import re
from dataclasses import replace

import pytest

from rlinf_cli.api import EpisodeOver, ToolError, ToolSpec, UsageError
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.plugins.testing import agent as checking
from rlinf_cli.plugins.testing import check_agent, check_tool, play_episode
from rlinf_cli.runs.plugin_check import check_plugin


class Agent:
    """Calls the tool `echo` with a turn that begins with `say `, and ends with the turn after it."""

    def __init__(self, config, tools):
        self.tools = [tool.name for tool in tools]

    def prepare(self, task):
        return task

    async def run(self, conversation, task):
        turn = await conversation.generate()
        if turn.text.startswith("say ") and "echo" in self.tools:
            conversation.show(await conversation.call("echo", {"text": turn.text[4:]}), "tool", "echo")
            await conversation.generate()


class Agents:
    class Shares(Agent):
        seen = 0

        async def run(self, conversation, task):
            await super().run(conversation, task)
            self.seen += 1
            conversation.show(f"number {self.seen}")

    class Mixes(Agent):
        async def run(self, conversation, task):
            self.turn = await conversation.generate()
            await conversation.call("echo", {"text": self.turn.text})
            conversation.show(self.turn.text)

    class GoesOnAfterTheEnd(Agent):
        async def run(self, conversation, task):
            while True:
                with contextlib.suppress(EpisodeOver):
                    await conversation.generate()

    class CallsForEver(Agent):
        async def run(self, conversation, task):
            while True:
                await conversation.call("echo", {"text": "again"})

    class ExpectsAnAnswer(Agent):
        async def run(self, conversation, task):
            return (await conversation.generate()).text.split("<answer>")[1]

    class ReadsJson(Agent):
        async def run(self, conversation, task):
            turn = await conversation.generate()
            if turn.text.startswith("{"):
                raise UsageError("no template for this")

    class EarnsFirst(Agent):
        async def run(self, conversation, task):
            conversation.earn(1.0)

    class EarnsNothing(Agent):
        async def run(self, conversation, task):
            await conversation.generate()
            conversation.earn(math.nan)

    class StopsWithLetters(Agent):
        async def run(self, conversation, task):
            await conversation.generate(stop="</s>")

    class ReachesInside(Agent):
        async def run(self, conversation, task):
            await conversation.generate()
            conversation.transcript.said.clear()

    class TrainsNothing(Agent):
        async def run(self, conversation, task):
            await conversation.generate()
            conversation._real.transcript._masks[-1][:] = False

    class ShowsNumbers(Agent):
        async def run(self, conversation, task):
            await conversation.generate()
            conversation.show(42)

    class NotAsync(Agent):
        def run(self, conversation, task):
            return None

    class ChangesTasks(Agent):
        def prepare(self, task):
            if task.messages:
                task.messages.append({"role": "user", "content": "Use tools."})
            return task

    class Counts(Agent):
        count = 0

        def prepare(self, task):
            self.count += 1
            return replace(task, text=f"{self.count}: {task.text}", messages=None)

    class Renames(Agent):
        def prepare(self, task):
            return replace(task, id=f"{task.id}-agent")

    class GivesAText(Agent):
        def prepare(self, task):
            return task.text

    class RefusesTasks(Agent):
        def prepare(self, task):
            raise UsageError("no such task")

    class NeedsASearch(Agent):
        def __init__(self, config, tools):
            raise UsageError("it needs the tool search")

    class Raises(Agent):
        def __init__(self, config, tools):
            raise KeyError("tools")


AGENTS = {
    "Shares": "was another one among others than alone: one object serves all episodes, so what belongs to one stays in run()",
    "Mixes": "was another one among others than alone",
    "GoesOnAfterTheEnd": "run() has used its conversation 1000 times and goes on: does it go on after EpisodeOver?",
    "CallsForEver": "run() has used its conversation 1000 times and goes on",
    "ExpectsAnAnswer": "run() raised IndexError: list index out of range, where the policy said '' (with 4 turns and ",
    "ReadsJson": "run() raised UsageError: no template for this, where the policy said",
    "EarnsFirst": "run() raised ValueError: a turn's reward comes after the turn",
    "EarnsNothing": "earn() takes a finite number, not nan",
    "StopsWithLetters": "generate(stop=...) takes a sequence of texts that are not empty, not '</s>'",
    "ReachesInside": "has no attribute 'transcript'",
    "TrainsNothing": "trains other tokens than those that the policy made: an agent only appends",
    "ShowsNumbers": "show() takes a text, not a int",
    "NotAsync": "run() must be `async def`",
    "ChangesTasks": "prepare() changes the task that it is given: use dataclasses.replace",
    "Counts": "prepare() gives something else when it sees a task again",
    "Renames": "prepare() must leave id and answer of the task as they are",
    "GivesAText": "prepare() must give a rlinf_cli.api.Prompt, not a str",
    "RefusesTasks": "prepare() refuses a task that is a text, and one of messages: no such task",
    "NeedsASearch": "it refuses the tools that it was built with here (echo): it needs the tool search (give check_agent",
    "Raises": "it raised KeyError: 'tools', where it was checked whether it takes these tools",
}


@pytest.mark.parametrize("name", AGENTS)
def test_agent(name):
    with pytest.raises(AssertionError, match=re.escape(AGENTS[name])):
        check_agent(getattr(Agents, name))


def test_a_good_agent():
    check_agent(Agent, scripts=[["say hello", "so"], ["say hello"]])
    check_agent(Agent, tools=[])


def test_an_agent_with_sub_agents():
    class Divides(Agent):
        async def run(self, conversation, task):
            await conversation.generate()
            branches = [conversation.branch(replace(task, text=f"part {number}", messages=None)) for number in range(3)]
            turns = await asyncio.gather(*[branch.generate(max_new_tokens=20) for branch in branches])
            conversation.send([{"role": "user", "content": turn.text} for turn in turns])
            await conversation.generate()

    check_agent(Divides)


def test_what_only_an_own_script_brings_about_is_found():
    class Breaks(Agent):
        async def run(self, conversation, task):
            if (await conversation.generate()).text == "say nothing":
                raise ZeroDivisionError("oops")

    check_agent(Breaks)
    with pytest.raises(AssertionError, match="run\\(\\) raised ZeroDivisionError: oops, where the policy said 'say nothing'"):
        check_agent(Breaks, scripts=[["say nothing"]])


def test_an_episode_that_waits_for_ever_is_told(monkeypatch):
    class Waits(Agent):
        async def run(self, conversation, task):
            await asyncio.Event().wait()

    monkeypatch.setattr(checking, "LONGEST_S", 0.05)
    with pytest.raises(AssertionError, match=r"episodes have not ended 0.05 s after they began"):
        check_agent(Waits)


def test_a_tool_that_fails_is_not_the_agents_fault():
    class Down(Tool):
        async def call(self, name, arguments):
            raise OSError("the line is down")

    check_agent(Agent, tools=[Down(None)], scripts=[["say hello", "so"]])
    sample = play_episode(Agent(None, Tool(None).specs()), ["say hello", "so"], [Down(None)])
    assert "the line is down" in sample.error


def test_an_episode_is_played():
    sample = play_episode(Agent(None, Tool(None).specs()), ["say hello", "so"], [Tool(None)])
    texts = [(said.role, said.text) for said in sample.transcript]
    assert texts == [("policy", "say hello"), ("tool", "hello"), ("policy", "so")]
    assert (sample.prompt, sample.response, sample.turns, sample.error) == ("What is 6 times 7?", "so", 2, "")


class Tool:
    """Says a text again."""

    def __init__(self, config):
        self.config = config

    def specs(self):
        return [spec()]

    async def open(self):
        pass

    async def call(self, name, arguments):
        await asyncio.sleep(0)
        return arguments["text"]

    async def close(self):
        pass


def spec(**changes):
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    return replace(ToolSpec("echo", "Say it again.", parameters, cacheable=True), **changes)


def told(*specs):
    return type("Told", (Tool,), {"specs": lambda self: list(specs)})


class Tools:
    class Raises(Tool):
        async def open(self):
            raise OSError("no such index")

    class NotAsync(Tool):
        def open(self):
            return None

    class KnowsNothingYet(Tool):
        index = None

        async def open(self):
            self.index = ["text"]

        def specs(self):
            return [spec(description=f"Say {self.index[0]} again.")]

    class Counts(Tool):
        count = 0

        def specs(self):
            self.count += 1
            return [spec(description=f"Say it again, for the {self.count}. time.")]

    class AnswersNumbers(Tool):
        async def call(self, name, arguments):
            return 42

    class Refuses(Tool):
        async def call(self, name, arguments):
            raise ToolError("not today.")

    class Fails(Tool):
        async def call(self, name, arguments):
            raise KeyError("text")

    class Eats(Tool):
        async def call(self, name, arguments):
            return arguments.pop("text")

    class MixesUp(Tool):
        async def call(self, name, arguments):
            self.text = arguments["text"]
            await asyncio.sleep(0)
            return self.text

    class KeepsItsLock(Tool):
        is_free = True

        async def call(self, name, arguments):
            if not self.is_free:
                raise RuntimeError("another call is under way")
            self.is_free = len(arguments["text"]) != 1
            await asyncio.sleep(0)
            self.is_free = True
            return arguments["text"]

    class ClosesBadly(Tool):
        async def close(self):
            raise OSError("already closed")


TOOLS = {
    Tools.Raises: "it raised OSError: no such index, where it was checked whether it opens",
    Tools.NotAsync: "open() must be `async def`",
    Tools.KnowsNothingYet: "where it was checked whether it tells what is known before it is opened",
    Tools.Counts: "specs() gives others when it is asked again",
    Tools.AnswersNumbers: "call('echo', {'text': 'a'}) must answer with a text, not a int",
    Tools.Refuses: "call('echo', {'text': 'a'}) is refused, as a mistake of the policy: not today.",
    Tools.Fails: "call('echo', {'text': 'a'}) raised KeyError: 'text'",
    Tools.Eats: "call('echo', ...) changes its arguments",
    Tools.MixesUp: "echo says that it is cacheable, but {'text': 'b'} gets 'b' alone and 'a' among others",
    Tools.ClosesBadly: "it raised OSError: already closed, where it was checked whether it closes",
    told(): "specs() must give rlinf_cli.api.ToolSpec, at least one",
    told({"name": "echo"}): "must give what is known by then, or nothing; it gave [{'name': 'echo'}]",
    told(spec(), spec()): "specs() has a name twice: echo, echo",
    told(spec(name="say-it")): "a function is called 'say-it': names are made of letters, digits and _",
    told(spec(description=" ")): "echo has no description",
    told(spec(cacheable=1)): "cacheable of echo must be a bool, not a int",
    told(spec(parameters={"text": "string"})): "parameters of echo must be a JSON schema of type object",
    told(spec(parameters={"type": "object", "default": {1}})): "parameters of echo cannot be written as JSON",
    told(spec(parameters={"type": "object", "properties": {"text": {"type": "text"}}})): "argument text of echo must be a schema",
    told(spec(parameters={"type": "object", "required": ["text"]})): "echo needs text, which its properties do not have",
}


@pytest.mark.parametrize("tool", TOOLS)
def test_tool(tool):
    with pytest.raises(AssertionError, match=re.escape(TOOLS[tool])):
        check_tool(tool, None, [("echo", {"text": "a"}), ("echo", {"text": "b"})])


def test_a_tool_that_does_not_survive_a_call_that_is_given_up():
    with pytest.raises(AssertionError, match="raised RuntimeError: another call is under way"):
        check_tool(Tools.KeepsItsLock, None, [("echo", {"text": "a"})])


@pytest.mark.parametrize(("name", "arguments", "told"), [
    ("sing", {"text": "a"}, "specs\\(\\) has no 'sing', but echo"), ("echo", {}, "echo needs text"),
    ("echo", {"text": 3}, "must be of type string")])
def test_a_call_that_does_not_fit_is_told(name, arguments, told):
    with pytest.raises(AssertionError, match=told):
        check_tool(Tool, None, [(name, arguments)])


def test_a_good_tool():
    check_tool(Tool, None, [("echo", {"text": "a"}), ("echo", {"text": "b"})])
    check_tool(Tool)


def test_an_agent_is_checked_with_the_tools_of_its_preset(site):
    site.add("rlinf-needy", {"needy": "needy_hooks"}, needy_hooks="""
        from rlinf_cli.api import Extension, UsageError, hookimpl

        @hookimpl
        def register_agents():
            return [Extension("needy", target=f"{__name__}:Needy", preset={"tools.name": "calculator"}),
                    Extension("needier", target=f"{__name__}:Needy")]

        class Needy:
            def __init__(self, config, tools):
                if [tool.name for tool in tools] != ["calculator"]:
                    raise UsageError("it needs tools.name=calculator")

            def prepare(self, task):
                return task

            async def run(self, conversation, task):
                await conversation.generate()
    """)
    plugins = load_plugins()
    found = {one.extension: one for one in check_plugin(plugins.info("needy"), plugins) if one.check == "contract"}
    assert found["agent needy"].state == "ok"
    assert "it refuses the tools that it was built with here (echo): it needs" in found["agent needier"].problem
