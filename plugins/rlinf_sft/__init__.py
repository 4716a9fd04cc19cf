"""Supervised fine-tuning."""

from __future__ import annotations

from rlinf_cli.api import Extension, hookimpl


@hookimpl
def register_algorithms() -> list[Extension]:
    return [Extension("sft", target="rlinf_sft.algorithm:SFT", config="rlinf_sft.config:SFTConfig",
                      summary="supervised fine-tuning on the responses in the data",
                      preset={"workflow": "supervised"})]
