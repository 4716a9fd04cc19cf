"""`vla`: a causal vision-language model that says actions in tokens, one for each dimension and environment step.

A dimension's range is cut into 255 bins by 256 edges. Bin b is the token `end - 1 - b`, at the end of the vocabulary, and means
its middle; a 256th token, of numbers at the upper edge, means that of the last bin. An action of a chunk of C steps is C * D
tokens, step by step, each predicted from the instruction, the images and the tokens before it. Source: OpenVLA (arXiv
2406.09246), which took it from RT-2 (arXiv 2307.15818); chunks: OpenVLA-OFT (arXiv 2502.19645).

Deviations: tokens are drawn among the bins alone, and log-probabilities are of that distribution; the range of a dimension is
the action space's, not that of demonstrations; the critic is a small network over what the model makes of the last token of the
prompt. Chunks are written one token after the other, not at once as OFT does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Space
from numpy.typing import NDArray
from torch import Tensor, nn

from rlinf_cli.api import Acted, Evaluated, Tensors
from rlinf_policies.heads import choose, keep_bounds, linear
from rlinf_policies.seeing import (
    BYTES,
    IMAGE,
    INSTRUCTION,
    PADDING,
    TINY_EYE,
    TINY_IMAGE,
    TINY_PATCH,
    Cameras,
    named,
    open_model,
    padded,
)
from rlinf_policies.spaces import require_served
from rlinf_policies.vla_config import VLAConfig

BINS = 256
TINY_VOCABULARY = BYTES + 8 + BINS


class VLAPolicy(nn.Module):
    """Contract: `rlinf_cli.api.Policy`, `Reads` and `Imitates`."""

    low: Tensor
    high: Tensor

    def __init__(self, config: VLAConfig, observation_space: Space[Any], action_space: Space[Any]) -> None:
        super().__init__()
        require_served(config, observation_space, action_space)
        assert isinstance(action_space, Box)
        self.vlm, self._encoding = open_model(config.path, "AutoModelForImageTextToText", tiny_vlm)
        vision, text = self.vlm.config.vision_config, self.vlm.config.get_text_config()
        self._cameras = Cameras(observation_space, vision.image_size)
        self._patches = (vision.image_size // vision.patch_size) ** 2
        self._length, self._end = config.instruction_tokens, config.action_end or text.vocab_size
        self.chunk, self._shape = config.chunk, action_space.shape
        self.noise_size = self.chunk * int(np.prod(self._shape))
        self.value = nn.Sequential(linear(text.hidden_size, config.value_width), nn.Tanh(), linear(config.value_width, 1, 1.0))
        keep_bounds(self, action_space)

    def encode(self, instructions: Sequence[str]) -> NDArray[np.int64]:
        return padded(instructions, self._encoding, self._length)

    @torch.no_grad()
    def act(self, observation: Tensors, noise: Tensor, deterministic: bool = False) -> Acted:
        prompt = self._prompt(named(observation))
        found = self.vlm.model(**prompt, use_cache=True)
        last, mask = found.last_hidden_state[:, -1], prompt["attention_mask"]
        values, bins, logprobs = self.value(last)[:, 0], [], []
        for k in range(self.noise_size):
            distribution = torch.log_softmax(self._logits(last), 1)
            chosen = distribution.argmax(1) if deterministic else choose(distribution, noise[:, k])
            bins.append(chosen)
            logprobs.append(distribution.gather(1, chosen[:, None]))
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], 1)
            if k + 1 < self.noise_size:
                found = self.vlm.model(input_ids=self._tokens(chosen[:, None]), attention_mask=mask,
                                       position_ids=mask.sum(1, keepdim=True) - 1, cache=found.cache, use_cache=True)
                last = found.last_hidden_state[:, -1]
        drawn = torch.stack(bins, 1)
        return Acted(self._actions(drawn), drawn, torch.cat(logprobs, 1), values)

    def evaluate(self, observation: Tensors, sampled: Tensor) -> Evaluated:
        prompt = self._prompt(named(observation))
        said = self._tokens(sampled[:, :-1])
        mask = torch.cat([prompt["attention_mask"], torch.ones_like(said)], 1)
        found = self.vlm.model(input_ids=torch.cat([prompt["input_ids"], said], 1), pixel_values=prompt["pixel_values"],
                               attention_mask=mask, position_ids=positions(mask), use_cache=False)
        states = found.last_hidden_state[:, -self.noise_size :]
        distribution = torch.log_softmax(self._logits(states), -1)
        entropy = -(distribution.exp() * distribution).sum(-1)
        return Evaluated(distribution.gather(2, sampled[..., None])[..., 0], entropy, self.value(states[:, 0])[:, 0])

    @torch.no_grad()
    def values(self, observation: Tensors) -> Tensor:
        found = self.vlm.model(**self._prompt(named(observation)), use_cache=False)
        values: Tensor = self.value(found.last_hidden_state[:, -1])[:, 0]
        return values

    def statistics(self, observation: Tensors) -> Mapping[str, Tensor]:
        return {}

    def absorb(self, statistics: Mapping[str, Tensor]) -> None:
        """None are kept."""

    def drawn(self, actions: Tensor) -> Tensor:
        """The bins that they fall into, [N, C * D]."""
        share = (actions.reshape(len(actions), self.chunk, -1).float() - self.low) / (self.high - self.low)
        return (share * (BINS - 1)).floor().clamp(0, BINS - 2).long().flatten(1)

    def _prompt(self, observation: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Instruction and images, the former padded on the left."""
        pixels, text = self._cameras.pixels(observation), observation[INSTRUCTION]
        seen = text.new_full((len(text), self._cameras.count * self._patches), self.vlm.config.image_token_id)
        mask = torch.cat([(text != self._encoding.padding).long(), torch.ones_like(seen)], 1)
        return {"input_ids": torch.cat([text, seen], 1), "pixel_values": pixels.flatten(0, 1), "attention_mask": mask,
                "position_ids": positions(mask)}

    def _logits(self, states: Tensor) -> Tensor:
        """Of the bins, [..., BINS], the first bin first."""
        weight = self.vlm.get_output_embeddings().weight[self._end - BINS : self._end]
        return nn.functional.linear(states, weight).flip(-1)

    def _tokens(self, bins: Tensor) -> Tensor:
        return self._end - 1 - bins

    def _actions(self, bins: Tensor) -> Tensor:
        middle = (bins.clamp(max=BINS - 2).reshape(len(bins), self.chunk, -1) + 0.5) / (BINS - 1)
        return in_chunks(self.low + middle * (self.high - self.low), self._shape)


def in_chunks(actions: Tensor, shape: tuple[int, ...]) -> Tensor:
    """[E, C, D] to [E, C, *shape], or [E, *shape] of a chunk of one step."""
    shaped = actions.reshape(*actions.shape[:2], *shape)
    return shaped if shaped.shape[1] > 1 else shaped[:, 0]


def positions(mask: Tensor) -> Tensor:
    """Of each token that is no padding, from 0; [N, T]."""
    return (mask.cumsum(1) - 1).clamp(min=0)


def tiny_vlm() -> Any:
    """A LLaVA of 0.7 M parameters: SigLIP's eye, a Llama, and a projection between them."""
    from transformers import LlavaConfig, LlavaForConditionalGeneration

    return LlavaForConditionalGeneration(LlavaConfig(
        vision_config={**TINY_EYE},
        text_config={"model_type": "llama", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3,
                     "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": TINY_VOCABULARY, "pad_token_id": PADDING,
                     "max_position_embeddings": 1024},
        image_token_index=IMAGE, image_seq_length=(TINY_IMAGE // TINY_PATCH) ** 2, vision_feature_select_strategy="full",
        vision_feature_layer=-1)).eval()
