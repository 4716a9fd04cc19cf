"""The critic's ranks, in this process: what they tell of samples, what they learn of a step, and what is kept of it."""

import json

import numpy as np
import pytest
import torch

from rlinf_cli.contracts.algorithm import Algorithm, ValueTargets
from rlinf_cli.errors import RunError, UsageError
from rlinf_cli.workers import critic as module
from rlinf_cli.workers.batch import deal, deal_values
from rlinf_cli.workers.critic import CriticWorker
from rlinf_cli.workers.reference import CHUNK

SETTINGS = ("algorithm.name=ppo", "rollout.prompts=4", "rollout.group_size=2", "rollout.max_new_tokens=6",
            "algorithm.minibatches=2", "trainer.lr=0.003", "trainer.warmup_steps=0")


@pytest.fixture
def worker(start, configure, tiny):
    """`worker(*settings, **more)`."""
    return lambda *settings, **more: start(CriticWorker, configure(f"model.name={tiny}", *SETTINGS, *settings), **more)


@pytest.fixture
def groups(sample):
    """Four prompts of two samples; some tokens are not trained. `groups(6)`: of six prompts."""

    def make(count=4):
        noise = np.random.default_rng(5)

        def one(name, number):
            ids = noise.integers(3, 27, noise.integers(2, 6)).astype(np.int32)
            return sample(name, number, float(number), len(ids), number, response_ids=ids,
                          prompt_ids=noise.integers(3, 27, 4).astype(np.int32))

        return [[one(f"0-{group}", number) for number in range(2)] for group in range(count)]

    return make


def test_it_values_every_token_and_keeps_the_groups_for_itself(worker, groups, queue):
    critic, valued, kept = worker(), queue(), queue()
    result = critic.estimate(queue(*groups(CHUNK + 2)), valued, kept)
    assert result.chunks > 1
    assert not result.metrics
    assert [[one.id for one in group] for group in valued.items] == [[one.id for one in group] for group in groups(CHUNK + 2)]
    assert kept.items == valued.items
    for one in (one for group in valued.items for one in group):
        assert one.values.dtype == np.float32
        assert one.values.tolist() == [0.0] * len(one.response_ids)  # a new head


def test_values_are_in_units_of_the_reward(worker, groups, queue, monkeypatch):
    critic, valued = worker(), queue()
    critic._algorithm.state = {**critic._algorithm.state, "weight": 10.0, "mean": 5.0, "variance": 4.0}
    monkeypatch.setattr(critic._trainer, "values", lambda samples: [np.full(len(one.response_ids), 1.5, np.float32)
                                                                    for one in samples])
    critic.estimate(queue(*groups()), valued, queue())
    assert {value for group in valued.items for one in group for value in one.values.tolist()} == {8.0}


@pytest.mark.parametrize(("deterministic", "sizes"), [("true", {2}), ("false", {8})])
def test_last_bits_do_not_depend_on_what_came_together(worker, groups, queue, monkeypatch, deterministic, sizes):
    critic, seen = worker(f"deterministic={deterministic}", granularity=(4, 4)), []
    monkeypatch.setattr(critic._trainer, "values", lambda samples: (seen.append(len(samples)), [
        np.zeros(len(one.response_ids), np.float32) for one in samples])[1])
    critic.estimate(queue(*groups()), queue(), queue())
    assert set(seen) == sizes


def step(critic, groups, queue):
    valued, kept = queue(), queue()
    critic.estimate(queue(*groups), valued, kept)
    return critic.train(kept), [one for group in valued.items for one in group]


def test_it_learns_what_a_step_earned(worker, groups, queue):
    critic = worker()
    errors = []
    for number in range(6):
        result, samples = step(critic, groups(), queue)
        assert critic.trained_steps() == number + 1
        assert (result.count, result.tokens, result.samples) == (0, 0, [])  # the actor tells of these
        assert {"critic/loss", "critic/explained_variance", "critic/grad_norm", "critic/lr"} <= set(result.metrics)
        assert all(name.startswith("critic/") for name in result.metrics)
        errors.append(np.mean([abs(one.values[one.mask] - one.reward).mean() for one in samples]))
    assert errors[-1] < 0.5 * errors[0]
    assert result.metrics["critic/explained_variance"] > 0.5


def test_its_optimiser_steps_are_of_the_actors_samples(worker, groups, queue, configure, tiny):
    critic, valued = worker(), queue()
    critic.estimate(queue(*groups()), valued, queue())
    samples = [one for group in valued.items for one in group]
    config = configure(f"model.name={tiny}", *SETTINGS)
    policy, values = (how(samples, critic._algorithm, config, 3, 2) for how in (deal, deal_values))
    for mine, theirs in zip(values.parts, policy.parts, strict=True):
        assert [[item.sample.id for item in items] for items in mine] == [[item.sample.id for item in items] for items in theirs]
        for own, other in zip((one for items in mine for one in items), (one for items in theirs for one in items), strict=True):
            assert own.weights.tolist() == other.weights.tolist()
            assert not own.targets[~own.sample.mask].any()
    assert values.state == policy.state
    assert values.state["weight"] == sum(int(one.mask.sum()) for one in samples)


def test_a_step_without_rewards_fails(worker, groups, queue):
    critic = worker()
    bare = groups()
    for one in (one for group in bare for one in group):
        one.reward = float("nan")
    with pytest.raises(RunError, match="no sample of this step can be trained"):
        step(critic, bare, queue)
    assert critic.trained_steps() == 0


def test_what_is_saved_goes_on_exactly(worker, groups, queue, tmp_path):
    critic = worker()
    step(critic, groups(), queue)
    critic.save(str(tmp_path))
    assert {one.name for one in tmp_path.iterdir()} == {"critic"}
    state = json.loads((tmp_path / "critic/algorithm.json").read_text())
    assert state == critic._algorithm.state
    again = worker(checkpoint=str(tmp_path), step=1)
    (one, mine), (other, theirs) = step(critic, groups(), queue), step(again, groups(), queue)
    assert one.metrics == other.metrics
    assert [sample.values.tolist() for sample in mine] == [sample.values.tolist() for sample in theirs]
    assert critic._algorithm.state == again._algorithm.state != state
    assert again.trained_steps() == 2


def test_another_model_cannot_be_gone_on_with(worker, groups, queue, tmp_path):
    critic = worker()
    step(critic, groups(), queue)
    critic.save(str(tmp_path))
    with pytest.raises(UsageError, match="does not fit the trainer's model"):
        worker("critic.model=tiny:llama", checkpoint=str(tmp_path))


def test_a_model_and_a_rate_of_its_own(worker, groups, queue):
    critic = worker("critic.model=tiny:llama", "critic.lr=0.01")
    assert type(critic._trainer._policy.model).__name__.startswith("Llama")
    assert step(critic, groups(), queue)[0].metrics["critic/lr"] == 0.01


def test_a_trainer_that_trains_none_is_refused(worker, monkeypatch):
    monkeypatch.setattr(module, "TrainsCritics", int)
    with pytest.raises(UsageError, match=r"trainer\.name=torch trains no critics, which algorithm\.name=ppo needs"):
        worker()


class Odd(Algorithm):
    """Gives its critic nothing but numbers of the token."""

    needs_critic = True

    def value_targets(self, returns):
        count = torch.arange(int(returns.lengths.sum()), dtype=torch.float32)
        return ValueTargets(-count, count), {"critic/mine": 1.0}


def test_targets_lie_at_the_trained_tokens(sample, configure):
    samples = [sample("a", 0, 1.0, 3, masked=1), sample("a", 1, 0.0, 2)]
    dealt = deal_values(samples, Odd(None), configure("rollout.max_new_tokens=4", "algorithm.minibatches=1"), 0, 1)
    items = {item.sample.id: item for item in dealt.parts[0][0]}
    assert items["a/0000"].targets.tolist() == [0, 0, 1]
    assert items["a/0001"].targets.tolist() == [2, 3]
    assert items["a/0001"].old_values.tolist() == [-2, -3]
    assert dealt.metrics == {"critic/mine": 1.0}
    assert dealt.state == {}
