"""The optimiser steps of a rank, with the real trainer and the real engine."""

import dataclasses

import numpy as np
import pytest
import torch

from rlinf_cli.api import weights_checksum
from rlinf_cli.contracts.algorithm import Algorithm
from rlinf_cli.contracts.trainer import Ranks
from rlinf_cli.errors import RunError
from rlinf_cli.rl.trajectory import Prompt
from rlinf_cli.workers.batch import deal
from rlinf_cli.workers.generation import Generator
from rlinf_cli.workers.learner import Learner, merge

SETTINGS = ("rollout.prompts=3", "rollout.group_size=4", "rollout.max_new_tokens=5", "algorithm.minibatches=2",
            "trainer.lr=0.001", "trainer.warmup_steps=0")


class Watching(Algorithm):
    """Centres rewards, and keeps what its loss was given."""

    def __init__(self, config=None):
        super().__init__(config)
        self.seen = []

    def advantages(self, returns):
        return returns.rewards - returns.rewards.mean(), {}

    def loss(self, inputs):
        self.seen.append(inputs)
        return -(inputs.weights * torch.exp(inputs.logprobs - inputs.old_logprobs) * inputs.advantages).sum(), {}


class Careful(Watching):
    needs_recompute = True


@pytest.fixture
def generated(configure, tiny, queue):
    """`generated("rollout.top_k=3")`: what an engine that is set so says to three prompts, and the configuration."""

    def make(*settings):
        config = configure(f"model.name={tiny}", *SETTINGS, *settings)
        out = queue()
        Generator(config, "cpu", 1).generate(queue(*[Prompt(f"0-{n}", f"d{n}7=", answer="7") for n in range(3)]), out)
        samples = sorted((one for group in out.items for one in group), key=lambda one: one.id)
        for number, one in enumerate(samples):
            one.reward = float(number % 3)
        return samples, config

    return make


@pytest.fixture
def learn():
    """`learn(samples, config, algorithm)`: a step's metrics and the learner after it."""

    def run(samples, config, algorithm):
        trainer = config.extension("trainer").load()(config.settings("trainer"), _directory(config), "cpu", Ranks(), 10)
        learner = Learner(config, algorithm, trainer, 6)
        before = weights_checksum(trainer.named_weights())
        metrics = learner.train(deal(samples, algorithm, config, 6, 1).parts[0])
        assert learner.changed == (weights_checksum(trainer.named_weights()) != before)
        return metrics, learner, trainer

    return run


def _directory(config):
    from pathlib import Path

    return Path(config.model.name)


def test_the_engine_s_log_probabilities_are_taken_where_they_are_the_trainer_s(generated, learn):
    """Scenario N1, and N2 for the temperature: it is part of the distribution that the trainer computes."""
    for temperature in (1.0, 0.6):
        samples, config = generated(f"rollout.temperature={temperature}")
        algorithm = Watching()
        metrics, learner, _ = learn(samples, config, algorithm)
        assert metrics["rollout/logp_diff/max"] < 1e-5
        assert learner.version == 7
        assert learner.changed
        assert all(inputs.old_logprobs is not None and torch.equal(inputs.old_logprobs, inputs.sampled_logprobs)
                   for inputs in algorithm.seen)


@pytest.mark.parametrize("setting", ["rollout.top_k=3", "rollout.top_p=0.6", "rollout.min_p=0.3"])
def test_where_they_are_not_the_trainer_s_own_are_taken_and_nothing_is_corrected(generated, learn, setting):
    """Scenario N2."""
    samples, config = generated(setting)
    algorithm = Watching()
    metrics, _, _ = learn(samples, config, algorithm)
    assert not any("logp_diff" in name for name in metrics)
    first = algorithm.seen[0]
    assert torch.equal(first.sampled_logprobs, first.old_logprobs)
    # on-policy, whatever the engine says: the ratio is 1 in the first optimiser step
    torch.testing.assert_close(first.old_logprobs, first.logprobs.detach(), atol=1e-5, rtol=0)
    sampled = np.concatenate([one.logprobs for one in samples])
    assert np.abs(np.sort(sampled) - np.sort(torch.cat([one.old_logprobs for one in algorithm.seen]).numpy())).max() > 0.05


def test_an_algorithm_that_asks_gets_both(generated, learn):
    samples, config = generated()
    shifted = [dataclasses.replace(one, logprobs=one.logprobs - np.float32(0.25)) for one in samples]
    algorithm = Careful()
    metrics, _, _ = learn(shifted, config, algorithm)
    assert metrics["rollout/logp_diff/mean"] == pytest.approx(0.25, abs=1e-5)
    for inputs in algorithm.seen:
        torch.testing.assert_close(inputs.sampled_logprobs, inputs.old_logprobs - 0.25, atol=1e-5, rtol=0)
    first, second = algorithm.seen
    torch.testing.assert_close(first.old_logprobs, first.logprobs.detach(), atol=1e-5, rtol=0)
    # those of the step's start, not of the optimiser step's
    assert (second.old_logprobs - second.logprobs.detach()).abs().max() > 1e-4


def test_samples_are_scored_once_a_step_however_many_passes(generated, learn, monkeypatch):
    samples, config = generated("algorithm.epochs=3", "rollout.top_k=3")
    asked = []
    kind = config.extension("trainer").load()
    real = kind.log_probs
    monkeypatch.setattr(kind, "log_probs", lambda self, given, *more: asked.append(len(given)) or real(self, given, *more))
    learn(samples, config, Watching())
    assert asked == [12]
    samples, config = generated("algorithm.epochs=3")
    learn(samples, config, Watching())
    assert asked == [12]


def test_a_step_in_which_nobody_takes_part_counts_and_changes_nothing(generated, learn):
    _, config = generated()
    metrics, learner, _ = learn([], config, Watching())
    assert metrics == {"actor/skipped": 1.0}
    assert learner.version == 7
    assert not learner.changed


def test_the_reference_reaches_the_loss(generated, learn):
    samples, config = generated()
    for one in samples:
        one.reference_logprobs = one.logprobs - np.float32(1)
    algorithm = Watching()
    learn(samples, config, algorithm)
    for inputs in algorithm.seen:
        torch.testing.assert_close(inputs.reference_logprobs, inputs.sampled_logprobs - 1)
    some = [dataclasses.replace(one, reference_logprobs=None) for one in samples[:1]] + samples[1:]
    algorithm = Watching()
    learn(some, config, algorithm)
    assert any(inputs.reference_logprobs is None for inputs in algorithm.seen)


def test_numbers_that_are_not_finite_name_the_step(generated, learn):
    class Broken(Watching):
        def loss(self, inputs):
            return inputs.logprobs.sum() * float("nan"), {}

    samples, config = generated()
    with pytest.raises(RunError, match="training stopped in step 7: the loss is nan"):
        learn(samples, config, Broken())


def row(lr, loss, diff):
    return {"actor/lr": lr, "actor/loss": loss, "actor/logp_diff_mean": diff, "actor/logp_diff_max": 2 * diff}


def test_metrics_of_optimiser_steps_are_averaged():
    merged = merge([row(0.1, 1.0, 1e-7), row(0.2, 3.0, 0.5)], True)
    assert merged["actor/loss"] == 2.0
    assert merged["actor/lr"] == 0.2


def test_the_mismatch_is_that_of_the_weights_that_made_the_samples():
    rows = [row(0.1, 1.0, 1e-7), row(0.2, 3.0, 0.5)]
    merged = merge(rows, True)
    assert merged["rollout/logp_diff/mean"] == 1e-7
    assert merged["rollout/logp_diff/max"] == 2e-7
    assert not any("logp_diff_" in name for name in merged)
    assert set(merge(rows, False)) == {"actor/lr", "actor/loss"}
