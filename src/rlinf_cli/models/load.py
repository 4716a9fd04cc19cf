"""Loading what a model directory holds: the only place that calls `from_pretrained`. None of its code is run."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator
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
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as KNOWN

    model, _ = _load(path, dtype, AutoModelForCausalLM, KNOWN, "causal language model")
    return model


def load_value_model(path: Path, dtype: str = "float32") -> Any:
    """A `transformers` model with a number for each token, from the weights of a causal language model, whose numbers are then
    all 0, or of one that has a scalar head: a saved value model, or a sequence classifier of one label. Raises as
    `load_causal_lm`."""
    from torch import nn
    from transformers import AutoModelForTokenClassification
    from transformers.models.auto.modeling_auto import MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES as KNOWN

    model, missing = _load(path, dtype, AutoModelForTokenClassification, KNOWN, "model with a head for each token", num_labels=1)
    for name in missing:
        nn.init.zeros_(model.get_parameter(name))
    return model


def load_sequence_classifier(path: Path, dtype: str = "float32") -> Any:
    """A `transformers` model with a number for each text. Raises as `load_causal_lm`."""
    from transformers import AutoModelForSequenceClassification
    from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES as KNOWN

    model, missing = _load(path, dtype, AutoModelForSequenceClassification, KNOWN, "sequence classifier", num_labels=1)
    if missing:
        raise UsageError(f"model directory '{path}' has no trained head that scores texts ({missing[0]} is missing): it is no "
                         "reward model")
    return model


def _load(path: Path, dtype: str, auto: Any, known: Container[str], what: str, **settings: Any) -> tuple[Any, list[str]]:
    """The model in evaluation mode, and the tensors of its head, above the decoder or encoder, that the directory lacks; a
    causal language model has no head apart from its embeddings. Raises UsageError for any other tensor that is missing."""
    from transformers import __version__
    from transformers.utils import logging

    kind = json.loads((path / "config.json").read_text(encoding="utf-8")).get("model_type")
    if kind not in known:
        raise UsageError(f"model directory '{path}' holds a model of type {kind!r}, which is no {what} "
                         f"to transformers {__version__}")
    logging.disable_progress_bar()
    before = logging.get_verbosity()
    logging.set_verbosity_error()  # it warns of a new head, which is looked at below
    try:
        model, found = auto.from_pretrained(str(path), dtype=dtype, local_files_only=True, use_safetensors=True,
                                            trust_remote_code=False, output_loading_info=True, **settings)
    finally:
        logging.set_verbosity(before)
    inside = f"{model.base_model_prefix}."
    head = [] if not settings else sorted(name for name in found["missing_keys"] if not name.startswith(inside))
    broken = sorted(set(found["missing_keys"]) - set(head)) + sorted(str(key[0]) for key in found["mismatched_keys"])
    if broken:
        raise UsageError(f"model directory '{path}' does not fit its config.json: {len(broken)} tensors are missing or "
                         f"of another shape, first {broken[0]!r}")
    return model.eval(), head


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
