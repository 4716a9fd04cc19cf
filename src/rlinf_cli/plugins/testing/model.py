"""Whether a named model keeps the contract of `rlinf_cli.api.ModelSource`."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from rlinf_cli.api import UsageError, check_directory, load_causal_lm, load_tokenizer, stored_weights, weights_checksum
from rlinf_cli.plugins.testing.findings import require, run_all, target_of

NO_VARIANT = "no.such.variant"


def check_model(target: Any, variant: str = "", seed: int = 0) -> None:
    """Raise AssertionError unless it builds a Hugging Face directory that loads, the same for the same key.

    `target`: the class, built as `target(variant, seed)`, or its extension.
    """
    source_class, _ = target_of(target, None)
    with tempfile.TemporaryDirectory() as folder:
        case = _Case(source_class, variant, seed, Path(folder))
        run_all(
            case.refuses_a_variant_that_there_is_not,
            case.has_a_key,
            case.builds_a_directory_that_loads,
            case.builds_the_same_again,
        )


class _Case:
    def __init__(self, source_class: Any, variant: str, seed: int, folder: Path) -> None:
        self._class, self._variant, self._seed, self._folder = source_class, variant, seed, folder

    def refuses_a_variant_that_there_is_not(self) -> None:
        try:
            self._class(NO_VARIANT, self._seed)
        except UsageError:
            return
        raise AssertionError(
            f"built with variant {NO_VARIANT!r} it must raise rlinf_cli.api.UsageError that names the known ones"
        )

    def has_a_key(self) -> None:
        key = self._class(self._variant, self._seed).key()
        require(
            isinstance(key, str) and re.fullmatch(r"[A-Za-z0-9][\w.+-]*", key) is not None,
            f"key() is {key!r}: it must be the name of a directory, of letters, digits and . _ + -",
        )
        require(self._class(self._variant, self._seed).key() == key, "key() is another one at every call")

    def builds_a_directory_that_loads(self) -> None:
        directory = self._built("first", self._seed)
        check_directory(directory)
        model, tokenizer = load_causal_lm(directory, "float32"), load_tokenizer(directory)
        rows = model.get_input_embeddings().weight.shape[0]
        require(len(tokenizer) <= rows, f"the tokenizer has {len(tokenizer)} tokens, but the model only {rows}")
        require(tokenizer.eos_token_id is not None, "the tokenizer has no end token (eos_token): responses would never end")
        ids = tokenizer("1", add_special_tokens=False)["input_ids"]
        require(len(ids) > 0, "the tokenizer makes no token of the text '1'")

    def builds_the_same_again(self) -> None:
        first = self._checksum("again", self._seed)
        key, other_key = (self._class(self._variant, seed).key() for seed in (self._seed, self._seed + 1))
        require(
            first == self._checksum("once-more", self._seed), "build() with the same seed writes other weights each time"
        )
        if key == other_key:
            require(
                first == self._checksum("other", self._seed + 1),
                "another seed gives other weights under the same key(): name the seed in it, or the cache mixes them up",
            )

    def _built(self, name: str, seed: int) -> Path:
        directory = self._folder / name
        directory.mkdir()
        self._class(self._variant, seed).build(directory)
        return directory

    def _checksum(self, name: str, seed: int) -> str:
        return weights_checksum(stored_weights(self._built(name, seed)))
