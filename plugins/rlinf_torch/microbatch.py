"""From samples to the tensors of micro-batches. Samples of one prompt share a row, so that it is computed once.

A row holds a prompt and, one after the other, the responses to it; each sees the prompt and itself only:

    prompt prompt prompt | first second | first second third | padding

The last token of a response is predicted, never read, and has no place in the row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlinf_cli.api import LossInputs, Sample, TrainItem, ValueInputs, ValueItem, micro_batches

Rows = list[list[int]]
"""A micro-batch to be: which samples share each row."""

PADDING = 0
"""Any token id would do: nothing sees it."""

LONGEST_SHARED = 2048
"""Tokens of a row with several responses, at most: it needs a mask of their square."""


@dataclass(frozen=True)
class MicroBatch:
    """B rows padded on the right to T tokens, and N chosen tokens of their responses, in the order of the samples."""

    input_ids: Tensor
    """int64 [B, T]."""
    positions: Tensor
    """int64 [N]: where in the flattened [B * T] each chosen token is predicted."""
    targets: Tensor
    """int64 [N]: ids of the chosen tokens."""
    samples: Tensor
    """int64 [N]: which of the samples a chosen token belongs to."""
    attention: dict[str, Tensor]
    """Who sees whom, as the model's arguments: `attention_mask` bool [B, 1, T, T] and `position_ids` int64 [B, T].
    Empty where every row has one response: causal attention is all then."""


def plan(samples: Sequence[Sample], budget: int, width: int) -> list[Rows]:
    """Split samples into micro-batches of at most `budget` tokens, padding included.

    `width`: the model's hidden size, which decides whether sharing a prompt pays; 0 where rows cannot be shared.
    """
    rows, lengths = _share_prompts(samples, min(budget, LONGEST_SHARED), width)
    return [[rows[i] for i in batch] for batch in micro_batches(lengths, budget)]


def _share_prompts(samples: Sequence[Sample], limit: int, width: int) -> tuple[Rows, list[int]]:
    """Rows and their lengths: a sample joins the last row of its prompt if there is room and it costs less so."""
    rows: Rows = []
    lengths: list[int] = []
    last: dict[bytes, int] = {}
    for i, sample in enumerate(samples):
        alone, own, prompt = len(sample) - 1, len(sample.response_ids) - 1, sample.prompt_ids.tobytes()
        row = last.get(prompt)
        if row is not None and lengths[row] + own <= limit and _pays(lengths[row], alone, own, width):
            rows[row].append(i)
            lengths[row] += own
        else:
            last[prompt] = len(rows)
            rows.append([i])
            lengths.append(alone)
    return rows, lengths


def _pays(length: int, alone: int, own: int, width: int) -> bool:
    """Whether a sample `alone` tokens long, `own` of them not shared, costs less in a row of `length` than in its own.

    Sharing saves the linear layers the prompt (about 24 width^2 operations a token and layer), and costs attention the
    square of the longer row, masked, instead of the sample's, causal (4 width operations a pair of tokens).
    """
    pairs = (length + own) ** 2 - length**2 - alone**2 / 2
    return width > 0 and 4 * pairs < 24 * width * (alone - own)


def micro_batch(rows: Sequence[Sequence[Sample]], masks: Sequence[NDArray[np.bool_]],
                device: torch.device) -> MicroBatch:
    """Lay out samples row by row; the masks, one a sample, choose among their response tokens."""
    place = _Places([sample for row in rows for sample in row], np.array([len(row) for row in rows]))
    shape = len(rows), place.width
    tokens = np.full(shape, PADDING, np.int64)
    tokens[place.prompt] = np.concatenate([row[0].prompt_ids for row in rows])
    tokens[place.read] = place.tokens[place.is_read]
    chosen = np.concatenate(masks)
    positions = np.ravel_multi_index(place.predicted, shape)[chosen]

    def tensor(array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(device)

    return MicroBatch(tensor(tokens), tensor(positions), tensor(place.tokens[chosen].astype(np.int64)),
                      tensor(place.sample[chosen]),
                      {name: tensor(array) for name, array in place.attention().items()} if place.shared else {})


class _Places:
    """Where the tokens of samples stand in their rows, as (row, column) pairs of arrays.

    "read" are the response tokens that the model reads: all but the last of each response.
    """

    def __init__(self, samples: Sequence[Sample], row_sizes: NDArray[np.int64]) -> None:
        prompts = np.array([len(sample.prompt_ids) for sample in samples])
        sizes = np.array([len(sample.response_ids) for sample in samples])
        assert prompts.min() > 0, "a response needs a token before it"
        first = _before(row_sizes)
        row_of = np.repeat(np.arange(len(row_sizes)), row_sizes)
        read_before = _before(sizes - 1)
        starts = prompts + read_before - read_before[first][row_of]
        self.rows, self.width = len(row_sizes), int((starts + sizes - 1).max())
        self.shared = len(row_sizes) < len(samples)
        self.prompt = _ranges(prompts[first])
        self.tokens = np.concatenate([sample.response_ids for sample in samples])
        self.sample, step = _ranges(sizes)
        prompt, row, column = prompts[self.sample], row_of[self.sample], starts[self.sample] + step
        self.predicted = row, np.where(step == 0, prompt, column) - 1
        self.is_read = step < sizes[self.sample] - 1
        self.read = row[self.is_read], column[self.is_read]
        self.read_position = (prompt + step)[self.is_read]

    def attention(self) -> dict[str, NDArray[Any]]:
        """Positions as if each response stood right after its prompt, and a mask that hides the others from it."""
        positions = np.zeros((self.rows, self.width), np.int64)
        positions[self.prompt] = self.prompt[1]
        positions[self.read] = self.read_position
        everyone, nobody = -1, -2
        owner = np.full((self.rows, self.width), nobody)
        owner[self.prompt] = everyone
        owner[self.read] = self.sample[self.is_read]
        seen, seer = owner[:, None, :], owner[:, :, None]
        mask = ((seen == seer) | (seen == everyone)) & np.tri(self.width, dtype=np.bool_)
        return {"attention_mask": mask[:, None], "position_ids": positions}


def _before(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sum of the sizes before each."""
    return np.cumsum(sizes) - sizes


def _ranges(sizes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(row, column) of the first `sizes[row]` places of each row."""
    row = np.repeat(np.arange(len(sizes)), sizes)
    return row, np.arange(len(row)) - _before(sizes)[row]


def loss_inputs(items: Sequence[TrainItem], batch: MicroBatch, logprobs: Tensor, entropy: Tensor | None) -> LossInputs:
    """What the loss sees of a micro-batch whose tokens were chosen by the samples' own masks."""
    chosen = _chosen(items, logprobs.device)
    old = [item.sample.logprobs if item.old_logprobs is None else item.old_logprobs for item in items]
    # where the engine drew from another distribution, the two must look equal: nothing is to be corrected
    sampled = [item.sample.logprobs if item.comparable else own for item, own in zip(items, old, strict=True)]
    reference = [item.sample.reference_logprobs for item in items if item.sample.reference_logprobs is not None]
    return LossInputs(logprobs, chosen(old), chosen([item.advantages for item in items]),
                      chosen([item.weights for item in items]), batch.samples, chosen(sampled),
                      chosen(reference) if len(reference) == len(items) else None, entropy)


def value_inputs(items: Sequence[ValueItem], values: Tensor) -> ValueInputs:
    """What a critic's loss sees of a micro-batch, as `loss_inputs`."""
    chosen = _chosen(items, values.device)
    return ValueInputs(values, chosen([item.old_values for item in items]), chosen([item.targets for item in items]),
                       chosen([item.weights for item in items]))


def _chosen(items: Sequence[TrainItem] | Sequence[ValueItem],
            device: torch.device) -> Callable[[Sequence[NDArray[np.float32]]], Tensor]:
    """From an array a sample to the values at trained tokens, end to end."""
    mask = np.concatenate([item.sample.mask for item in items])
    return lambda arrays: torch.from_numpy(np.concatenate(arrays)[mask]).to(device)
