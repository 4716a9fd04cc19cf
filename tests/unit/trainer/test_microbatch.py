"""Rows, positions and masks of micro-batches, against a plain loop over tokens."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf_cli.api import Sample, TrainItem
from rlinf_torch.microbatch import LONGEST_SHARED, loss_inputs, micro_batch, plan

steady = settings(deadline=None, derandomize=True)
CPU = torch.device("cpu")


def sample(prompt, response, mask=None):
    n = len(response)
    return Sample("s", "g", np.array(prompt, np.int32), np.array(response, np.int32),
                  np.ones(n, np.bool_) if mask is None else np.array(mask, np.bool_), -np.arange(n, dtype=np.float32),
                  np.zeros(n, np.int32), "stop")


def lay_out(*rows):
    return micro_batch(rows, [one.mask for row in rows for one in row], CPU)


# few prompts, so that they meet again
samples = st.lists(st.builds(lambda prompt, size: sample([1] * prompt, range(10, 10 + size)),
                             st.integers(1, 6), st.integers(1, 9)), min_size=1, max_size=14)


def test_a_row_of_its_own_by_hand():
    batch = lay_out([sample([1, 2], [3, 4, 5])], [sample([6], [7], [True])])
    assert batch.input_ids.tolist() == [[1, 2, 3, 4], [6, 0, 0, 0]]
    assert batch.positions.tolist() == [1, 2, 3, 4]
    assert batch.targets.tolist() == [3, 4, 5, 7]
    assert batch.samples.tolist() == [0, 0, 0, 1]
    assert batch.attention == {}


def test_a_shared_row_by_hand():
    batch = lay_out([sample([1, 2], [3, 4]), sample([1, 2], [5]), sample([1, 2], [6, 7, 8], [True, False, True])])
    assert batch.input_ids.tolist() == [[1, 2, 3, 6, 7]]
    assert batch.positions.tolist() == [1, 2, 1, 1, 4]
    assert batch.targets.tolist() == [3, 4, 5, 6, 8]
    assert batch.samples.tolist() == [0, 0, 1, 2, 2]
    assert batch.attention["position_ids"].tolist() == [[0, 1, 2, 2, 3]]
    assert batch.attention["attention_mask"][0, 0].int().tolist() == [
        [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 0, 1, 0], [1, 1, 0, 1, 1]]


def test_every_place_sees_something():
    """A fully masked place would be NaN, and NaN times 0 is NaN in the gradient."""
    batch = lay_out([sample([1], [3, 4, 5]), sample([1], [3, 4])], [sample([2], [3])])
    assert batch.attention["attention_mask"].any(-1).all()


def test_an_empty_prompt_is_a_defect():
    with pytest.raises(AssertionError, match="a response needs a token before it"):
        lay_out([sample([], [3, 4])])


@steady
@given(samples, st.integers(1, 200), st.sampled_from([0, 8, 1000]))
def test_plan(given_samples, budget, width):
    batches = plan(given_samples, budget, width)
    rows = list(itertools.chain(*batches))
    assert sorted(itertools.chain(*rows)) == list(range(len(given_samples)))
    for row in rows:
        assert len({given_samples[i].prompt_ids.tobytes() for i in row}) == 1
        assert row_length([given_samples[i] for i in row]) <= budget or len(row) == 1
    assert width or all(len(row) == 1 for row in rows)
    for batch in batches:
        longest = max(row_length([given_samples[i] for i in row]) for row in batch)
        assert longest * len(batch) <= budget or len(batch) == 1


@steady
@given(samples, st.sampled_from([0, 1000]))
def test_layout_is_that_of_a_plain_loop(given_samples, width):
    for rows in plan(given_samples, 100, width):
        chosen = [[given_samples[i] for i in row] for row in rows]
        batch = lay_out(*chosen)
        owners, ids, positions, predictions = plain(chosen, batch.input_ids.shape)
        assert batch.input_ids.tolist() == ids.tolist()
        assert batch.positions.tolist() == predictions
        if batch.attention:
            assert batch.attention["position_ids"].tolist() == positions.tolist()
            for row, column, other in np.ndindex(*ids.shape, ids.shape[1]):
                sees = other <= column and owners[row, other] in ("prompt", owners[row, column])
                assert bool(batch.attention["attention_mask"][row, 0, column, other]) == sees


def row_length(row):
    return len(row[0].prompt_ids) + sum(len(one.response_ids) - 1 for one in row)


def plain(rows, shape):
    owners, ids, positions = np.full(shape, "padding", object), np.zeros(shape, int), np.zeros(shape, int)
    predictions = []
    for number, row in enumerate(rows):
        prompt = column = len(row[0].prompt_ids)
        owners[number, :prompt], ids[number, :prompt] = "prompt", row[0].prompt_ids
        positions[number, :prompt] = range(prompt)
        for who, one in enumerate(row):
            predictions.append(number * shape[1] + prompt - 1)
            for step, token in enumerate(one.response_ids[:-1]):
                owners[number, column], ids[number, column], positions[number, column] = who, token, prompt + step
                predictions.append(number * shape[1] + column)
                column += 1
    return owners, ids, positions, predictions


def test_sharing_pays_for_long_prompts_only():
    long, short = [1] * 500, [1] * 2
    assert len(plan([sample(long, [2] * 50)] * 8, 10**6, 512)[0]) == 1
    assert len(plan([sample(short, [2] * 500)] * 8, 10**6, 64)[0]) == 8


def test_shared_rows_are_bounded():
    rows = plan([sample([1] * 1000, [2] * 400)] * 6, 10**6, 10**6)[0]
    assert [len(row) for row in rows] == [2, 2, 2]
    assert row_length([sample([1] * 1000, [2] * 400)] * 3) > LONGEST_SHARED


def test_loss_inputs_follow_the_trained_tokens():
    items = [TrainItem(sample([1], [3, 4, 5], [True, False, True]), np.array([1, 0, 2], np.float32),
                       np.array([0.1, 0, 0.2], np.float32)),
             TrainItem(sample([1], [6]), np.array([3], np.float32), np.array([0.3], np.float32))]
    batch = lay_out([item.sample for item in items])
    logprobs, entropy = torch.zeros(3), torch.ones(3)
    inputs = loss_inputs(items, batch, logprobs, entropy)
    assert inputs.old_logprobs.tolist() == [0, -2, 0]
    assert inputs.advantages.tolist() == [1, 2, 3]
    assert inputs.weights.tolist() == pytest.approx([0.1, 0.2, 0.3])
    assert inputs.samples.tolist() == [0, 0, 1]
    assert inputs.logprobs is logprobs
    assert inputs.entropy is entropy


def test_what_the_loss_compares():
    """The ratio's denominator, what was sampled, and the reference, item by item."""
    def item(first, **more):
        return TrainItem(sample([1], [3, 4], [True, first]), np.ones(2, np.float32), np.ones(2, np.float32), **more)

    items = [item(True), item(False, old_logprobs=np.array([-5, -6], np.float32)),
             item(True, old_logprobs=np.array([-7, -8], np.float32), comparable=False)]
    batch = lay_out([one.sample for one in items])
    inputs = loss_inputs(items, batch, torch.zeros(5), None)
    assert inputs.old_logprobs.tolist() == [0, -1, -5, -7, -8]
    assert inputs.sampled_logprobs.tolist() == [0, -1, 0, -7, -8]
    assert inputs.reference_logprobs is None
    for number, one in enumerate(items):
        one.sample.reference_logprobs = np.array([number, 10 + number], np.float32)
    assert loss_inputs(items, batch, torch.zeros(5), None).reference_logprobs.tolist() == [0, 10, 1, 2, 12]
