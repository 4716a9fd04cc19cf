"""A trained reward model: a sequence classifier of one label reads prompt and response, and its number is the reward.

The text is what the policy read and wrote, in the tokens of the reward model's own tokenizer, and its end token after a response
that ended by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlinf_rewards.config import ModelRewardConfig

if TYPE_CHECKING:
    from torch import Tensor

    from rlinf_cli.api import Sample


class ModelReward:
    """Contract: `rlinf_cli.api.BatchReward`."""

    isolated = False

    def __init__(self, config: ModelRewardConfig, device: str) -> None:
        import torch

        from rlinf_cli.api import load_sequence_classifier, load_tokenizer

        path = Path(config.path).expanduser()
        self._torch, self._config, self._device, self._is_away = torch, config, device, False
        self._tokenizer = load_tokenizer(path)
        self._model = load_sequence_classifier(path, config.dtype).to(self._device)
        self._longest = getattr(self._model.config, "max_position_embeddings", None)

    def score_batch(self, samples: Sequence[Sample]) -> list[float]:
        """One number a sample; NaN for one that is longer than the model reads, or has no token."""
        from rlinf_cli.api import micro_batches

        scores = [float("nan")] * len(samples)
        texts = [self._tokens(sample) for sample in samples]
        readable = [i for i, ids in enumerate(texts) if ids and (self._longest is None or len(ids) <= self._longest)]
        for batch in micro_batches([len(texts[i]) for i in readable], self._config.batch_tokens):
            chosen = [readable[place] for place in batch]
            for i, score in zip(chosen, self._scores([texts[i] for i in chosen]).tolist(), strict=True):
                scores[i] = score
        return scores

    def onload(self) -> int:
        if not self._is_away:
            return 0
        self._is_away = False
        return self._moved_to(self._device)

    def offload(self) -> int:
        """Into host memory; what is there already stays."""
        if self._is_away or self._device == "cpu":
            return 0
        self._is_away = True
        return self._moved_to("cpu")

    def _moved_to(self, device: str) -> int:
        self._model.to(device)
        return sum(parameter.nbytes for parameter in self._model.parameters())

    def _tokens(self, sample: Sample) -> list[int]:
        ids: list[int] = self._tokenizer.encode(sample.prompt + sample.response, add_special_tokens=False)
        end = self._tokenizer.eos_token_id
        return [*ids, end] if sample.finish == "stop" and end is not None else ids

    def _scores(self, texts: Sequence[Sequence[int]]) -> Tensor:
        """Of texts that fit one batch, float32 [B]: padded on the right, which a decoder does not see, and an encoder is told."""
        torch = self._torch
        lengths = torch.tensor([len(ids) for ids in texts])
        tokens = torch.zeros(len(texts), int(lengths.max()), dtype=torch.int64)
        for row, ids in zip(tokens, texts, strict=True):
            row[: len(ids)] = torch.tensor(ids)
        mask = torch.arange(tokens.shape[1]) < lengths[:, None]
        given = {"input_ids": tokens.to(self._device), "attention_mask": mask.long().to(self._device)}
        with torch.inference_mode():
            if hasattr(self._model, "score"):
                # not the classifier's own pooling, which takes an end token that is its padding token too for padding
                hidden = self._model.get_decoder()(**given, use_cache=False).last_hidden_state
                scores = self._model.score(hidden[torch.arange(len(texts)), (lengths - 1).to(self._device)])
            else:
                scores = self._model(**given).logits
        found: Tensor = scores[:, 0].float().cpu()
        return found
