"""What a model of transformers says, token by token: that to which engines and trainers are compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlinf_cli.api import Sample, Sampling, load_causal_lm


class ReferenceModel:
    """The model of a directory in float32 on the CPU, read with one forward pass a response."""

    def __init__(self, directory: Path) -> None:
        self.model: Any = load_causal_lm(directory, "float32")

    def weights(self) -> dict[str, Tensor]:
        """Copies by name, of tied ones the first."""
        seen, found = set(), {}
        for name, tensor in self.model.state_dict(keep_vars=True).items():
            if id(tensor) not in seen:
                seen.add(id(tensor))
                found[name] = tensor.detach().clone()
        return found

    def take(self, weights: dict[str, Tensor]) -> None:
        """Hold these instead."""
        with torch.no_grad():
            for name, tensor in self.model.state_dict().items():
                if name in weights:
                    tensor.copy_(weights[name])

    def distributions(self, prompt_ids: Any, response_ids: Any, temperature: float = 1.0) -> Tensor:
        """Log-probabilities of all tokens at each place of the response, float32 [n, V], with a gradient."""
        tokens = torch.cat([torch.as_tensor(ids).long() for ids in (prompt_ids, response_ids)])
        logits = self.model(input_ids=tokens[None], use_cache=False).logits[0, len(prompt_ids) - 1 : len(tokens) - 1]
        return torch.log_softmax(logits.float() / temperature, -1)

    def log_probs(self, samples: Sequence[Sample], temperature: float) -> list[Tensor]:
        """Of each response token, float32 [n] a sample, with a gradient."""
        return [
            chosen(self.distributions(sample.prompt_ids, sample.response_ids, temperature), sample.response_ids)
            for sample in samples
        ]


def chosen(distributions: Tensor, token_ids: Any) -> Tensor:
    """Log-probabilities of one token in each row."""
    return distributions.gather(1, torch.as_tensor(token_ids).long()[:, None])[:, 0]


def truncated(distributions: Tensor, sampling: Sampling) -> Tensor:
    """What is left of [n, V] by top-k, then top-p, then min-p, as log-probabilities that add up to 1 again."""
    ordered, order = torch.sort(distributions, dim=-1, descending=True, stable=True)
    probabilities = ordered.exp()
    if sampling.top_k:
        probabilities[:, sampling.top_k :] = 0
    before = probabilities.cumsum(-1) - probabilities
    kept = probabilities >= sampling.min_p * probabilities[:, :1]
    if sampling.top_p < 1:
        kept &= before < sampling.top_p * probabilities.sum(-1, keepdim=True)
    kept &= probabilities > 0
    places = torch.zeros_like(kept).scatter(1, order, kept)
    return torch.log_softmax(distributions.masked_fill(~places, -torch.inf), -1)
