"""From experience to what each rank trains: against a literal transcription, whatever the split."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from rlinf_cli.plugins.testing import make_segment
from rlinf_cli.workers.transitions import deal_segments, in_same_episode, joined
from rlinf_grpo.algorithm import GRPO
from rlinf_grpo.config import GRPOConfig
from rlinf_ppo.algorithm import PPO
from rlinf_ppo.config import PPOConfig

GAMMA, LAMBDA = 0.9, 0.8
PLAIN = PPOConfig(gamma=GAMMA, gae_lambda=LAMBDA, normalize_values=False, normalize_advantages=False)


@dataclass
class Keys:
    epochs: int = 2
    minibatches: int = 3


@dataclass
class Config:
    seed: int = 4
    algorithm: Keys = None


def config(epochs=2, minibatches=3):
    return Config(algorithm=Keys(epochs, minibatches))


def deal(segments, algorithm=None, world=1, **keys):
    return deal_segments(segments, algorithm or PPO(PLAIN), config(**keys), 5, world)


def literal(segment, e):
    """Advantages of environment e, each summed forward on its own from what the episode gave."""
    rewards, values = segment.rewards[:, e].astype(float), segment.values[:, e].astype(float)
    found = []
    for start in range(len(rewards)):
        total, factor = 0.0, 1.0
        for t in range(start, len(rewards)):
            if segment.terminated[t, e]:
                after = 0.0
            elif segment.truncated[t, e]:
                after = float(segment.final_values[t, e])
            else:
                after = values[t + 1]
            total += factor * (rewards[t] + GAMMA * after - values[t])
            factor *= GAMMA * LAMBDA
            if segment.terminated[t, e] or segment.truncated[t, e]:
                break
        found.append(total)
    return found


def test_advantages_never_cross_an_end():
    """Scenario N5."""
    segment = make_segment(steps=20, environments=5)
    assert segment.terminated.any()
    assert segment.truncated.any()
    segment.values[1:][segment.terminated | segment.truncated] = 1e6  # of what follows an automatic reset
    segment.values[0] = 1.0
    found = deal([segment]).portions[0].transitions
    expected = np.stack([literal(segment, e) for e in range(5)], 1)
    np.testing.assert_allclose(found.advantages.reshape(20, 5), expected, rtol=2e-5, atol=1e-4)
    np.testing.assert_allclose(found.value_targets.reshape(20, 5), expected + segment.values[:-1], rtol=2e-5, atol=1e-4)


def test_an_end_that_is_both_does_not_go_on():
    segment = make_segment(steps=1, environments=1)
    segment.terminated[:], segment.truncated[:], segment.final_values[:] = True, True, 50.0
    found = deal([segment]).portions[0].transitions
    assert found.advantages.tolist() == pytest.approx([float(segment.rewards[0, 0] - segment.values[0, 0])])


def rows_of(transitions):
    """Each row as bytes: observations tell them apart."""
    return [row.tobytes() for row in transitions.observations]


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_together_train_what_one_would(world):
    segment = make_segment()
    alone, together = deal([segment]), deal([segment], world=world)
    assert together.metrics == alone.metrics
    (one,) = alone.portions
    for step in range(6):
        whole = one.minibatches[step]
        expected = sorted((rows_of(one.transitions)[i], w) for i, w in zip(whole.rows, whole.weights))
        found = sorted((rows_of(portion.transitions)[i], w) for portion in together.portions
                       for i, w in zip(portion.minibatches[step].rows, portion.minibatches[step].weights))
        assert found == expected
        assert sum(w for _, w in found) == pytest.approx(1)
        sizes = [len(portion.minibatches[step].rows) for portion in together.portions]
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("world", [1, 2, 3])
def test_each_row_is_counted_once(world):
    segment = make_segment()
    counted = [rows_of(portion.transitions)[i] for portion in deal([segment], world=world).portions for i in portion.counted]
    assert len(counted) == len(set(counted)) == segment.steps


def test_a_rank_gets_only_the_rows_that_it_trains():
    portions = deal([make_segment()], world=3, epochs=1).portions
    assert sorted(len(portion.transitions.advantages) for portion in portions) == [24, 24, 24]


def test_each_pass_trains_every_row_once_in_an_order_of_its_own():
    (portion,) = deal([make_segment()]).portions
    passes = [np.concatenate([step.rows for step in portion.minibatches[first : first + 3]]) for first in (0, 3)]
    for rows in passes:
        assert sorted(rows) == list(range(72))
    assert not np.array_equal(*passes)


def test_the_order_in_which_segments_come_does_not_matter():
    first, second = make_segment(environments=3), make_segment(environments=4, first=3)
    forth, back = deal([first, second]), deal([second, first])
    for name in "observations", "sampled", "logprobs", "advantages", "old_values", "value_targets":
        assert np.array_equal(getattr(forth.portions[0].transitions, name), getattr(back.portions[0].transitions, name))


def test_observations_by_name_stay_together():
    segment = make_segment()
    named = replace(segment, observations={"a": segment.observations, "b": segment.observations[..., :2]})
    whole = joined([named])
    assert whole.observations["b"].shape == (12, 6, 2)
    (portion, other) = deal([named], world=2, epochs=1).portions
    assert np.array_equal(portion.transitions.observations["a"][:, :2], portion.transitions.observations["b"])
    assert len(other.transitions.observations["b"]) == 36


def test_a_reward_that_is_no_number_costs_its_episode():
    """Scenario N3."""
    segment = make_segment(steps=20)
    ends = segment.terminated | segment.truncated
    e = next(e for e in range(6) if ends[1:, e].any() and not ends[0, e])
    t = int(ends[:, e].argmax())
    clean = deal([segment], PPO(PPOConfig(gamma=GAMMA, gae_lambda=LAMBDA))).portions[0].transitions
    segment.rewards[t - 1, e] = np.nan
    own = in_same_episode(segment, ~np.isfinite(segment.rewards))
    assert own[: t + 1, e].all()
    assert own.sum() == t + 1
    dealt = deal([segment], PPO(PLAIN))
    found = dealt.portions[0].transitions
    assert dealt.metrics["env/left_out"] == t + 1
    assert dealt.left_out == [f"episode 0 of environment {e}: a reward is nan"]
    assert len(found.advantages) == len(clean.advantages) - (t + 1)
    expected = np.stack([literal(segment, i) for i in range(6)], 1)[~own]
    np.testing.assert_allclose(found.advantages, expected, rtol=2e-5, atol=1e-4)


def test_a_lost_episode_is_not_trained():
    segment = make_segment()
    segment.terminated[3, 2], segment.lost[:4, 2] = True, True
    dealt = deal([segment])
    assert dealt.metrics["env/left_out"] == 4
    assert len(dealt.portions[0].transitions.advantages) == segment.steps - 4


def test_nothing_to_train_is_no_step():
    segment = make_segment()
    segment.lost[:] = True
    for algorithm in PPO(PPOConfig()), GRPO(GRPOConfig()):
        (first, second) = deal([segment], algorithm, world=2).portions
        assert first.minibatches == second.minibatches == []
        assert len(first.counted) == len(second.transitions.advantages) == 0


def test_equal_rewards_teach_grpo_nothing():
    """Scenario N3: exactly 0."""
    segment = make_segment(steps=40)
    segment.episodes[:] = [replace(episode, returned=0.1 + 0.2, group="all") for episode in segment.episodes]
    dealt = deal([segment], GRPO(GRPOConfig()))
    (portion,) = dealt.portions
    assert len(portion.transitions.advantages)
    assert not portion.transitions.advantages.any()


def test_grpo_compares_episodes_that_began_alike():
    segment = make_segment(steps=30)
    dealt = deal([segment], GRPO(GRPOConfig(normalize="none")))
    returned = {(one.environment, one.number): one for one in segment.episodes}
    expected = []
    for t in range(30):
        for e in range(6):
            own = returned.get((e, int(segment.episode_ids[t, e])))
            if own is not None:
                group = [one.returned for one in segment.episodes if one.group == own.group]
                expected.append(own.returned - np.mean(group) if len(group) > 1 else 0.0)
    np.testing.assert_allclose(dealt.portions[0].transitions.advantages, expected, rtol=1e-5, atol=1e-6)
    assert dealt.metrics["env/left_out"] == segment.steps - len(expected)


def test_moments_of_returns_follow_the_step():
    algorithm = PPO(PPOConfig(gamma=GAMMA, gae_lambda=LAMBDA))
    segment = make_segment(steps=50)
    dealt = deal([segment], algorithm)
    plain = deal([segment]).portions[0].transitions
    assert algorithm.state["weight"] == 0
    assert dealt.state["weight"] == segment.steps
    assert dealt.state["mean"] == pytest.approx(plain.value_targets.mean(), abs=1e-5)
    targets = dealt.portions[0].transitions.value_targets
    assert (targets.mean(), targets.std()) == (pytest.approx(0, abs=1e-5), pytest.approx(1, abs=1e-4))
    advantages = torch.from_numpy(dealt.portions[0].transitions.advantages)
    assert advantages.mean().item() == pytest.approx(0, abs=1e-6)
    assert advantages.std(correction=0).item() == pytest.approx(1, abs=1e-3)
