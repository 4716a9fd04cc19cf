"""Seconds and bytes of a model's work on a machine, from its shape and the machine's data sheet: nothing here is measured.

What a step takes is the longest of what it computes, what it reads from memory, and, where a rank has several devices, what
these tell each other, plus fixed parts. A *unit* is the number of devices over which the model of one rank or replica is
spread: tensor parallel, and expert parallel for a model of experts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.scheduling import hardware
from rlinf_cli.scheduling.hardware import Hardware
from rlinf_cli.scheduling.problem import Batch, Curve, Decoding, Law, Memory
from rlinf_cli.scheduling.shapes import BYTES, Shape

Use: TypeAlias = Literal["generate", "infer", "train"]

UNITS = (1, 2, 4, 8)
"""Those that are tried: a rank stays on one node."""
STEP_S = 1.5e-3
"""Of a decode step, whatever the model: its schedule, sampling, and what an engine does between two."""
LAYER_S = 15e-6
"""Of a decode step, a layer: gaps between its kernels."""
REDUCE_S = 12e-6
"""Of a sum over the devices of a unit; a layer has two in a forward pass."""
EXPERT_SHARE = 0.4
"""Of a dense model's FLOP/s, where experts compute: each has few tokens, and these travel there and back."""
MOST_SLOTS = 256
"""Responses that an engine works on at once, as it is usually configured."""
RESERVED = 8e9
"""Bytes that an engine leaves on each device, for its own buffers and for what others leave."""
LEFT = 1.5e9
"""Bytes that a role leaves there when it has made room: the context of its process."""
STATE_BYTES = 6
"""A parameter in training, on the devices of each rank: weight in bfloat16, gradient in float32."""
OPTIMISER_BYTES = 12
"""A parameter, divided over all ranks: weight and two moments of AdamW in float32."""
LOGIT_TOKENS = 4096
"""Tokens whose logits exist at once: the loss is computed in pieces."""
MOVE_S = 0.1
"""Of leaving a device or coming back, beside the bytes: memory is mapped and freed. An engine of a 0.6B model, which has hardly
any bytes to move, wakes in 0.1 s, with its graphs (https://blog.vllm.ai/2025/10/26/sleep-mode.html); a trainer is taken to be
like it."""
SYNC_S = 1.0
"""Of bringing new weights to engines, beside the bytes: names, layouts, checks."""


@dataclass(frozen=True)
class Work:
    """A batch: response lengths [samples] in tokens, samples of a prompt, tokens of a prompt."""

    lengths: NDArray[np.int64]
    group: int = 1
    prompt_tokens: int = 1024

    @property
    def decode_context(self) -> float:
        """Tokens that a response under way attends to, on average over all decode steps."""
        return self.prompt_tokens + float((self.lengths**2).sum() / (2 * self.lengths.sum()))

    @property
    def pass_context(self) -> float:
        """The same over all tokens of prompts and responses, for passes over whole sequences."""
        whole = self.lengths + self.prompt_tokens
        return float((whole**2).sum() / (2 * whole.sum()))

    @property
    def longest(self) -> int:
        return int(self.lengths.max()) + self.prompt_tokens


@dataclass(frozen=True)
class Roofline:
    """A model on a machine, spread over `unit` devices, for a batch."""

    machine: Hardware
    shape: Shape
    work: Work
    unit: int = 1

    # ---- seconds ----

    def decode_step_s(self, active: float) -> float:
        """One token for each of so many responses."""
        context, shape = self.work.decode_context, self.shape
        read = shape.weights_read(active) / self.unit + active * context * self.cache_bytes
        computed = active * shape.token_flops(context) / self.unit
        return STEP_S + shape.layers * LAYER_S + self._told_s(2, active) + max(
            read / (self.machine.memory_speed * hardware.MEMORY_SHARE), computed / self._flops(hardware.PREFILL_SHARE))

    def forward_s(self, context: float) -> float:
        """A token among many, in a pass that keeps nothing for a backward pass."""
        return self.shape.token_flops(context) / self.unit / self._flops(hardware.PREFILL_SHARE) + self._sum_s(2)

    def training_s(self, context: float) -> float:
        """A token: forward, backward, which is two of these, and once more forward, for what was not kept."""
        return 4 * self.shape.token_flops(context) / self.unit / self._flops(hardware.TRAINING_SHARE) + self._sum_s(6)

    def update_s(self) -> float:
        """An optimiser step: gradients are summed and weights gathered over the network."""
        return 3 * BYTES * self.shape.parameters / self.unit / (self.machine.network_speed * hardware.NETWORK_SHARE)

    def sync_s(self) -> float:
        """New weights to an engine: each of its devices fetches its part."""
        return SYNC_S + self.weights / (self.machine.network_speed * hardware.NETWORK_SHARE)

    def move_s(self, use: Use, devices: int) -> float:
        """Between device and main memory, one way. Caches, gradients and activations are freed, not moved."""
        moved = self.weights + (OPTIMISER_BYTES * self.shape.parameters / devices if use == "train" else 0.0)
        return MOVE_S + moved / (self.machine.host_speed * hardware.HOST_SHARE)

    # ---- bytes on a device ----

    @property
    def weights(self) -> float:
        return BYTES * self.shape.parameters / self.unit

    @property
    def cache_bytes(self) -> float:
        """Of a token; beyond one device a key-value head they hold copies."""
        return self.shape.cache_bytes / min(self.unit, self.shape.kv_heads)

    @property
    def slots(self) -> int:
        """Responses whose keys and values fit at once, on average over their lengths; 0 where the weights alone do not."""
        room = self.machine.usable_memory - self.weights - RESERVED
        return max(0, min(MOST_SLOTS, int(room / (self.cache_bytes * self.work.decode_context))))

    def memory(self, use: Use) -> Memory:
        if use == "generate":
            cache = self.slots * self.work.decode_context * self.cache_bytes
            return Memory(self.weights + cache + LEFT, 0.0, LEFT)
        if use == "infer":
            return Memory(self.weights + self._layer() + self._logits() + LEFT, 0.0, LEFT)
        kept = BYTES * self.work.longest * self.shape.layers * self.shape.hidden / self.unit
        state = STATE_BYTES * self.shape.parameters / self.unit
        return Memory(state + kept + self._layer() + self._logits() + LEFT, OPTIMISER_BYTES * self.shape.parameters, LEFT)

    # ---- costs as a search takes them ----

    def decoding(self) -> Decoding:
        """Raises ValueError where no response fits."""
        if not self.slots:
            raise ValueError(f"{self.shape.name} does not fit on {self.unit} {self.machine.name}")
        active = [2**power for power in range(self.slots.bit_length())]
        points = tuple(sorted({*active, self.slots}))
        step_s = Curve(tuple(map(float, points)), tuple(self.decode_step_s(count) for count in points))
        prompt_s = self.work.prompt_tokens * self.forward_s(self.work.prompt_tokens / 2) / self.work.group
        return Decoding(step_s, self.slots, self.unit, prompt_s)

    def batch(self, use: Use) -> Batch:
        """Of a pass over prompts and responses: tokens of both cost the same."""
        token_s = self.training_s(self.work.pass_context) if use == "train" else self.forward_s(self.work.pass_context)
        chunk_s = self.shape.layers * LAYER_S + self.weights / (self.machine.memory_speed * hardware.MEMORY_SHARE)
        law = Law(chunk_s, token_s * self.work.prompt_tokens, token_s)
        return Batch(((1, law),), self.unit, self.update_s() if use == "train" else 0.0)

    # ---- parts ----

    def _flops(self, share: float) -> float:
        return self.machine.flops * share * (EXPERT_SHARE if self.shape.experts else 1.0)

    def _sum_s(self, sums: int) -> float:
        """Of a token: so many sums a layer over the devices of the unit."""
        size = BYTES * self.shape.hidden * 2 * (self.unit - 1) / self.unit
        return sums * self.shape.layers * size / (self.machine.link_speed * hardware.LINK_SHARE)

    def _told_s(self, sums: int, tokens: float) -> float:
        latency = sums * self.shape.layers * REDUCE_S if self.unit > 1 else 0.0
        return latency + tokens * self._sum_s(sums)

    def _layer(self) -> float:
        """Activations of the layer that computes."""
        width = 3 * self.shape.intermediate * max(1, self.shape.active_experts) + 4 * self.shape.hidden
        return BYTES * self.work.longest * width / self.unit

    def _logits(self) -> float:
        return 2.0 * 4 * LOGIT_TOKENS * self.shape.vocab / self.unit
