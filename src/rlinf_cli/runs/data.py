"""The rows of a run: opened as the configuration says, and those left out that are too long for the policy."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.data.datasets import held_out
from rlinf_cli.data.digest import text_digest
from rlinf_cli.data.layouts import Reading
from rlinf_cli.data.lengths import Lengths, tokenizer_digest
from rlinf_cli.data.rows import Row
from rlinf_cli.data.sources import Source, open_sources
from rlinf_cli.errors import UsageError
from rlinf_cli.models.resolve import build_once, default_cache, resolve_model
from rlinf_cli.plugins.registry import Plugins

Say = Callable[[str], None]
_FOUND = "overlong.json"
_VERSION = 1
"""Of what is kept in the cache."""


def training_sources(config: RunConfig, plugins: Plugins, supervised: bool) -> tuple[Source, ...]:
    """What `data.name` names. `supervised`: each row must have a response to learn."""
    return open_sources(config.parts("data"), config.seed, _reading(config, supervised), config.data.system_prompt,
                        plugins.names("dataset"))


def evaluation_sources(config: RunConfig, plugins: Plugins) -> tuple[Source, ...]:
    """What `eval.data` names; without it what `data.name` names. The rows of generators are none that are trained on."""
    option = "eval.data" if config.parts("eval") else "data.name"
    return open_sources(config.parts("eval") or config.parts("data"), held_out(config.seed), _reading(config, False),
                        config.data.system_prompt, plugins.names("dataset"), option)


def without_overlong(sources: Sequence[Source], config: RunConfig, plugins: Plugins, say: Say) -> tuple[Source, ...]:
    """The sources without the prompts that exceed `rollout.max_prompt_tokens`, which `say` is told of.

    Generators stay as they are. What was found out is kept in the cache. Raises UsageError when `data.overlong` is
    `error` and there is such a prompt, and when no prompt of a source is left.
    """
    if all(source.size is None for source in sources):
        return tuple(sources)
    model = resolve_model(config.model.name, config.seed, plugins)
    return tuple(source if source.size is None else _admitted(source, model, config, say) for source in sources)


def _admitted(source: Source, model: Path, config: RunConfig, say: Say) -> Source:
    limit, size = config.rollout.max_prompt_tokens, source.size or 0
    found = _overlong(source, model, config)
    if not found:
        return source
    if config.data.overlong == "error":
        index = min(found)
        raise UsageError(f"{source.where(index)}: the prompt has {found[index]} tokens, more than rollout.max_prompt_tokens="
                         f"{limit} allows ({len(found)} of {size} prompts are too long): raise it, or leave them out with "
                         "data.overlong=drop")
    if len(found) == size:
        raise UsageError(f"all {size} prompts of {source.name} are longer than rollout.max_prompt_tokens={limit} tokens, the "
                         f"shortest has {min(found.values())}: raise it")
    verb = "is" if len(found) == 1 else "are"
    say(f"{len(found)} of {size} prompts {verb} longer than {limit} tokens and {verb} left out ({source.name})")
    return replace(source, kept=[index for index in range(size) if index not in found])


def _overlong(source: Source, model: Path, config: RunConfig) -> dict[int, int]:
    """Row -> tokens, of the prompts that are too long; from the cache where it knows."""
    limit = config.rollout.max_prompt_tokens
    key = text_digest([str(_VERSION), source.dataset.fingerprint(), repr(_reading(config, source.supervised)),
                       source.system_prompt, tokenizer_digest(model), str(limit)])

    def build(directory: Path) -> None:
        (directory / _FOUND).write_text(json.dumps(_measured(source, model, limit)))

    try:
        directory = build_once(default_cache().expanduser().resolve() / "lengths", key, build)
    except OSError:  # there is no place to write to: a cache is not needed
        return _measured(source, model, limit)
    return {int(index): tokens for index, tokens in json.loads((directory / _FOUND).read_text()).items()}


def _measured(source: Source, model: Path, limit: int) -> dict[int, int]:
    lengths = Lengths(model, limit, lambda: _Reader(model, limit))
    return {index: tokens for index in range(source.size or 0) if (tokens := lengths.excess(source.row(index)))}


class _Reader:
    """The rollout's own way from a row to tokens."""

    def __init__(self, model: Path, limit: int) -> None:
        from rlinf_cli.rl.trajectory import Prompt
        from rlinf_cli.workers.prompts import PromptEncoder

        self._prompt, self._encoder = Prompt, PromptEncoder(model, limit)

    def text(self, row: Row) -> str:
        return self._encoder.text(self._prompt("", row.text, row.messages))

    def count(self, text: str) -> int:
        return len(self._encoder.ids(text))


def _reading(config: RunConfig, supervised: bool) -> Reading:
    data = config.data
    return Reading(data.prompt_key, data.answer_key, data.target_key, data.split, supervised)
