"""Group relative policy optimisation and its kin: one algorithm, whose variants are presets of the same keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlinf_cli.api import Extension, hookimpl

_PPO_CLIP = {"clip_low": 0.2, "clip_high": 0.2}

VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "grpo": ("group relative policy optimisation: clipped surrogate, no critic", {}),
    "dr-grpo": ("Dr. GRPO: no division by the spread of rewards or by the length of responses",
                {"normalize": "none", "aggregation": "sequence-sum", **_PPO_CLIP}),
    "dapo": ("DAPO: higher upper clip, only prompts whose samples differ, punishment near the length limit",
             {"clip_low": 0.2, "clip_high": 0.28, "aggregation": "token-mean", "zero_variance": "drop", "rounds": 4,
              "overlong_buffer": 0.2}),
    "rloo": ("REINFORCE leave-one-out: the baseline is the mean of the prompt's other samples",
             {"baseline": "leave-one-out", "normalize": "none", "aggregation": "sequence-sum", "kl_in": "reward",
              **_PPO_CLIP}),
    "reinforce++": ("REINFORCE++: advantages are standardised over all tokens of a step",
                    {"baseline": "none", "normalize": "batch", "kl_in": "reward", **_PPO_CLIP}),
    "gspo": ("group sequence policy optimisation: ratio and clip of whole responses",
             {"ratio_level": "sequence", "clip_low": 3e-4, "clip_high": 4e-4, "aggregation": "sequence-mean"}),
}
"""Name -> summary, and the keys of section `algorithm` that make the variant."""


@hookimpl
def register_algorithms() -> list[Extension]:
    return [Extension(name, target="rlinf_grpo.algorithm:GRPO", config="rlinf_grpo.config:GRPOConfig", summary=summary,
                      preset={f"algorithm.{key}": value for key, value in keys.items()})
            for name, (summary, keys) in VARIANTS.items()]
