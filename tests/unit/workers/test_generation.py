"""From prompts to samples with a real engine: how many at a time, by which settings, and how the samples of a prompt stay
together."""

import numpy as np
import pytest

from rlinf_cli.contracts.engine import Completion, Sampling
from rlinf_cli.rl.trajectory import Prompt
from rlinf_cli.workers.generation import MANY, Generator, Task, _Group, tasks

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


@pytest.mark.parametrize(("replicas", "slots", "most"), [(1, 30, 6), (2, 30, 3), (1, 6, 2), (1, 1, 1), (4, 300, 2)])
def test_a_replica_takes_what_fits_and_no_more_than_its_share(generator, replicas, slots, most):
    assert generator(f"engine.slots={slots}", replicas=replicas)._most() == most


def test_an_evaluation_fills_the_engine(generator, queue):
    """Its prompts are more than a step's, and want fewer responses."""
    made = generator("engine.slots=32", "eval.k=1", "rollout.prompts=2")
    made.generate(queue(*prompts(1, evaluation=True)), queue())
    assert made._most() == 32
    made.generate(queue(*prompts(1)), queue())
    assert made._most() == 2


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
    group = _Group(Prompt("0-7", "d4=", answer="4", columns={"unit": "m"}), "d4=", np.array([1, 2, 3], np.int32),
                   Task(Sampling(3, seed=1), 2, 1))
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
