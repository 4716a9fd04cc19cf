"""Loading what a model directory holds: the only place that calls `from_pretrained`. None of its code is run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlinf_cli.errors import UsageError
from rlinf_cli.models.files import weight_files

if TYPE_CHECKING:
    from torch import Tensor


def load_tokenizer(path: Path) -> Any:
    """The tokenizer (a `transformers` one) of a model directory."""
    if _declared_class(path) == "TokenizersBackend":
        # all is in tokenizer.json: no need to import the table of all models
        from transformers import PreTrainedTokenizerFast as Tokenizer
    else:
        from transformers import AutoTokenizer as Tokenizer
    return Tokenizer.from_pretrained(str(path), local_files_only=True, trust_remote_code=False)


def load_causal_lm(path: Path, dtype: str) -> Any:
    """The language model (a `transformers.PreTrainedModel`) of a directory, in evaluation mode, on the CPU.

    `dtype`: `float32` or `bfloat16`. Raises UsageError when it is no causal language model, and when weights are
    missing or do not fit the configuration, which `transformers` would fill with random numbers.
    """
    from transformers import AutoModelForCausalLM, __version__
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as KNOWN
    from transformers.utils import logging

    kind = json.loads((path / "config.json").read_text(encoding="utf-8")).get("model_type")
    if kind not in KNOWN:
        raise UsageError(f"model directory '{path}' holds a model of type {kind!r}, which is no causal language model "
                         f"to transformers {__version__}")
    logging.disable_progress_bar()
    model, found = AutoModelForCausalLM.from_pretrained(
        str(path), dtype=dtype, local_files_only=True, use_safetensors=True, trust_remote_code=False,
        output_loading_info=True)
    broken = sorted(found["missing_keys"]) + sorted(str(key[0]) for key in found["mismatched_keys"])
    if broken:
        raise UsageError(f"model directory '{path}' does not fit its config.json: {len(broken)} tensors are missing or "
                         f"of another shape, first {broken[0]!r}")
    return model.eval()


def stored_weights(path: Path) -> Iterator[tuple[str, Tensor]]:
    """Name and tensor of everything in a directory's safetensors files, mapped from the disk one at a time."""
    from safetensors import safe_open

    for name in weight_files(path):
        with safe_open(path / name, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118 - not a mapping
                yield key, file.get_tensor(key)


def _declared_class(path: Path) -> str | None:
    file = path / "tokenizer_config.json"
    return json.loads(file.read_text()).get("tokenizer_class") if file.is_file() else None
