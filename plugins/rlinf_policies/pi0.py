"""`pi0`: a flow that turns noise into a chunk of actions, guided by a vision-language model.

From x_0 ~ N(0, 1), in S steps of length 1 / S from time 1 to 0, with a noise e_k ~ N(0, 1) in each so that there is a density:

    x_k+1 = x_k - v(x_k, 1 - k / S) / S + sigma * e_k
    log p = sum over k of log N(x_k+1; x_k - v(x_k, 1 - k / S) / S, sigma)        for each environment step of the chunk

and x_S is the action, from -1 to 1 for the range of each dimension. Sources: pi0 (arXiv 2410.24164), in the class
`PI0ForConditionalGeneration` of transformers; noise in each step, so that a flow can be trained by policy gradients: ReinFlow
(arXiv 2505.22094).

Deviations: sigma is a learned number for each dimension, where ReinFlow has a network for it. The log-probability of x_0 is left
out, as no weights change it. Dimensions that the model has beyond the environment's (a model of a directory has 32) follow the
flow that ends in 0, as they were trained to: x = time * x_0. The critic is a small network over the mean of what the
vision-language model makes of images and instruction, and the state. A deterministic action begins at x_0 = 0, with no noise
after it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Space
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from rlinf_cli.api import Acted, Evaluated, Tensors, UsageError
from rlinf_policies.heads import keep_bounds, linear
from rlinf_policies.observing import Observing
from rlinf_policies.seeing import IMAGE, INSTRUCTION, PADDING, TINY_EYE, Cameras, named, open_model, padded
from rlinf_policies.spaces import require_served
from rlinf_policies.vla import in_chunks, positions
from rlinf_policies.vla_config import PI0Config

TINY_VOCABULARY = IMAGE + 1


@dataclass(frozen=True)
class Sight:
    """Of N observations."""

    summary: Tensor
    """[N, width]"""
    state: Tensor
    """[N, numbers]"""
    mask: Tensor
    """int64 [N, tokens]: 0 where nothing was read."""
    cache: Any
    """Keys and values of what was read."""


class PI0Policy(Observing):
    """Contract: `rlinf_cli.api.Policy` and `Reads`. C environment steps of an action are used, of D dimensions."""

    low: Tensor
    high: Tensor

    def __init__(self, config: PI0Config, observation_space: Space[Any], action_space: Space[Any]) -> None:
        require_served(config, observation_space, action_space)
        super().__init__(observation_space, config.normalize)
        assert isinstance(action_space, Box)
        self._shape, self._length = action_space.shape, config.instruction_tokens
        dimensions, size = math.prod(self._shape), self._size
        self.flow, self._encoding = open_model(config.path, "PI0ForConditionalGeneration",
                                               lambda: tiny_flow(config.chunk, dimensions, size), "pi0")
        require_room(self.flow.config, config.chunk, dimensions, size)
        self._cameras = Cameras(observation_space, self.flow.config.vlm_config.vision_config.image_size)
        self.chunk, self._steps = config.chunk, config.denoising_steps
        self._whole = self.flow.config.chunk_size * self.flow.config.max_action_dim
        self.log_noise = nn.Parameter(torch.full((dimensions,), math.log(config.noise)))
        self.noise_size = self._whole + self._steps * self.flow.config.chunk_size * dimensions
        width = self.flow.config.vlm_config.text_config.hidden_size + size
        self.value = nn.Sequential(linear(width, config.value_width), nn.Tanh(), linear(config.value_width, 1, 1.0))
        keep_bounds(self, action_space)

    def encode(self, instructions: Sequence[str]) -> NDArray[np.int64]:
        return padded(instructions, self._encoding, self._length)

    @torch.no_grad()
    def act(self, observation: Tensors, noise: Tensor, deterministic: bool = False) -> Acted:
        sight = self._see(named(observation))
        start = noise[:, : self._whole].reshape(len(noise), self.flow.config.chunk_size, -1) * (not deterministic)
        added = noise[:, self._whole :].reshape(len(noise), self._steps, self.flow.config.chunk_size, -1)
        path, logprobs = [start], []
        for k in range(self._steps):
            mean = self._mean(path[-1], k, sight)
            moved = mean if deterministic else mean + self.log_noise.exp() * added[:, k]
            logprobs.append(self._logprobs(mean, moved))
            path.append(self._filled(moved, start, k + 1))
        return Acted(self._actions(path[-1]), torch.stack(path, 1), torch.stack(logprobs).sum(0), self._value(sight))

    def evaluate(self, observation: Tensors, sampled: Tensor) -> Evaluated:
        sight, dimensions = self._see(named(observation)), len(self.log_noise)
        logprobs = torch.stack([self._logprobs(self._mean(sampled[:, k], k, sight), sampled[:, k + 1, :, :dimensions])
                                for k in range(self._steps)]).sum(0)
        entropy = self._steps * (self.log_noise + 0.5 * math.log(2 * math.pi * math.e)).sum()
        return Evaluated(logprobs, entropy.expand_as(logprobs), self._value(sight))

    @torch.no_grad()
    def values(self, observation: Tensors) -> Tensor:
        return self._value(self._see(named(observation)))

    def _see(self, observation: Mapping[str, Tensor]) -> Sight:
        """What the vision-language model makes of images and instruction, and the state."""
        pixels, text = self._cameras.pixels(observation), observation[INSTRUCTION]
        config = self.flow.config.vlm_config
        patches = (config.vision_config.image_size // config.vision_config.patch_size) ** 2
        seen = text.new_full((len(text), pixels.shape[1] * patches), config.image_token_id)
        mask = torch.cat([torch.ones_like(seen), (text != self._encoding.padding).long()], 1)
        there = torch.ones(pixels.shape[:2], dtype=torch.bool, device=pixels.device)
        embedded = self.flow.model.embed_prefix(torch.cat([seen, text], 1), pixels, there)
        found = self.flow.model.vlm(inputs_embeds=embedded, attention_mask=mask, position_ids=positions(mask),
                                    token_type_ids=torch.zeros_like(mask), use_cache=True)
        weight = (mask / mask.sum(1, keepdim=True))[..., None]
        return Sight((found.last_hidden_state * weight).sum(1), self._state(observation), mask, found.cache)

    def _state(self, observation: Mapping[str, Tensor]) -> Tensor:
        if not self._sizes:
            return self.log_noise.new_zeros(len(observation[INSTRUCTION]), 0)
        return self._vectors(observation)

    def _value(self, sight: Sight) -> Tensor:
        values: Tensor = self.value(torch.cat([sight.summary, sight.state], 1))[:, 0]
        return values

    def _mean(self, x: Tensor, k: int, sight: Sight) -> Tensor:
        """Where step k goes to without noise, [N, chunk, D]."""
        before = sight.cache.get_seq_length()
        state = functional.pad(sight.state, (0, self.flow.config.max_state_dim - sight.state.shape[1]))
        time = x.new_full((len(x),), 1 - k / self._steps)
        velocity = self.flow(state=state, noise=x, timestep=time, attention_mask=sight.mask, cache=sight.cache).logits
        # what the flow has read of this step is not there for the next one
        sight.cache.crop(before - sight.cache.get_seq_length())
        mean: Tensor = x - velocity / self._steps
        return mean[..., : len(self.log_noise)]

    def _logprobs(self, mean: Tensor, x: Tensor) -> Tensor:
        """Of each environment step of the chunk, [N, chunk]."""
        scaled = (x - mean) * (-self.log_noise).exp()
        density: Tensor = -0.5 * scaled.square() - self.log_noise - 0.5 * math.log(2 * math.pi)
        return density.sum(-1)

    def _filled(self, x: Tensor, start: Tensor, k: int) -> Tensor:
        """With the dimensions that the environment has not, at the time after k steps."""
        return torch.cat([x, (1 - k / self._steps) * start[..., x.shape[-1] :]], -1)

    def _actions(self, x: Tensor) -> Tensor:
        used = x[:, : self.chunk, : len(self.log_noise)].clamp(-1, 1)
        return in_chunks(self.low + (used + 1) / 2 * (self.high - self.low), self._shape)


def require_room(config: Any, chunk: int, dimensions: int, state: int) -> None:
    """Raises UsageError where a model plans less than is wanted of it."""
    for what, wanted, most in (("model.chunk", chunk, config.chunk_size), ("the state's numbers", state, config.max_state_dim),
                               ("the action's dimensions", dimensions, config.max_action_dim)):
        if wanted > most:
            raise UsageError(f"{what}: {wanted}, but the model of model.path has room for {most}")


def tiny_flow(chunk: int, dimensions: int, state: int) -> Any:
    """A pi0 of 0.7 M parameters."""
    import transformers

    gemma = {"model_type": "gemma", "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 32}
    return transformers.PI0ForConditionalGeneration(transformers.PI0Config(
        vlm_config={"model_type": "paligemma", "projection_dim": 128, "image_token_id": IMAGE,
                    "text_config": {**gemma, "hidden_size": 128, "intermediate_size": 256, "vocab_size": TINY_VOCABULARY,
                                    "pad_token_id": PADDING},
                    "vision_config": {**TINY_EYE}},
        dit_config={**gemma, "hidden_size": 64, "intermediate_size": 128}, chunk_size=chunk, max_state_dim=max(state, 1),
        max_action_dim=dimensions)).eval()
