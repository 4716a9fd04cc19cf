"""From logits to tokens and their log-probabilities under the distribution that they were drawn from."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Knobs:
    """How each of n rows is drawn; greedy rows have temperature 1 and no truncation."""

    temperature: Tensor
    """float32 [n, 1]."""
    greedy: Tensor | None = None
    """bool [n]; None when no row is."""
    top_k: Tensor | None = None
    """int64 [n, 1], the size of the vocabulary or more where it is off. None (all three) when no row is truncated."""
    top_p: Tensor | None = None
    """float32 [n, 1], 1 where it is off."""
    min_p: Tensor | None = None
    """float32 [n, 1], 0 where it is off."""


def sample(logits: Tensor, knobs: Knobs, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens (int64 [n]) and log-probabilities (float32 [n]) for logits [n, V] and `uniforms` in (0, 1), float64 [n].

    A row's token is the inverse of its cumulative distribution, in the order of the vocabulary, at its number.
    """
    logprobs = torch.log_softmax(logits.float() / knobs.temperature, -1)
    if knobs.top_k is not None:
        kept = _kept(logprobs, knobs)
        # a row that keeps all stays as it is: normalising once more would change its last bit
        logprobs = torch.where(kept.all(-1, keepdim=True), logprobs,
                               torch.log_softmax(logprobs.masked_fill(~kept, -torch.inf), -1))
    tokens = _invert(logprobs, uniforms)
    if knobs.greedy is not None:
        tokens = torch.where(knobs.greedy, logits.argmax(-1), tokens)
    return tokens, logprobs.gather(1, tokens[:, None])[:, 0]


def _invert(logprobs: Tensor, uniforms: Tensor) -> Tensor:
    cumulative = logprobs.exp().cumsum(-1, dtype=torch.float64)
    # right: the first token whose cumulative mass exceeds the target, so never one without mass
    return torch.searchsorted(cumulative, uniforms[:, None] * cumulative[:, -1:], right=True)[:, 0]


def _kept(logprobs: Tensor, knobs: Knobs) -> Tensor:
    """Which tokens survive top-k, then top-p on what is left, then min-p; bool [n, V]. The likeliest always does."""
    assert knobs.top_k is not None
    assert knobs.top_p is not None
    assert knobs.min_p is not None
    ordered, order = torch.sort(logprobs, dim=-1, descending=True, stable=True)
    ranks = torch.arange(ordered.shape[-1], device=ordered.device)
    probabilities = torch.where(ranks < knobs.top_k, ordered.exp(), 0.0)
    before = probabilities.cumsum(-1) - probabilities
    nucleus = (before < knobs.top_p * probabilities.sum(-1, keepdim=True)) | (knobs.top_p >= 1)
    kept = (ranks < knobs.top_k) & nucleus & (probabilities >= knobs.min_p * probabilities[:, :1])
    kept[:, 0] = True
    return torch.empty_like(kept).scatter_(1, order, kept)
