"""Log-probability and entropy of chosen tokens, without holding the logits of a whole micro-batch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rlinf_torch.activations import Keeping
from rlinf_torch.microbatch import MicroBatch

CHUNK_ELEMENTS = 2**25
"""Logits held at a time (128 MB in float32): 220 tokens of a vocabulary of 150 k."""

HEAD_ONLY = frozenset({"llama", "mistral", "qwen2", "qwen3", "smollm3"})
"""Model types whose logits are `lm_head(decoder output)` and nothing else; others may scale or cap them."""


class TokenScorer:
    """Scores tokens under a causal language model of transformers; `keeping` is around its decoder."""

    def __init__(self, model: Any, chunk_elements: int = CHUNK_ELEMENTS, keeping: Keeping = nullcontext) -> None:
        self._model, self._keeping = model, keeping
        self._chunk = max(1, chunk_elements // model.config.get_text_config().vocab_size)
        self._head_only = model.config.model_type in HEAD_ONLY
        self.sharing_width = sharing_width(model.config)

    def score(self, batch: MicroBatch, temperature: float, needs_entropy: bool = False) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy (nats) of the chosen tokens at a temperature, float32 [N] each.

        The entropy has a gradient only with `needs_entropy`.
        """
        project, states = self._states(batch)

        def score_chunk(states: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
            return _score(project(states), targets, temperature, needs_entropy)

        if len(states) <= self._chunk:
            return score_chunk(states, batch.targets)
        pieces = zip(torch.split(states, self._chunk), torch.split(batch.targets, self._chunk), strict=True)
        chunks = [_recomputed(score_chunk, *piece) for piece in pieces]
        logprobs, entropies = zip(*chunks, strict=True)
        return torch.cat(logprobs), torch.cat(entropies)

    def _states(self, batch: MicroBatch) -> tuple[Callable[[Tensor], Tensor], Tensor]:
        """What the chosen tokens are predicted from [N, H or V], and how that becomes logits [N, V]."""
        if self._head_only:
            decoder = self._model.get_decoder()
            with self._keeping():
                hidden = decoder(input_ids=batch.input_ids, use_cache=False, **batch.attention).last_hidden_state
            return self._model.lm_head, hidden.flatten(0, 1)[batch.positions]
        with self._keeping():
            logits = self._model(input_ids=batch.input_ids, use_cache=False, **batch.attention).logits
        return torch.nn.Identity(), logits.flatten(0, 1)[batch.positions]


def sharing_width(config: Any) -> int:
    """Hidden size of a model whose samples can share a row (see `microbatch.plan`), else 0."""
    width: int = config.hidden_size if _takes_masks(config) else 0
    return width


def _takes_masks(config: Any) -> bool:
    """Whether a mask of ours means the same to the model: it would replace that of a sliding window, "eager" attention
    would add it to the scores, and what other model types make of it is not known."""
    return (config.model_type in HEAD_ONLY and getattr(config, "sliding_window", None) is None
            and config._attn_implementation == "sdpa")


def _score(logits: Tensor, targets: Tensor, temperature: float, needs_entropy: bool) -> tuple[Tensor, Tensor]:
    distribution = torch.log_softmax(logits.float() / temperature, -1)
    logprobs = distribution.gather(1, targets[:, None])[:, 0]
    with torch.set_grad_enabled(needs_entropy and torch.is_grad_enabled()):
        entropy = -(distribution.exp() * distribution).sum(-1)
    return logprobs, entropy


def _recomputed(score: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], states: Tensor,
                targets: Tensor) -> tuple[Tensor, Tensor]:
    """Keeps no logits for the backward pass, which makes them again."""
    if not torch.is_grad_enabled():
        return score(states, targets)
    scored: tuple[Tensor, Tensor] = checkpoint(score, states, targets, use_reentrant=False)
    return scored
