"""From prompts to samples with a real engine: how many at a time, by which settings, and how the samples of a prompt stay
together."""

import numpy as np
import pytest

from rlinf_cli.contracts.engine import Completion, Sampling
from rlinf_cli.flow.channel import Lease
from rlinf_cli.rl.trajectory import Prompt
from rlinf_cli.workers.generation import MANY, Generator, Task, _Group, engine_settings, tasks

SETTINGS = ("rollout.prompts=6", "rollout.group_size=3", "rollout.max_prompt_tokens=4", "rollout.max_new_tokens=5",
            "eval.k=2", "eval.max_new_tokens=9")


@pytest.fixture
def generator(configure, tiny):
    return lambda *settings, replicas=1: Generator(configure(f"model.name={tiny}", *SETTINGS, *settings), "cpu", replicas)


def prompts(count, evaluation=False):
    name = "eval" if evaluation else "0"
    return [Prompt(f"{name}-{number}", f"d{number:02d}=", answer=str(number), columns={"unit": "m"}, evaluation=evaluation)
            for number in range(count)]


def by_group(out):
    return {group[0].group_id: group for group in out.items}


def test_every_prompt_is_answered_by_its_own_settings(generator, queue):
    out = queue()
    generator().generate(queue(*prompts(7), *prompts(5, evaluation=True)), out)
    groups = by_group(out)
    assert len(groups) == 12
    for name, group in groups.items():
        evaluation = name.startswith("eval")
        assert sorted(one.id for one in group) == [f"{name}/{number:04d}" for number in range(2 if evaluation else 3)]
        assert all(0 < len(one.response_ids) <= (9 if evaluation else 5) for one in group)
        assert all((one.answer, one.columns) == (str(int(name.split("-")[1])), {"unit": "m"}) for one in group)
    # temperature 0: both responses to a prompt are the likeliest one
    greedy = [group for name, group in groups.items() if name.startswith("eval")]
    assert all((group[0].response_ids.tolist() == group[1].response_ids.tolist()) for group in greedy)
    assert any(len(one.response_ids) > 5 for group in greedy for one in group)
    drawn = [group for name, group in groups.items() if not name.startswith("eval")]
    assert any(group[0].response_ids.tolist() != group[1].response_ids.tolist() for group in drawn)


@pytest.mark.parametrize("replicas", [2, 6])
def test_what_a_prompt_gets_does_not_depend_on_who_else_is_there(generator, queue, replicas):
    together, apart = queue(), queue()
    generator().generate(queue(*prompts(6), *prompts(6, evaluation=True)), together)
    for number in range(2):
        generator("engine.slots=4", replicas=replicas).generate(
            queue(*prompts(6)[number::2], *prompts(6, evaluation=True)[number::2]), apart)

    def said(out):
        return {one.id: one.response_ids.tolist() for group in out.items for one in group}

    assert said(together) == said(apart)


def watched(made):
    """The sizes of what is submitted, and how many requests there were then at most."""
    sizes, submit = [], made.engine.submit

    def spy(requests):
        submit(requests)
        sizes.append((len(requests), made.engine.pending()))

    made.engine.submit = spy
    return sizes


@pytest.mark.parametrize(("replicas", "slots", "first"), [(1, 30, 6), (2, 30, 3), (1, 6, 4), (2, 6, 2), (1, 1, 1), (4, 300, 2)])
def test_a_replica_takes_what_fits_and_no_more_than_its_share(generator, queue, replicas, slots, first):
    made = generator(f"engine.slots={slots}", replicas=replicas)
    sizes, out = watched(made), queue()
    made.generate(queue(*prompts(7)), out)
    assert sizes[0][0] == 3 * first
    most = slots if replicas > 1 else 2 * slots  # who is alone has the next ones wait in the engine
    assert max(pending for _, pending in sizes) <= max(most, 3)
    assert len(out.items) == 7


def test_an_evaluation_fills_the_engine(generator, queue):
    """Its prompts are more than a step's, and want fewer responses."""
    made = generator("engine.slots=32", "eval.k=1", "rollout.prompts=2")
    sizes = watched(made)
    made.generate(queue(*prompts(100, evaluation=True)), queue())
    assert max(pending for _, pending in sizes) == 2 * 32


def test_a_share_is_taken_in_portions_that_are_worth_their_steps(generator):
    """Of 64 prompts and two replicas, 32 are fair."""
    def portions(*settings, replicas=2):
        made = generator("rollout.prompts=64", "rollout.max_new_tokens=256", *settings, replicas=replicas)
        return [made.portion(False, count) for count in (0, 30, 32, 50)]

    assert portions() == [4, 2, 1, 1]
    assert portions("rollout.max_new_tokens=96") == [11, 2, 1, 1]  # 48 tokens, as far as is known
    assert portions("rollout.max_new_tokens=16") == [32, 2, 1, 1]
    assert portions("deterministic=true") == [32, 2, 1, 1]
    assert portions(replicas=1) == [64, 34, 32, 14]


def test_portions_follow_the_lengths_that_are_seen(generator):
    made = generator("rollout.prompts=64", "rollout.max_new_tokens=256", replicas=2)
    for _ in range(100):
        made.learn_length(False, 3)
    assert made.portion(False, 0) == 32
    assert made.portion(True, 0) > 32, "those of evaluations are others"
    for _ in range(100):
        made.learn_length(False, 40)
    assert made.portion(False, 0) == 16


def test_prompts_are_leased_until_their_samples_are_out(generator, queue):
    asked, out = queue(*prompts(7)), queue()
    put = out.put

    def watch(group, weight, settles):
        (lease,) = settles
        assert lease in asked.leased
        assert lease.item.id == group[0].group_id
        put(group, weight, settles)

    out.put = watch
    generator("engine.slots=6").generate(asked, out)
    assert len(out.items) == 7
    assert not asked.leased


def test_the_settings_of_both_kinds(configure):
    config = configure("seed=7", "rollout.prompts=10", "rollout.group_size=4", "rollout.temperature=0.7", "rollout.top_k=5",
                       "rollout.top_p=0.9", "rollout.min_p=0.1", "rollout.max_new_tokens=6", "eval.k=3", "eval.temperature=0.2",
                       "eval.prompts=20")
    found = tasks(config, (2, 5), 4)
    assert found[False] == Task(Sampling(6, 0.7, 5, 0.9, 0.1, (2, 5), 7), 4, 3)
    assert found[True] == Task(Sampling(6, 0.2, 0, 1.0, 0.0, (2, 5), 7), 3, 5)
    assert tasks(configure("eval.prompts=0"), (), 2)[True].fair == MANY // 2


def test_an_evaluation_may_have_longer_responses(generator, queue):
    out = queue()
    generator("rollout.max_new_tokens=2", "eval.max_new_tokens=12").generate(queue(*prompts(4, evaluation=True)), out)
    assert max(len(one.response_ids) for group in out.items for one in group) > 2


def test_a_group_is_complete_with_its_last_sample():
    prompt = Prompt("0-7", "d4=", answer="4", columns={"unit": "m"})
    group = _Group(Lease(prompt, "prompts", 0), "d4=", np.array([1, 2, 3], np.int32), Task(Sampling(3, seed=1), 2, 1))
    requests = group.requests()
    assert [request.id for request in requests] == ["0-7/0000", "0-7/0001"]
    for number, request in enumerate(reversed(requests)):
        assert not group.complete()
        ids = np.array([ord("4"), 2][: 2 - number], np.int32)
        group.add(Completion(request.id, ids, np.zeros(len(ids), np.float32), np.full(len(ids), 6, np.int32), "stop"), "4")
    assert group.complete()
    last = group.samples[-1]
    assert (last.id, last.group_id, last.answer, last.columns, last.response) == ("0-7/0000", "0-7", "4", {"unit": "m"}, "4")
    assert last.mask.tolist() == [True]
    assert last.versions.tolist() == [6]


def test_a_deterministic_run_asks_the_engine_for_batch_invariance(configure):
    assert not engine_settings(configure()).batch_invariant
    settings = engine_settings(configure("deterministic=true", "engine.slots=7"))
    assert (settings.batch_invariant, settings.slots) == (True, 7)
    assert engine_settings(configure("engine.batch_invariant=true")).batch_invariant


def steps_of(usage, active):
    """Whether the step that reads the prompts makes a token too is a matter of time."""
    return sum(part.get(active, (0, 0))[0] for part in (usage.decoding, usage.mixed))


def test_decode_steps_are_measured_for_few_and_for_many_responses(generator):
    """One length for all, whatever stops a response: so each number is at work alone, until its last step."""
    made = generator("engine.slots=6")
    sizes = watched(made)
    usage = made.measure_decoding(prompts(2), 0.0)
    assert [size for size, _ in sizes] == [1, 2, 4, 6]
    assert set(usage.decoding) == {1, 2, 4, 6}
    # a prompt of four tokens leaves nine of thirteen, of which the first comes with the prompt
    assert {number: steps_of(usage, number) for number in usage.decoding} == dict.fromkeys((1, 2, 4, 6), 13 - 4 - 1)
    assert all(seconds > 0 for _, seconds in usage.decoding.values())
    assert usage.slots == 6
    assert made.engine.pending() == 0


def test_decode_steps_are_measured_again_as_long_as_there_is_time(generator):
    made = generator("engine.slots=2")
    once = steps_of(made.measure_decoding(prompts(1), 0.0), 2)
    again = steps_of(made.measure_decoding(prompts(1), 0.05), 2)
    assert again >= once
    assert again % once == 0
