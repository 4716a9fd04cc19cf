"""Scenario S4 for episodes: what is begun is trained, or failed and counted, never trained with a reward of 0 for want of one."""

import asyncio
import contextlib

import pytest

from rlinf_cli.contracts.agent import EpisodeOver
from rlinf_cli.contracts.engine import Sampling
from rlinf_cli.errors import UsageError
from rlinf_cli.rl.trajectory import Prompt
from rlinf_cli.workers.agents.episodes import Episodes, Tally


class Plain:
    """An agent whose episodes are what a function does."""

    def __init__(self, does):
        self.does = does

    def prepare(self, task):
        return task

    async def run(self, conversation, task):
        await self.does(conversation, task)


@pytest.fixture
def episodes(dialogue, scripted):
    """`episodes(does, policy, tools, width)`: a function that runs a group of so many, and gives samples and tally."""

    def made(does, policy, *tools, width=64, count=2, **limits):
        around, tally = dialogue(policy, *tools, **limits).around, Tally()
        running = Episodes(Plain(does), around, width)
        task = Prompt("0-7", text="q?", answer="x", columns={"hops": 1})
        return asyncio.run(running.group(task, count, Sampling(60, stop_token_ids=(1,)), tally)), tally

    return made


async def two_turns(conversation, task):
    await conversation.generate()
    conversation.show("\n", "tool", "echo")
    await conversation.generate()


def test_a_group_has_all_its_episodes_in_order(episodes, scripted):
    samples, tally = episodes(two_turns, scripted("a|", "b|", "c|", "d|"))
    assert [(one.id, one.group_id, one.turns) for one in samples] == [("0-7/0000", "0-7", 2), ("0-7/0001", "0-7", 2)]
    assert sorted(one.response for one in samples) == ["c", "d"]
    assert samples[0].answer == "x"
    assert samples[0].columns == {"hops": 1}
    assert [said.role for said in samples[0].transcript] == ["policy", "tool", "policy"]
    assert samples[0].finish == "stop"
    assert samples[0].mask.tolist() == [True, True, False, True, True]
    assert (tally.episodes, tally.turns, tally.cut, tally.failures) == (2, 4, 0, 0)


def test_one_that_fails_is_not_trained_and_its_cause_is_counted(episodes, scripted, echo):
    async def asks(conversation, task):
        await conversation.generate()
        if conversation.id.endswith("1"):
            conversation.show(await conversation.call("echo", {"text": "a"}))

    samples, tally = episodes(asks, scripted("a|", "b|"), echo(fails=2))
    failed, fine = sorted(samples, key=lambda one: not one.error)
    assert "tool echo failed 2 times, the last time with OSError: the line is down" in failed.error
    assert not failed.mask.any()
    assert failed.reward != failed.reward  # none: not 0
    assert fine.mask.any()
    assert list(tally.failed.values()) == [1]


def test_a_mistake_of_the_agent_is_its_own(episodes, scripted):
    async def breaks(conversation, task):
        await conversation.generate()
        if conversation.id.endswith("1"):
            raise KeyError("oops")

    samples, tally = episodes(breaks, scripted("a|", "b|"))
    assert [bool(one.error) for one in samples] == [False, True]
    assert samples[1].error == "the agent failed: KeyError: 'oops'"
    assert tally.failures == 1


def test_one_that_runs_out_of_room_is_trained_as_a_response_that_was_cut_off(episodes, scripted):
    samples, tally = episodes(two_turns, scripted("abc", "abc"), count=2, tokens=5)
    assert [(one.finish, one.error, len(one.response_ids)) for one in samples] == [("length", "", 3)] * 2
    assert all(one.mask.all() for one in samples)
    assert tally.cut == 2


def test_an_agent_may_let_the_end_pass(episodes, scripted):
    async def last_word(conversation, task):
        await conversation.generate()
        with contextlib.suppress(EpisodeOver):
            conversation.show("x" * 500)

    samples, _ = episodes(last_word, scripted("a|"), count=1, tokens=20, shown=400)
    assert samples[0].finish == "length"


def test_branches_share_the_group_and_fail_with_their_episode(episodes, scripted):
    async def divides(conversation, task):
        await conversation.generate()
        branch = conversation.branch(Prompt("0-7", text="sub"))
        await branch.generate()
        branch.earn(0.5)

    samples, tally = episodes(divides, scripted("a|", "b|"), count=1)
    assert [one.id for one in samples] == ["0-7/0000", "0-7/0000+1"]
    assert {one.group_id for one in samples} == {"0-7"}
    assert [one.leader for one in samples] == ["", "0-7/0000"]
    assert samples[1].token_rewards.tolist() == [0, 0.5]
    assert (tally.episodes, tally.turns) == (1, 2)


def test_no_more_run_at_once_than_may(episodes, scripted):
    now = most = 0

    async def counted(conversation, task):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await conversation.generate()
        now -= 1

    episodes(counted, scripted(*["a|"] * 20), count=20, width=3)
    assert most == 3


def test_what_the_configuration_has_wrong_ends_the_call(episodes, scripted):
    async def refuses(conversation, task):
        raise UsageError("no chat template")

    with pytest.raises(UsageError, match="no chat template"):
        episodes(refuses, scripted())


def test_thousands_are_under_way_at_once(episodes, scripted):
    samples, tally = episodes(two_turns, scripted(*["a|"] * 4000), count=2000, width=4000)
    assert len(samples) == tally.episodes == 2000
