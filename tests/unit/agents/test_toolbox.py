"""Scenario T1 for tools: what hangs, raises or answers garbage is ended at its limit, tried again so often, counted and told."""

import asyncio

import pytest

from rlinf_cli.config.sections import ToolsConfig
from rlinf_cli.contracts.tool import ToolSpec
from rlinf_cli.errors import PluginError
from rlinf_cli.workers.agents import toolbox
from rlinf_cli.workers.agents.toolbox import Toolbox, ToolFailure


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(toolbox, "FIRST_WAIT_S", 0.0)


def opened(*tools, **settings):
    box = Toolbox(tools, ToolsConfig(**{"timeout_s": 5.0, "retries": 2, **settings}))
    asyncio.run(box.open())
    return box


async def all_of(box, *texts):
    return await asyncio.gather(*[box.call("echo", {"text": text}) for text in texts], return_exceptions=True)


def test_a_failure_is_tried_again(echo, run):
    tool = echo(fails=2)
    box = opened(tool)
    assert run(box.call("echo", {"text": "a"})) == "echo a"
    assert tool.called == ["a"] * 3
    usage = box.usage["echo"]
    assert (usage.calls, usage.retries, usage.failures) == (1, 2, 0)


def test_one_that_fails_too_often_gives_up_and_says_why(echo, run):
    box = opened(echo(fails=9))
    with pytest.raises(ToolFailure, match=r"tool echo failed 3 times, the last time with OSError: the line is down"):
        run(box.call("echo", {"text": "a"}))
    assert box.usage["echo"].failures == 1


def test_one_that_hangs_is_ended_at_its_limit_and_the_others_go_on(echo, run):
    slow, fast = echo(seconds=60), echo()
    fast.specs = lambda: [ToolSpec("fast", "", {"type": "object", "properties": {"text": {"type": "string"}}})]
    box = opened(slow, fast, timeout_s=0.05, retries=1)

    async def both():
        return await asyncio.gather(box.call("echo", {"text": "a"}), box.call("fast", {"text": "b"}), return_exceptions=True)

    failure, answer = run(both())
    assert "no answer within tools.timeout_s=0.05 s" in str(failure)
    assert answer == "echo b"


@pytest.mark.parametrize(("arguments", "told"), [
    ({"text": "wrong"}, "Error: you asked for it."), ({}, "Error: echo needs text."),
    ({"text": "a", "more": 1}, "Error: echo does not know more; it takes text."),
    ({"text": 3}, "Error: text of echo must be of type string, not 3."), ({"text": None}, "must be of type string, not None")])
def test_what_the_policy_does_wrong_is_an_answer(echo, run, arguments, told):
    tool = echo()
    box = opened(tool)
    assert told in run(box.call("echo", arguments))
    assert (box.usage["echo"].mistakes, box.usage["echo"].retries) == (1, 0)


def test_a_tool_that_is_not_there(echo, run):
    assert run(opened(echo()).call("sing", {})) == "Error: there is no tool 'sing'. There are: echo."


def test_an_answer_that_is_no_text_is_a_failure(echo, run):
    tool = echo()

    async def garbage(name, arguments):
        return {"not": "a text"}

    tool.call = garbage
    with pytest.raises(ToolFailure, match="it answers with a dict, not with a text"):
        run(opened(tool, retries=0).call("echo", {"text": "a"}))


def test_so_many_calls_at_once(echo, run):
    tool, now, most = echo(), 0, 0

    async def counted(name, arguments):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1
        return ""

    tool.call = counted
    run(all_of(opened(tool, concurrency=4), *map(str, range(40))))
    assert most == 4


def test_equal_questions_are_asked_once(echo, run):
    tool = echo(cacheable=True, seconds=0.01)
    box = opened(tool, cache=2)

    async def talk():
        at_once = await all_of(box, "a", "a", "a", "b")
        return at_once, await all_of(box, "a"), await all_of(box, "c"), await all_of(box, "b")

    at_once, again, _, forgotten = run(talk())
    assert at_once == ["echo a"] * 3 + ["echo b"]
    assert (again, forgotten) == (["echo a"], ["echo b"])
    assert tool.called == ["a", "b", "c", "b"]
    assert box.usage["echo"].cached == 3


def test_what_failed_is_not_remembered(echo, run):
    tool = echo(fails=1, cacheable=True)
    box = opened(tool, retries=0)

    async def talk():
        return [*await all_of(box, "a"), *await all_of(box, "a")]

    failure, answer = run(talk())
    assert isinstance(failure, ToolFailure)
    assert answer == "echo a"


def test_one_that_is_given_up_leaves_the_answer_to_the_others(echo, run):
    """An episode that is cancelled while it waits for an answer that another one waits for too."""
    box = opened(echo(cacheable=True, seconds=0.02))

    async def talk():
        first = asyncio.ensure_future(box.call("echo", {"text": "a"}))
        second = asyncio.ensure_future(box.call("echo", {"text": "a"}))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert run(talk()) == "echo a"


def test_without_a_cache_each_is_asked(echo, run):
    tool = echo(cacheable=True)
    box = opened(tool, cache=0)

    async def talk():
        await all_of(box, "a", "a")

    run(talk())
    assert tool.called == ["a", "a"]


def test_two_tools_of_one_name_are_refused(echo):
    with pytest.raises(PluginError, match=r"two tools of tools\.name= offer a function 'echo'"):
        opened(echo(), echo())


def test_tools_are_closed(echo, run):
    tool = echo()
    box = opened(tool)
    run(box.close())
    assert not tool.is_open
