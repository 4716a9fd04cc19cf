"""An optimiser step whose items come in pieces (scenario N4, extended)."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rlinf_cli.api import TrainItem, weights_checksum
from rlinf_cli.rl.aggregation import share_count, token_shares

SPLITS = {"1x8": [8], "2x4": [4, 4], "8x1": [1] * 8, "uneven": [0, 3, 1, 0, 4]}
MEANS = ["token-mean", "sequence-mean"]


@pytest.fixture
def eight(samples):
    return samples[:8]


@pytest.fixture
def in_pieces(make_items):
    """`in_pieces(samples, aggregation, [3, 5])`: pieces of items whose shares are not divided yet, and the scale."""

    def make(samples, aggregation, sizes):
        shares = token_shares([one.mask for one in samples], aggregation, 16)
        items = [TrainItem(item.sample, item.advantages, share)
                 for item, share in zip(make_items(samples), shares, strict=True)]
        starts = np.cumsum([0, *sizes])
        return ([items[a:b] for a, b in pairwise(starts)],
                1 / share_count([one.mask for one in samples], aggregation))

    return make


def gradient(trainer, directory):
    """Of the first step, read from AdamW's first moment."""
    directory.mkdir()
    trainer.save(directory)
    moments = load_file(directory / "optimizer.safetensors")
    return torch.cat([moments[name].flatten() for name in sorted(moments) if name.endswith("exp_avg")]) / 0.1


def accumulate(trainer, pieces, loss, **more):
    for piece in pieces:
        trainer.accumulate(piece, loss, 1.0, **more)


def distance(one, other):
    return float((one - other).norm() / other.norm())


@pytest.mark.parametrize("aggregation", MEANS)
@pytest.mark.parametrize("budget", [16384, 40, 1])
def test_the_gradient_does_not_depend_on_the_calls(build, eight, make_items, in_pieces, grpo, tmp_path, aggregation, budget):
    whole = build(max_grad_norm=1e9)
    expected = whole.train_step(make_items(eight, aggregation), grpo.loss, 1.0)
    wanted = gradient(whole, tmp_path / "whole")
    for name, sizes in SPLITS.items():
        trainer = build(max_grad_norm=1e9, micro_batch_tokens=budget)
        pieces, scale = in_pieces(eight, aggregation, sizes)
        accumulate(trainer, pieces, grpo.loss)
        metrics = trainer.finish(scale)
        assert metrics == pytest.approx(expected, rel=1e-5, abs=1e-7)
        assert distance(gradient(trainer, tmp_path / name), wanted) < 1e-6


def test_one_call_is_a_train_step_to_the_last_bit(build, samples, make_items, grpo):
    one, other = build(micro_batch_tokens=40), build(micro_batch_tokens=40)
    for _ in range(2):
        expected = one.train_step(make_items(samples), grpo.loss, 0.7)
        other.accumulate(make_items(samples), grpo.loss, 0.7)
        assert other.finish(1.0) == expected
    assert weights_checksum(one.named_weights()) == weights_checksum(other.named_weights())


def test_the_entropy_has_a_gradient_in_pieces_too(build, eight, make_items, in_pieces, tmp_path):
    def loss(inputs):
        return -(inputs.weights * inputs.entropy).sum(), {}

    whole, trainer = build(max_grad_norm=1e9), build(max_grad_norm=1e9)
    expected = whole.train_step(make_items(eight), loss, 1.0, needs_entropy=True)
    pieces, scale = in_pieces(eight, "token-mean", [2, 6])
    accumulate(trainer, pieces, loss, needs_entropy=True)
    assert trainer.finish(scale) == pytest.approx(expected, rel=1e-5)
    assert distance(gradient(trainer, tmp_path / "pieces"), gradient(whole, tmp_path / "whole")) < 1e-6


def test_scoring_between_two_pieces_changes_nothing(build, eight, in_pieces, grpo):
    pieces, scale = in_pieces(eight, "token-mean", [4, 4])
    made = []
    for scores in (False, True):
        trainer = build()
        for piece in pieces:
            if scores:
                trainer.log_probs(eight, 1.0)
            trainer.accumulate(piece, grpo.loss, 1.0)
        made.append((trainer.finish(scale), weights_checksum(trainer.named_weights())))
    assert made[0] == made[1]


@pytest.mark.parametrize("poisoned", [0, 1])
def test_a_piece_that_is_not_finite_changes_nothing(build, eight, make_items, in_pieces, grpo, poisoned):
    def broken(inputs):
        value, metrics = grpo.loss(inputs)
        return value * float("nan"), metrics

    trainer, fresh = build(), build()
    pieces, scale = in_pieces(eight, "token-mean", [4, 4])
    before = weights_checksum(trainer.named_weights())
    for piece, items in enumerate(pieces):
        trainer.accumulate(items, broken if piece == poisoned else grpo.loss, 1.0)
    with pytest.raises(FloatingPointError, match="the loss is nan in optimiser step 1; the weights were left as they were"):
        trainer.finish(scale)
    assert weights_checksum(trainer.named_weights()) == before
    assert trainer.train_step(make_items(eight), grpo.loss, 1.0) == fresh.train_step(make_items(eight), grpo.loss, 1.0)


def fail(inputs):
    raise ArithmeticError("a loss that fails")


def give_up(trainer, items, directory):
    trainer.discard()


def raise_in_the_loss(trainer, items, directory):
    with pytest.raises(ArithmeticError, match="a loss that fails"):
        trainer.accumulate(items, fail, 1.0)


def load_what_was_saved(trainer, items, directory):
    trainer.load(directory)


@pytest.mark.parametrize("leave", [give_up, raise_in_the_loss, load_what_was_saved])
def test_a_step_that_is_given_up_leaves_nothing_behind(build, eight, make_items, grpo, tmp_path, leave):
    trainer, fresh, items = build(), build(), make_items(eight)
    trainer.save(tmp_path)
    trainer.accumulate(items[:5], grpo.loss, 1.0)
    leave(trainer, items, tmp_path)
    assert trainer.train_step(items, grpo.loss, 1.0) == fresh.train_step(items, grpo.loss, 1.0)
    assert weights_checksum(trainer.named_weights()) == weights_checksum(fresh.named_weights())


def test_without_a_trained_token_there_is_no_step(build, eight, make_items, grpo):
    trainer = build()
    off = dataclasses.replace(eight[0], mask=np.zeros_like(eight[0].mask))
    accumulate(trainer, [[], make_items([off])], grpo.loss)
    with pytest.raises(ValueError, match="at least one trained token"):
        trainer.finish(1.0)


def test_gradients_take_no_memory_after_a_step(build, eight, make_items, grpo):
    trainer = build()
    trainer.train_step(make_items(eight), grpo.loss, 1.0)
    assert all(parameter.grad is None for parameter in trainer._policy.model.parameters())


def test_a_reference_accumulates_nothing(build, eight, make_items, grpo):
    with pytest.raises(ValueError, match="its model is never trained"):
        build(total_steps=0).accumulate(make_items(eight), grpo.loss, 1.0)


@pytest.mark.parametrize("keys", [{"lora_rank": 2}, {"train_layers": 1}])
def test_adapters_and_frozen_layers_accumulate_alike(build, eight, make_items, in_pieces, grpo, tmp_path, keys):
    torch.manual_seed(0)
    whole = build(max_grad_norm=1e9, **keys)
    torch.manual_seed(0)
    trainer = build(max_grad_norm=1e9, **keys)
    expected = whole.train_step(make_items(eight), grpo.loss, 1.0)
    pieces, scale = in_pieces(eight, "token-mean", [3, 5])
    accumulate(trainer, pieces, grpo.loss)
    assert trainer.finish(scale) == pytest.approx(expected, rel=1e-5, abs=1e-7)
    assert distance(gradient(trainer, tmp_path / "pieces"), gradient(whole, tmp_path / "whole")) < 1e-6
