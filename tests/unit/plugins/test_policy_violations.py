"""`check_policy` finds each of these faults, in a policy that is otherwise good."""

from dataclasses import replace

import pytest
import torch

from rlinf_cli.api import Acted, Evaluated
from rlinf_cli.plugins.testing import check_policy


class Good(torch.nn.Module):
    chunk = 1

    def __init__(self, config, observation_space, action_space):
        super().__init__()
        (inputs,), (self.noise_size,) = observation_space.shape, action_space.shape
        self.mean, self.value = torch.nn.Linear(inputs, self.noise_size), torch.nn.Linear(inputs, 1)

    @torch.no_grad()
    def act(self, observation, noise, deterministic=False):
        sampled = self.mean(observation) if deterministic else self.mean(observation) + noise
        seen = self.evaluate(observation, sampled)
        return Acted(sampled.clamp(-1, 1), sampled, seen.logprobs, seen.values)

    def evaluate(self, observation, sampled):
        density = torch.distributions.Normal(self.mean(observation), 1.0)
        return Evaluated(density.log_prob(sampled).sum(1, keepdim=True), density.entropy().sum(1, keepdim=True),
                         self.value(observation)[:, 0])

    @torch.no_grad()
    def values(self, observation):
        return self.value(observation)[:, 0]

    def statistics(self, observation):
        return {"sum": observation.sum(0)}

    def absorb(self, statistics): ...


class ChunkOfNothing(Good):
    chunk = 0


class OtherProbabilities(Good):
    def act(self, observation, noise, deterministic=False):
        acted = super().act(observation, noise, deterministic)
        return replace(acted, logprobs=acted.logprobs + 0.01)


class OneNumberAnAction(Good):
    def act(self, observation, noise, deterministic=False):
        acted = super().act(observation, noise, deterministic)
        return replace(acted, logprobs=acted.logprobs[:, 0])


class LooksAtOthers(Good):
    def act(self, observation, noise, deterministic=False):
        return super().act(observation - observation.mean(0), noise, deterministic)


class OutOfBounds(Good):
    def act(self, observation, noise, deterministic=False):
        acted = super().act(observation, noise, deterministic)
        return replace(acted, actions=acted.sampled)


class AlwaysDraws(Good):
    def act(self, observation, noise, deterministic=False):
        return super().act(observation, noise)


class KeepsAnAttribute(Good):
    def __init__(self, *given):
        super().__init__(*given)
        self.shift = torch.randn(())

    def evaluate(self, observation, sampled):
        return super().evaluate(observation + self.shift, sampled)


class LearnsNoValues(Good):
    def evaluate(self, observation, sampled):
        found = super().evaluate(observation, sampled)
        return replace(found, values=0 * found.values)


class Means(Good):
    def statistics(self, observation):
        return {"mean": observation.mean(0)}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


def test_a_good_one_has_none():
    check_policy(Good, None)


@pytest.mark.parametrize(("policy", "sentence"), [
    (ChunkOfNothing, "chunk must be a number of at least 1, not 0"),
    (OtherProbabilities, "logprobs of evaluate() are up to 0.01 from those of act()"),
    (OneNumberAnAction, "logprobs must be float32 [E, K]"),
    (LooksAtOthers, "others where other environments are acted in beside"),
    (OutOfBounds, "is not of the space Box(-1.0, 1.0, (2,), float32)"),
    (AlwaysDraws, "act() with deterministic=True depends on the noise"),
    (KeepsAnAttribute, "another instance with the same state_dict acts otherwise"),
    (LearnsNoValues, "values of evaluate() have no gradient to any parameter"),
    (Means, "statistics()['mean'] of parts do not add up to that of all: give sums"),
], ids=lambda case: getattr(case, "__name__", ""))
def test_faults(policy, sentence):
    with pytest.raises(AssertionError) as found:
        check_policy(policy, None)
    assert sentence in str(found.value)
