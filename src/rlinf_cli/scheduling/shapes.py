"""Models that can be planned for without having them: their shapes, and what follows from these alone.

Parameters, FLOPs and cache are computed from a shape; tests compare the parameters with the published counts.
"""

from __future__ import annotations

from dataclasses import dataclass

BYTES = 2
"""Of a number in bfloat16."""


@dataclass(frozen=True)
class Shape:
    """A decoder with grouped queries and gated feed-forward layers, dense or of experts."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    intermediate: int
    """Of the feed-forward layer, or of each expert."""
    vocab: int
    head_dim: int = 128
    tied: bool = False
    """Whether output and input embedding are one."""
    experts: int = 0
    """0: dense."""
    active_experts: int = 0
    query_bias: bool = False
    query_norm: bool = False
    others: int = 0
    """Parameters beside the decoder, such as an image encoder's."""

    @property
    def attention(self) -> int:
        """Parameters of a layer's attention."""
        width, narrow = self.heads * self.head_dim, self.kv_heads * self.head_dim
        weights = 2 * self.hidden * width + 2 * self.hidden * narrow
        return weights + (width + 2 * narrow) * self.query_bias + 2 * self.head_dim * self.query_norm

    @property
    def expert(self) -> int:
        """Parameters of a layer's feed-forward part, or of one expert of it."""
        return 3 * self.hidden * self.intermediate

    @property
    def embedding(self) -> int:
        return self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        return self._with(self.experts) + self.embedding * (1 if self.tied else 2) + self.others

    @property
    def active_parameters(self) -> int:
        """Those that a token meets, with both embeddings."""
        return self._with(self.active_experts) + self.embedding * (1 if self.tied else 2) + self.others

    def token_flops(self, context: float) -> float:
        """Of a forward pass of one token that attends to so many; a backward pass costs twice as much."""
        multiplied = self._with(self.active_experts) + self.embedding + self.others
        return 2.0 * multiplied + 4.0 * self.layers * self.heads * self.head_dim * context

    def weights_read(self, tokens: float) -> float:
        """Bytes of weights that a step over so many tokens reads: of experts those that any token is sent to, if routes are
        independent."""
        touched = self.experts * (1 - (1 - self.active_experts / self.experts) ** tokens) if self.experts else 0.0
        return BYTES * (self._with(touched) + self.embedding)

    @property
    def cache_bytes(self) -> int:
        """Keys and values of one token."""
        return 2 * BYTES * self.layers * self.kv_heads * self.head_dim

    def _with(self, experts: float) -> int:
        """Parameters of all layers and the last norm, with so many experts in each layer."""
        feed_forward = experts * self.expert + self.hidden * self.experts if self.experts else self.expert
        return round(self.layers * (self.attention + feed_forward + 2 * self.hidden)) + self.hidden


SHAPES = {
    shape.name: shape for shape in (
        Shape("qwen2.5-1.5b", 28, 1536, 12, 2, 8960, 151936, tied=True, query_bias=True),
        Shape("qwen2.5-7b", 28, 3584, 28, 4, 18944, 152064, query_bias=True),
        Shape("qwen2.5-14b", 48, 5120, 40, 8, 13824, 152064, query_bias=True),
        Shape("qwen2.5-32b", 64, 5120, 40, 8, 27648, 152064, query_bias=True),
        Shape("qwen3-30b-a3b", 48, 2048, 32, 4, 768, 151936, experts=128, active_experts=8, query_norm=True),
        Shape("openvla-7b", 32, 4096, 32, 32, 11008, 32064, others=803_000_000),
    )
}
"""The last is a robot's policy: Llama 2's decoder behind two image encoders."""
