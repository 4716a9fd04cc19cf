"""What is gathered for a step, and which of it is trained."""

from __future__ import annotations

import math
import random

import pytest
import torch

from rlinf_cli.contracts.algorithm import Algorithm
from rlinf_cli.errors import RunError
from rlinf_cli.rl.statistics import left_out
from rlinf_cli.workers.gathering import StepSamples, first_groups

NAN = math.nan


class Dynamic(Algorithm):
    """Trains groups whose rewards differ, in up to three rounds."""

    rounds = 3

    def takes_part(self, returns):
        count = int(returns.groups.max()) + 1
        low, high = (torch.zeros(count).scatter_reduce(0, returns.groups, returns.rewards, how, include_self=False)
                     for how in ("amin", "amax"))
        return (low != high)[returns.groups]


class Supervised(Algorithm):
    supervised = True


@pytest.fixture
def gathered(configure):
    """`gathered(algorithm, [group, ...], ...)`: a step of so many rounds, of two prompts."""

    def make(algorithm, *rounds):
        made = StepSamples(algorithm, configure("rollout.prompts=2"))
        for groups in rounds:
            made.add(groups)
        return made

    return make


def groups_of(samples):
    return list(dict.fromkeys(one.group_id for one in samples))


def test_samples_are_in_the_order_of_their_ids_round_by_round(gathered, group):
    step = gathered(Algorithm(None), [group("0-3", 1, 0), group("0-1", 0, 1)], [], [group("0-2", 0, 1)])
    assert [one.id for one in step.all] == ["0-1/0000", "0-1/0001", "0-3/0000", "0-3/0001", "0-2/0000", "0-2/0001"]


def test_without_dynamic_sampling_everything_with_a_reward_is_trained(gathered, group):
    step = gathered(Algorithm(None), [group("0-1", 1, 1, NAN), group("0-2", 0, 1)])
    assert [one.id for one in step.chosen()] == ["0-1/0000", "0-1/0001", "0-2/0000", "0-2/0001"]
    metrics = step.metrics(0)
    assert metrics["reward/errors"] == 1
    assert not any(name.startswith("rollout/dynamic") for name in metrics)


def test_a_step_is_filled_by_the_first_that_take_part(gathered, group):
    first = [group("0-2", 1, 1), group("0-1", 0, 1)]
    second = [group("0-5", 0, 1), group("0-4", 1, 0), group("0-3", 0, 0)]
    alone = gathered(Dynamic(None), first)
    assert not alone.is_enough()
    assert groups_of(alone.chosen()) == ["0-1"]
    both = gathered(Dynamic(None), first, second)
    assert both.is_enough()
    assert groups_of(both.chosen()) == ["0-1", "0-4"]
    metrics = both.metrics(0)
    assert metrics["rollout/dynamic/rounds"] == 2
    assert metrics["rollout/dynamic/dropped_frac"] == pytest.approx(1 / 5)
    # all that were generated count in the reward
    assert metrics["reward/mean"] == pytest.approx(5 / 10)
    assert metrics["reward/zero_std_frac"] == pytest.approx(2 / 5)


def test_enough_is_exactly_enough(gathered, group):
    step = gathered(Dynamic(None), [group("0-1", 0, 1), group("0-2", 0, 1)])
    assert step.is_enough()
    assert step.metrics(0)["rollout/dynamic/dropped_frac"] == 0.0


def test_nobody_takes_part(gathered, group):
    step = gathered(Dynamic(None), [group("0-1", 1, 1), group("0-2", 0, 0)])
    assert step.chosen() == []
    assert not step.is_enough()


@pytest.mark.parametrize(("error", "said"), [
    ("ValueError: no such unit", "4 of 4 failed, the first with ValueError: no such unit"),
    ("", "no sample of this step can be trained"),
])
def test_a_step_without_rewards_says_why(gathered, group, error, said):
    step = gathered(Dynamic(None), [group("0-1", NAN, NAN, error=error), group("0-2", NAN, NAN, error=error)])
    assert not step.is_enough()
    with pytest.raises(RunError, match=said):
        step.chosen()


def test_examples_need_no_reward(gathered, group):
    step = gathered(Supervised(None), [group("0-1", NAN, length=2), group("0-2", NAN, length=4)])
    assert groups_of(step.chosen()) == ["0-1", "0-2"]
    assert step.metrics(7) == {"rollout/response_len/mean": 3.0, "rollout/response_len/max": 4.0,
                               "rollout/response_len/clip_frac": 0.0, "rollout/prompt_len/mean": 4.0, "actor/samples": 2.0}
    assert gathered(Supervised(None)).chosen() == []
    assert gathered(Supervised(None)).metrics(7) == {"actor/samples": 0.0}


def test_the_first_groups_need_not_lie_together(group):
    (a, b), (c, d), (e,) = group("x", 0, 1), group("y", 0, 1), group("z", 0)
    assert first_groups([a, c, e, b, d], 2) == [a, c, b, d]
    assert first_groups([a, b], 5) == [a, b]


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_lost_and_the_order_of_arrival_does_not_matter(gathered, group, seed):
    """Scenario S4: what was generated is trained, or left out for a reason that is known."""
    noise = random.Random(seed)
    rounds = [[group(f"0-{10 * number + n}", *(noise.choice([0, 1, NAN]) for _ in range(3))) for n in range(5)]
              for number in range(2)]
    step = gathered(Dynamic(None), *rounds)
    chosen = step.chosen()
    shuffled = gathered(Dynamic(None), *([*map(list, noise.sample(groups, 5))] for groups in rounds))
    assert [one.id for one in shuffled.chosen()] == [one.id for one in chosen]
    produced = {one.id for groups in rounds for one_group in groups for one in one_group}
    trained, unrewarded = {one.id for one in chosen}, set(left_out(step.all))
    rest = [one for one in step.all if one.id not in trained | unrewarded]
    by_group = {name: {one.reward for one in step.all if one.group_id == name and one.id not in unrewarded}
                for name in groups_of(rest)}
    surplus = [name for name, rewards in by_group.items() if len(rewards) > 1]
    assert {one.id for one in step.all} == produced
    assert not trained & unrewarded
    assert len(groups_of(chosen)) <= 2
    assert step.metrics(0)["rollout/dynamic/dropped_frac"] == pytest.approx(len(surplus) / 10)
    assert step.metrics(0)["reward/errors"] == sum(math.isnan(one.reward) for one in step.all)


def accounts(step):
    return {name: value for name, value in step.metrics(0).items() if name == "actor/samples" or name.startswith("actor/dropped")}


@pytest.mark.parametrize(("algorithm", "rounds", "found"), [
    (Algorithm(None), [[("0-1", 1, 0), ("0-2", 0, 1)]], {"actor/samples": 4}),
    (Algorithm(None), [[("0-1", 1, NAN, 0), ("0-2", 0, NAN)]], {"actor/samples": 2, "actor/dropped/no_reward": 3}),
    (Dynamic(None), [[("0-1", 1, 1), ("0-2", 0, 1)]], {"actor/samples": 2, "actor/dropped/no_part": 2}),
    (Dynamic(None), [[("0-1", 0, 1), ("0-2", 0, 1)], [("0-3", 1, 0), ("0-4", 1, NAN)]],
     {"actor/samples": 4, "actor/dropped/surplus": 2, "actor/dropped/no_reward": 2}),
])
def test_every_sample_that_came_is_trained_or_dropped_for_a_reason(gathered, group, algorithm, rounds, found):
    """Scenario S4."""
    step = gathered(algorithm, *([group(*one) for one in groups] for groups in rounds))
    assert accounts(step) == found
    assert sum(accounts(step).values()) == len(step.all)


def test_a_sample_without_a_token_to_train_is_counted_as_that(gathered, group):
    cut = group("0-1", 1, 0)
    cut[0].mask[:] = False
    assert accounts(gathered(Algorithm(None), [cut, group("0-2", 0, 1)])) == {"actor/samples": 3, "actor/dropped/empty": 1}
