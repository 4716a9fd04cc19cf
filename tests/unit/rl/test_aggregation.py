"""Shares of tokens in the loss of an optimiser step."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf_cli.rl.aggregation import MODES, share_count, token_shares, token_weights

steady = settings(deadline=None, derandomize=True)

masks = st.lists(st.lists(st.booleans(), max_size=12), min_size=1, max_size=10).map(
    lambda rows: [np.array(row, np.bool_) for row in rows])


def test_token_mean_by_hand():
    got = token_weights([np.array([True, True, False]), np.array([True, True])], "token-mean", 8)
    assert [row.tolist() for row in got] == [[0.25, 0.25, 0], [0.25, 0.25]]


def test_sequence_mean_by_hand():
    got = token_weights([np.array([True, False, True]), np.array([True])], "sequence-mean", 8)
    assert [row.tolist() for row in got] == [[0.25, 0, 0.25], [0.5]]


def test_sequence_sum_by_hand():
    got = token_weights([np.array([True, False, True]), np.array([True])], "sequence-sum", 8)
    assert [row.tolist() for row in got] == [[1 / 16, 0, 1 / 16], [1 / 16]]


def test_a_sample_without_a_trained_token_does_not_count():
    nothing = np.zeros(3, np.bool_)
    for mode in MODES:
        with_it = token_weights([np.ones(2, np.bool_), nothing, np.ones(0, np.bool_)], mode, 4)
        assert with_it[0].tolist() == token_weights([np.ones(2, np.bool_)], mode, 4)[0].tolist()
        assert with_it[1].tolist() == [0, 0, 0]


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="'mean' is none of token-mean, sequence-mean, sequence-sum"):
        token_weights([np.ones(1, np.bool_)], "mean", 4)


@steady
@given(masks, st.sampled_from(MODES))
def test_shapes_and_masks(rows, mode):
    got = token_weights(rows, mode, 12)
    for mask, weights in zip(rows, got, strict=True):
        assert weights.dtype == np.float32
        assert ((weights > 0) == mask).all()
        assert len(set(weights[mask].tolist())) <= 1


@steady
@given(masks, st.sampled_from(["token-mean", "sequence-mean"]))
def test_means_sum_to_one(rows, mode):
    total = sum(float(weights.sum()) for weights in token_weights(rows, mode, 12))
    assert total == pytest.approx(1.0 if any(row.any() for row in rows) else 0.0, abs=1e-5)


@steady
@given(masks)
def test_sequence_mean_gives_each_sample_the_same(rows):
    sums = [float(weights.sum()) for weights in token_weights(rows, "sequence-mean", 12) if weights.any()]
    assert sums == pytest.approx([1 / len(sums)] * len(sums)) if sums else True


@steady
@given(masks, st.sampled_from(MODES), st.integers(0, 10))
def test_shares_of_parts_are_the_weights_times_their_count(rows, mode, cut):
    """However a step is cut: what is not known yet is one number."""
    parts = [part for part in (rows[:cut], rows[cut:]) if part]
    shares = [row for part in parts for row in token_shares(part, mode, 12)]
    count = sum(share_count(part, mode) for part in parts)
    for share, weights in zip(shares, token_weights(rows, mode, 12), strict=True):
        assert share / max(1, count) == pytest.approx(weights, rel=1e-6)


def test_what_a_mean_is_over():
    rows = [np.array([True, False, True]), np.zeros(2, np.bool_), np.ones(1, np.bool_)]
    assert [share_count(rows, mode) for mode in MODES] == [3, 2, 2]
    assert [row.tolist() for row in token_shares(rows, "sequence-mean", 8)] == [[0.5, 0, 0.5], [0, 0], [1]]
    assert [row.tolist() for row in token_shares(rows, "token-mean", 8)] == [[1, 0, 1], [0, 0], [1]]
