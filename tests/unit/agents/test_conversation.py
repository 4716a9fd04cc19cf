"""Scenario M1: what is trained are the tokens that were sampled, bit for bit; what was shown has mask 0."""

import asyncio

import pytest

from rlinf_cli.contracts.agent import EpisodeOver
from rlinf_cli.errors import UsageError
from rlinf_cli.rl.trajectory import Prompt
from rlinf_cli.workers.agents.chat import ChatTemplate
from rlinf_cli.workers.agents.conversation import CUT


def policy_text(encoder, dialogue):
    """What is trained, decoded."""
    transcript = dialogue.transcript
    return encoder.tokenizer.decode(transcript.response_ids[transcript.mask].tolist())


def all_text(encoder, dialogue):
    return encoder.tokenizer.decode(dialogue.transcript.ids.tolist())


def test_turns_and_what_is_shown_follow_one_another(encoder, dialogue, run, scripted):
    policy = scripted("<s>a</s>", "b|")
    made = dialogue(policy)

    async def talk():
        assert (await made.generate(stop=("</s>",))).finish == "stop"
        made.show("\nfound\n", "tool", "s")
        assert (await made.generate()).text == "b"

    run(talk())
    assert all_text(encoder, made) == "q?<s>a</s>\nfound\nb<end>"
    assert policy_text(encoder, made) == "<s>a</s>b<end>"
    first, second = (request for request, _, _ in policy.asked)
    assert (first.id, second.id) == ("0-7/0002/0", "0-7/0002/1")
    assert second.prompt_ids.tolist() == made.transcript.ids.tolist()[:-2]
    assert [fresh for _, _, fresh in policy.asked] == [2, 7]
    assert set(made.transcript.versions.tolist()) == {3}


def test_a_template_that_rewrites_earlier_turns_changes_nothing_that_was_said(encoder, dialogue, run, scripted):
    """Rendered anew, the thoughts of the first turn would be gone from what the second one is sampled after."""
    policy = scripted("<think>hm</think>one|", "two|")
    made = dialogue(policy, prompt=Prompt("0-7", messages=[{"role": "user", "content": "q?"}]))

    async def talk():
        await made.generate()
        made.send([{"role": "user", "content": "more"}])
        await made.generate()

    run(talk())
    assert all_text(encoder, made) == "[user]q?<end>\n[assistant]<think>hm</think>one<end>\n[user]more<end>\n[assistant]two<end>"
    assert policy_text(encoder, made) == "<think>hm</think>one<end>two<end>"
    sampled_after = encoder.tokenizer.decode(policy.asked[1][0].prompt_ids.tolist())
    assert "<think>hm</think>" in sampled_after


def test_a_turn_that_was_cut_off_is_ended_before_a_message(encoder, dialogue, run, scripted):
    policy = scripted("x" * 10, "two|")
    made = dialogue(policy, new=10)

    async def talk():
        assert (await made.generate()).finish == "length"
        made.send([{"role": "tool", "name": "s", "content": "more"}])
        await made.generate()

    run(talk())
    assert all_text(encoder, made) == "q?xxxxxxxxxx<end>\n[tool]more<end>\n[assistant]two<end>"
    assert policy_text(encoder, made) == "xxxxxxxxxxtwo<end>"


def test_a_turn_that_ended_with_a_text_is_ended_before_a_message(encoder, dialogue, run, scripted):
    made = dialogue(scripted("go</s>"))
    run(made.generate(stop=("</s>",)))
    made.send([{"role": "user", "content": "more"}])
    assert all_text(encoder, made) == "q?go</s><end>\n[user]more<end>\n[assistant]"


def test_what_is_too_long_to_be_shown_is_cut_and_says_so(encoder, dialogue, run, scripted):
    made = dialogue(scripted("a|"), shown=20)
    run(made.generate())
    made.show("0123456789" * 5)
    shown = made.transcript.said[-1].text
    assert shown.endswith(CUT)
    assert len(encoder.ids(shown)) == 20
    made.show("0123456789" * 2)
    assert made.transcript.said[-1].text == "0123456789" * 2


def test_what_is_no_character_is_shown_as_a_question_mark(encoder, dialogue, run, scripted):
    made = dialogue(scripted("a|"), prompt=Prompt("0-7", messages=[{"role": "user", "content": "q?"}]))
    run(made.generate())
    made.show("x\ud800y")
    made.send([{"role": "tool", "content": "\udc00"}])
    assert [said.text for said in made.transcript.said[1:]] == ["x?y", "\n[tool]?<end>\n[assistant]"]


def test_it_is_over_when_no_room_is_left(encoder, dialogue, run, scripted):
    made = dialogue(scripted("abcde", "f|"), tokens=10, new=5)

    async def talk():
        await made.generate()
        with pytest.raises(EpisodeOver):
            made.show("1234")
        assert made.room == 3
        made.show("123")
        with pytest.raises(EpisodeOver):
            await made.generate()

    run(talk())
    assert made.is_cut
    assert len(made.transcript.ids) == 10


def test_a_turn_gets_no_more_than_there_is_room_for(encoder, dialogue, run, scripted):
    policy = scripted("abcdefgh")
    made = dialogue(policy, tokens=7, new=60)
    assert run(made.generate()).finish == "length"
    assert policy.asked[0][0].sampling.max_new_tokens == 5
    assert made.is_cut


def test_it_is_over_after_so_many_turns(encoder, dialogue, run, scripted):
    made = dialogue(scripted("a|", "b|", "c|"), turns=2)

    async def talk():
        await made.generate()
        await made.generate()
        with pytest.raises(EpisodeOver):
            await made.generate()

    run(talk())
    assert made.transcript.turns == 2
    assert made.is_cut


def test_a_branch_is_a_dialogue_of_its_own(encoder, dialogue, run, scripted, echo):
    policy = scripted("a|", "b|")
    made = dialogue(policy, echo())

    async def talk():
        await made.generate()
        branch = made.branch(Prompt("0-7", text="sub?"))
        await branch.generate()
        branch.earn(1.0)
        return branch

    branch = run(talk())
    assert [one.id for one in made.all()] == ["0-7/0002", "0-7/0002+1"]
    assert all_text(encoder, branch) == "sub?b<end>"
    assert branch.transcript.token_rewards.tolist() == [0, 1]
    assert policy.asked[1][0].id == "0-7/0002+1/0"


def test_a_model_without_a_template_cannot_be_sent_messages(encoder, run):
    class Bare:
        chat_template = None

    with pytest.raises(UsageError, match="no chat template"):
        ChatTemplate(Bare(), "the model").following([{"role": "user", "content": "x"}], ended=True)


def test_a_template_that_refuses_messages_is_told(encoder):
    class Strict:
        chat_template, all_special_tokens = "x", []

        def apply_chat_template(self, messages, **settings):
            raise ValueError("roles must alternate")

    with pytest.raises(UsageError, match="refuses these messages: roles must alternate"):
        ChatTemplate(Strict(), "the model").following([{"role": "tool", "content": "x"}], ended=True)


def test_many_dialogues_go_on_at_once(encoder, dialogue, scripted):
    async def talk():
        await asyncio.gather(*[one.generate() for one in dialogues])

    dialogues = [dialogue(scripted("a|")) for _ in range(50)]
    asyncio.run(talk())
    assert all(one.transcript.turns == 1 for one in dialogues)
