"""A step that is trained while its samples are made: the same as one that is gathered first."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rlinf_cli.api import weights_checksum
from rlinf_cli.contracts.trainer import Ranks
from rlinf_cli.errors import RunError
from rlinf_cli.state.granularity import Bounds
from rlinf_cli.workers.algorithm import build_algorithm
from rlinf_cli.workers.batch import deal
from rlinf_cli.workers.gathering import StepSamples
from rlinf_cli.workers.learner import Learner
from rlinf_cli.workers.streaming import StreamedStep, bounds, can_stream

REFERENCE = "algorithm.kl_coef=0.1"
CASES = {
    "token-mean": (),
    "sequence-mean": ("algorithm.aggregation=sequence-mean",),
    "sequence-sum": ("algorithm.name=dr-grpo",),
    "rloo": ("algorithm.name=rloo", REFERENCE),
    "gspo": ("algorithm.name=gspo", "algorithm.clip_low=0.2", "algorithm.clip_high=0.3"),
    "dropped": ("algorithm.zero_variance=drop", "algorithm.overlong_buffer=0.5", "algorithm.overlong_filter=true"),
    "recomputed": ("algorithm.importance_cap=2", "algorithm.entropy_coef=0.1", REFERENCE),
    "truncated": ("rollout.top_k=3",),
}
ARRIVALS = [[[3], [1, 4], [0, 2]], [[4], [3], [2], [1], [0]]]


@pytest.fixture
def configured(configure, tiny):
    def make(*settings):
        return configure(f"model.name={tiny}", "rollout.prompts=5", "rollout.max_new_tokens=16", "trainer.max_grad_norm=1e9",
                         "trainer.betas=[0.9,0.99]", "trainer.lr=0.001", *settings)

    return make


@pytest.fixture(scope="module")
def groups(sample):
    """Five prompts of three samples; of one all rewards are equal, one sample has none, one no trained token."""
    noise = np.random.default_rng(2)

    def make(number, place):
        length = int(noise.integers(2, 16))
        reward = 0.5 if number == 1 else float("nan") if (number, place) == (2, 0) else float(noise.random())
        masked = length if (number, place) == (3, 1) else place
        return sample(f"0-{number}", place, reward, length, masked=masked, finish="length" if place == 2 else "stop",
                      prompt_ids=noise.integers(3, 27, 3 + number).astype(np.int32),
                      response_ids=noise.integers(3, 27, length).astype(np.int32),
                      logprobs=noise.standard_normal(length).astype(np.float32) - 3,
                      reference_logprobs=noise.standard_normal(length).astype(np.float32) - 3)

    return [[make(number, place) for place in range(3)] for number in range(5)]


def learner_of(config):
    trainer = config.extension("trainer").load()(config.settings("trainer"), Path(config.model.name), "cpu", Ranks(), 40)
    return Learner(config, build_algorithm(config), trainer, 6), trainer


def gradient(trainer, directory):
    directory.mkdir()
    trainer.save(directory)
    moments = load_file(directory / "optimizer.safetensors")
    return torch.cat([moments[name].flatten() for name in sorted(moments) if name.endswith("exp_avg")]) / 0.1


def gathered(config, groups):
    """Metrics and trainer after a step that is gathered first."""
    learner, trainer = learner_of(config)
    samples = StepSamples(build_algorithm(config), config)
    samples.add(groups)
    dealt = deal(samples.chosen(), build_algorithm(config), config, 6, 1)
    return {**samples.metrics(6), **dealt.metrics, **learner.train(dealt.parts[0])}, trainer


def streamed(config, pieces):
    """And after the same that is trained piece by piece."""
    learner, trainer = learner_of(config)
    step = StreamedStep(build_algorithm(config), config, 1)
    for piece in pieces:
        learner.accumulate(step.deal(piece)[0])
    _, metrics = step.result(6)
    metrics |= learner.finish(step.count)
    assert (learner.version, learner.changed) == (7, True)
    return metrics, trainer


@pytest.mark.parametrize("case", CASES)
def test_gradient_loss_and_metrics_are_those_of_the_whole_step(configured, groups, tmp_path, case):
    config = configured(*CASES[case])
    assert can_stream(build_algorithm(config), config)
    expected, whole = gathered(config, groups)
    wanted = gradient(whole, tmp_path / "whole")
    assert wanted.norm() > 1e-3
    for number, arrival in enumerate(ARRIVALS):
        metrics, trainer = streamed(config, [[groups[i] for i in piece] for piece in arrival])
        assert metrics.pop("actor/chunk") == 5 / len(arrival)
        assert metrics == pytest.approx(expected, rel=1e-5, abs=1e-6, nan_ok=True)
        got = gradient(trainer, tmp_path / f"{number}")
        assert float((got - wanted).norm() / wanted.norm()) < 1e-6


@pytest.mark.parametrize(("settings", "can"), [
    (["algorithm.name=grpo"], True), (["algorithm.name=dr-grpo"], True), (["algorithm.name=gspo"], True),
    (["algorithm.name=rloo", REFERENCE], True), (["algorithm.name=dapo", "algorithm.rounds=1"], True),
    (["algorithm.name=dapo"], False), (["algorithm.name=reinforce++"], False), (["algorithm.name=sft"], False),
    (["algorithm.epochs=2"], False), (["algorithm.minibatches=2"], False), (["deterministic=true"], False)])
def test_what_can_be_trained_before_it_is_complete(configure, settings, can):
    config = configure("algorithm.minibatches=1", *settings)
    assert can_stream(build_algorithm(config), config) is can


@pytest.mark.parametrize("world", [1, 2, 3])
def test_every_sample_is_dealt_once_and_evenly(configured, groups, world):
    config = configured()
    step, loads, seen = StreamedStep(build_algorithm(config), config, world), [0] * world, []
    for group in groups:
        parts = step.deal([group])
        assert len(parts) == world
        for rank, part in enumerate(parts):
            loads[rank] += sum(len(item.sample) for item in part)
            seen += [item.sample.id for item in part]
    trained = [one.id for group in groups for one in group if one.reward == one.reward and one.mask.any()]
    assert sorted(seen) == trained
    assert max(loads) - min(loads) <= max(len(one) for group in groups for one in group)
    assert step.count == sum(int(one.mask.sum()) for group in groups for one in group if one.reward == one.reward)


def test_no_more_prompts_are_trained_than_a_step_has(configured, group):
    config = configured("rollout.prompts=2")
    step = StreamedStep(build_algorithm(config), config, 1)
    dealt = [{item.sample.group_id for item in step.deal([group(name, 0, 1), group(f"{name}x", 1, 0)])[0]}
             for name in ("a", "b")]
    assert dealt == [{"a", "ax"}, set()]


def test_nobody_takes_part(configured, group):
    config = configured("algorithm.zero_variance=drop")
    learner, trainer = learner_of(config)
    before = weights_checksum(trainer.named_weights())
    step = StreamedStep(build_algorithm(config), config, 1)
    learner.accumulate(step.deal([group("a", 1, 1), group("b", 0, 0)])[0])
    samples, metrics = step.result(6)
    assert (step.count, len(samples), metrics["reward/mean"]) == (0, 4, 0.5)
    assert learner.finish(step.count) == {"actor/skipped": 1.0}
    assert (learner.version, learner.changed) == (7, False)
    assert weights_checksum(trainer.named_weights()) == before


@pytest.mark.parametrize("groups_come", [True, False])
def test_a_step_without_rewards_says_why(configured, group, groups_come):
    config = configured()
    step = StreamedStep(build_algorithm(config), config, 1)
    if groups_come:
        step.deal([group("a", float("nan"), error="ValueError: no such unit")])
    with pytest.raises(RunError, match="the first with ValueError" if groups_come else "0 samples came"):
        step.result(0)


@pytest.mark.parametrize(("prompts", "budget", "low"), [
    (16, 0, 1), (16, 40, 2), (16, 10**6, 4), (3, 10**6, 1), (16, 79, 3), (1, 10**6, 1)])
def test_a_chunk_fills_a_micro_batch_if_a_step_is_large_enough(group, prompts, budget, low):
    samples = [one for name in "ab" for one in group(name, 0, 1, length=6)]
    assert bounds(samples, prompts, budget) == Bounds(low, prompts)


def test_a_step_that_never_came_has_bounds_too():
    assert bounds([], 8, 1000) == Bounds(2, 8)
