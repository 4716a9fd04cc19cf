"""One optimiser step: gradients, metrics, what is trained and what is left alone."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rlinf_cli.api import UsageError, weights_checksum


def weights(trainer):
    return {name: tensor.clone() for name, tensor in trainer.named_weights()}


def gradient(trainer, items, loss, directory, **more):
    """The gradient of one step, read from AdamW's first moment: `(1 - beta) * gradient` after the first step."""
    metrics = trainer.train_step(items, loss, 1.0, **more)
    directory.mkdir()
    trainer.save(directory)
    moments = load_file(directory / "optimizer.safetensors")
    return metrics, torch.cat([moments[name].flatten() for name in sorted(moments) if name.endswith("exp_avg")]) / 0.1


def counted(loss):
    def call(inputs):
        call.sizes.append(int(inputs.samples.max()) + 1)
        return loss(inputs)

    call.sizes = []
    return call


def distance(one, other):
    return float((one - other).norm() / other.norm())


def equally_long(samples):
    """Eight samples of the same length, so that a budget splits them evenly; trained tokens differ."""
    noise = np.random.default_rng(3)
    return [dataclasses.replace(samples[i], prompt_ids=noise.integers(3, 31, 4).astype(np.int32),
                                response_ids=noise.integers(3, 31, 6).astype(np.int32),
                                mask=np.arange(6) < 1 + i % 6, logprobs=np.full(6, -3, np.float32),
                                versions=np.zeros(6, np.int32)) for i in range(8)]


@pytest.mark.parametrize("aggregation", ["token-mean", "sequence-mean"])
def test_the_gradient_does_not_depend_on_micro_batches(build, samples, make_items, grpo, tmp_path, aggregation):
    """Scenario N4: 1 x 8, 2 x 4, 8 x 1."""
    items = make_items(equally_long(samples), aggregation)
    results = {}
    for budget, sizes in ((72, [8]), (36, [4, 4]), (9, [1] * 8)):
        loss = counted(grpo.loss)
        trainer = build(micro_batch_tokens=budget, max_grad_norm=1e9)
        results[budget] = gradient(trainer, items, loss, tmp_path / f"{budget}")
        assert loss.sizes == sizes
    for metrics, got in results.values():
        assert distance(got, results[72][1]) < 1e-6
        assert metrics == pytest.approx(results[72][0], rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("aggregation", ["token-mean", "sequence-mean"])
def test_nor_on_padding_or_shared_prompts(build, samples, make_items, grpo, tmp_path, aggregation):
    results = []
    for budget in (1, 40, 16384):
        loss = counted(grpo.loss)
        trainer = build(micro_batch_tokens=budget, max_grad_norm=1e9)
        items = make_items(samples, aggregation)
        results.append((loss.sizes, *gradient(trainer, items, loss, tmp_path / f"{budget}")))
    assert len({len(sizes) for sizes, *_ in results}) == 3
    for _, metrics, got in results:
        assert distance(got, results[0][2]) < 1e-6
        assert metrics == pytest.approx(results[0][1], rel=1e-5, abs=1e-7)


def test_the_gradient_is_that_of_plain_transformers(build, make_model, samples, make_items, grpo, tmp_path):
    from transformers import AutoModelForCausalLM

    items = make_items(samples)
    _, got = gradient(build(max_grad_norm=1e9), items, grpo.loss, tmp_path / "own")
    model = AutoModelForCausalLM.from_pretrained(make_model(), dtype=torch.float32)
    total = torch.zeros(())
    for item in items:
        tokens = torch.from_numpy(np.concatenate([item.sample.prompt_ids, item.sample.response_ids]).astype(np.int64))
        logits = model(input_ids=tokens[None]).logits[0, len(item.sample.prompt_ids) - 1 : -1]
        targets = torch.from_numpy(item.sample.response_ids.astype(np.int64))[:, None]
        logprobs = torch.log_softmax(logits, -1).gather(1, targets)[:, 0]
        ratio = torch.exp(logprobs - torch.from_numpy(item.sample.logprobs))
        advantage, weight = torch.from_numpy(item.advantages), torch.from_numpy(item.weights)
        total = total - (weight * torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage)).sum()
    total.backward()
    named = dict(model.named_parameters())
    assert distance(got, torch.cat([named[name].grad.flatten() for name in sorted(named)])) < 2e-6


def test_metrics(build, samples, make_items, grpo, make_model, reference):
    metrics = build(warmup_steps=4).train_step(make_items(samples), grpo.loss, 1.0)
    assert {name.removeprefix("actor/") for name in metrics} >= {
        "loss", "entropy", "kl", "ratio", "clip_frac", "grad_norm", "lr", "logp_diff_mean", "logp_diff_max"}
    assert all(type(value) is float and math.isfinite(value) for value in metrics.values())
    assert metrics["actor/lr"] == pytest.approx(1e-3 / 4)
    diffs, entropies = [], []
    for sample in samples:
        distribution = reference(make_model(), sample)
        own = distribution.gather(1, torch.from_numpy(sample.response_ids.astype(np.int64))[:, None])[:, 0].numpy()
        diffs += np.abs(own - sample.logprobs)[sample.mask].tolist()
        entropies += torch.special.entr(distribution.exp()).sum(-1)[torch.from_numpy(sample.mask)].tolist()
    assert metrics["actor/logp_diff_mean"] == pytest.approx(np.mean(diffs), rel=1e-5)
    assert metrics["actor/logp_diff_max"] == pytest.approx(max(diffs), rel=1e-5)
    assert metrics["actor/entropy"] == pytest.approx(np.mean(entropies), rel=1e-5)


def test_on_policy_the_mismatch_is_only_rounding(build, samples, make_items, grpo):
    """Scenario N1, with the trainer's own log-probabilities in the engine's place."""
    trainer = build(micro_batch_tokens=30)
    own = [dataclasses.replace(sample, logprobs=logprobs)
           for sample, logprobs in zip(samples, trainer.log_probs(samples, 0.7), strict=True)]
    metrics = trainer.train_step(make_items(own), grpo.loss, 0.7)
    assert metrics["actor/logp_diff_max"] < 1e-5
    assert metrics["actor/ratio"] == pytest.approx(1.0, abs=1e-5)
    assert metrics["actor/clip_frac"] == 0.0


def test_training_raises_the_likelihood_of_what_is_rewarded(build, samples, make_items, grpo):
    trainer = build(lr=1e-2)
    before = trainer.log_probs(samples, 1.0)
    own = [dataclasses.replace(sample, logprobs=logprobs) for sample, logprobs in zip(samples, before, strict=True)]
    items = make_items(own)
    trainer.train_step(items, grpo.loss, 1.0)
    after = trainer.log_probs(samples, 1.0)
    gains = [item.weights * item.advantages * (b - a) for item, a, b in zip(items, before, after, strict=True)]
    assert np.concatenate(gains).sum() > 0


def test_tokens_that_are_not_trained_have_no_part(build, samples, make_items, grpo):
    def changed(sample):
        return dataclasses.replace(sample, logprobs=np.where(sample.mask, sample.logprobs, np.float32("nan")))

    plain, disturbed = build(), build()
    assert (plain.train_step(make_items(samples), grpo.loss, 1.0)
            == disturbed.train_step(make_items([changed(sample) for sample in samples]), grpo.loss, 1.0))
    assert weights_checksum(plain.named_weights()) == weights_checksum(disturbed.named_weights())


def test_a_sample_without_a_trained_token_is_passed_over(build, samples, make_items, grpo):
    off = dataclasses.replace(samples[0], mask=np.zeros_like(samples[0].mask))
    loss = counted(grpo.loss)
    build().train_step(make_items([off, *samples[1:]]), loss, 1.0)
    assert sum(loss.sizes) == len(samples) - 1
    with pytest.raises(ValueError, match="at least one trained token"):
        build().train_step(make_items([off]), grpo.loss, 1.0)


@pytest.mark.parametrize(("poison", "named"), [("loss", "loss"), ("gradient", "norm of the gradient")])
def test_numbers_that_are_not_finite_change_nothing(build, samples, make_items, grpo, tmp_path, poison, named):
    def loss(inputs):
        value, metrics = grpo.loss(inputs)
        if poison == "loss":
            return value * float("nan"), metrics
        # the square root has value 0 here and an infinite slope, which the 0 before it turns into NaN
        return value + (0 * inputs.logprobs).sqrt().sum(), metrics

    trainer, other = build(), build()
    for one in trainer, other:
        one.train_step(make_items(samples), grpo.loss, 1.0)
    before = weights_checksum(trainer.named_weights())
    with pytest.raises(FloatingPointError, match=f"the {named} is nan in optimiser step 2; the weights were left as"):
        trainer.train_step(make_items(samples), loss, 1.0)
    assert weights_checksum(trainer.named_weights()) == before
    # neither did the optimiser's state move: both go on alike
    again, undisturbed = (one.train_step(make_items(samples), grpo.loss, 1.0) for one in (trainer, other))
    assert again == undisturbed


@pytest.mark.parametrize("layers", [1, 2])
def test_train_layers_leaves_the_rest_alone(build, samples, make_items, grpo, layers):
    trainer = build(train_layers=layers, weight_decay=0.1)
    before = weights(trainer)
    trainer.train_step(make_items(samples), grpo.loss, 1.0)
    moved = {name for name, tensor in trainer.named_weights() if not torch.equal(tensor, before[name])}
    chosen = tuple(f"model.layers.{number}." for number in range(3 - layers, 3))
    assert moved == {name for name in before if name.startswith(chosen)}


def test_more_layers_than_there_are(build):
    with pytest.raises(UsageError, match=r"trainer\.train_layers is 4, but the model has 3 decoder layers"):
        build(train_layers=4)


def test_an_algorithm_can_train_on_the_entropy(build, samples, make_items, tmp_path):
    def loss(inputs):
        return -(inputs.weights * inputs.entropy).sum(), {}

    trainer = build(lr=1e-2)
    first = trainer.train_step(make_items(samples), loss, 1.0, needs_entropy=True)
    second = trainer.train_step(make_items(samples), loss, 1.0, needs_entropy=True)
    assert first["actor/loss"] == pytest.approx(-first["actor/entropy"])
    assert second["actor/entropy"] > first["actor/entropy"]


def test_no_entropy_unless_asked_for(build, samples, make_items, grpo):
    seen = []
    build().train_step(make_items(samples), lambda inputs: seen.append(inputs.entropy) or grpo.loss(inputs), 1.0)
    assert seen == [None]


@pytest.mark.parametrize("layers", [0, 1])
def test_gradient_checkpointing_changes_nothing(build, make_model, samples, make_items, grpo, tmp_path, layers):
    results = [gradient(build(activations="recompute" if on else "keep", train_layers=layers), make_items(samples), grpo.loss,
                        tmp_path / f"{on}") for on in (False, True)]
    assert results[0][0] == pytest.approx(results[1][0])
    assert distance(results[0][1], results[1][1]) < 1e-6


@pytest.mark.parametrize("checkpointing", [False, True])
def test_there_is_no_dropout(build, make_model, samples, make_items, grpo, checkpointing):
    trainer = build(make_model(attention_dropout=0.5), activations="recompute" if checkpointing else "keep")
    own = [dataclasses.replace(sample, logprobs=logprobs)
           for sample, logprobs in zip(samples, trainer.log_probs(samples, 1.0), strict=True)]
    assert trainer.train_step(make_items(own), grpo.loss, 1.0)["actor/logp_diff_max"] < 1e-5


def test_bfloat16_keeps_weights_in_float32(build, samples, make_items, grpo):
    exact, rough = build(), build(dtype="bfloat16")
    differences = [np.abs(a - b).max() for a, b in zip(exact.log_probs(samples, 1.0), rough.log_probs(samples, 1.0),
                                                        strict=True)]
    assert 1e-4 < max(differences) < 0.5
    before = weights(rough)
    metrics = rough.train_step(make_items(samples), grpo.loss, 1.0)
    assert math.isfinite(metrics["actor/grad_norm"])
    moved = dict(rough.named_weights())
    assert {tensor.dtype for tensor in moved.values()} == {torch.float32}
    # steps far below bfloat16's resolution arrive
    change = (moved["model.layers.0.mlp.up_proj.weight"] - before["model.layers.0.mlp.up_proj.weight"]).abs()
    assert 0 < change.max() <= 1.1e-3


@pytest.mark.parametrize("tied", [True, False])
def test_named_weights_are_those_of_the_file(build, make_model, tied):
    directory = make_model(tie_word_embeddings=tied)
    named = dict(build(directory).named_weights())
    stored = load_file(directory / "model.safetensors")
    assert named.keys() == stored.keys()
    assert ("lm_head.weight" in named) is not tied
    assert all(torch.equal(named[name], stored[name]) for name in named)
    assert not any(tensor.requires_grad for tensor in named.values())


def test_offloading_and_onloading_keep_the_state(build, samples, make_items, grpo):
    moved, still = build(), build()
    for trainer in moved, still:
        trainer.train_step(make_items(samples), grpo.loss, 1.0)
    moved.offload()
    assert weights_checksum(moved.named_weights()) == weights_checksum(still.named_weights())
    moved.onload()
    again, undisturbed = (one.train_step(make_items(samples), grpo.loss, 1.0) for one in (moved, still))
    assert again == undisturbed


def test_metrics_are_means_under_every_aggregation(build, samples, make_items):
    """The shares of `sequence-sum` sum to less than 1."""
    def loss(inputs):
        return -(inputs.weights * inputs.logprobs).sum(), {"actor/one": inputs.weights.sum()}

    for aggregation in ("token-mean", "sequence-mean", "sequence-sum"):
        metrics = build(micro_batch_tokens=40).train_step(make_items(samples, aggregation), loss, 1.0)
        assert metrics["actor/one"] == pytest.approx(1)
    items, logprobs = make_items(samples, "sequence-sum"), build().log_probs(samples, 1.0)
    summed = -sum(float((item.weights * own).sum()) for item, own in zip(items, logprobs, strict=True))
    assert metrics["actor/loss"] == pytest.approx(summed, rel=1e-5)
