"""Merges defaults, presets, CONFIG files and arguments into a `RunConfig`; everything that is wrong is told at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

from rlinf_cli.config.choose import Choice, choose
from rlinf_cli.config.errors import raise_if_any
from rlinf_cli.config.fields import KeySpec, config_class, extension_keys
from rlinf_cli.config.interpolate import interpolate, is_interpolated
from rlinf_cli.config.kinds import KINDS, Section
from rlinf_cli.config.schema import SECTIONS, TOP_LEVEL, Part, RunConfig
from rlinf_cli.config.source import Given, display, read_all
from rlinf_cli.config.unknown import unknown_keys
from rlinf_cli.errors import CapacityError, PluginError
from rlinf_cli.plugins.registry import Plugins


def resolve(files: Sequence[Path], overrides: Sequence[str], flags: Mapping[str, str | int | None],
            plugins: Plugins, inherited: Sequence[Path] = ()) -> RunConfig:
    """The configuration that the defaults, the presets of the chosen extensions, the CONFIG files (left to right) and
    the KEY=VALUE arguments give, a later one wins; a flag (`algo`, `steps`, ... see `source.FLAGS`) is a KEY=VALUE.
    `inherited`: CONFIG files of a run that is gone on from, before all others; their keys of extensions that are no longer
    chosen are passed over.

    Raises ConfigError with everything that is wrong, PluginError when a chosen extension is missing or broken.
    """
    read, problems = read_all([*inherited, *files], overrides, flags)
    given = {one.key: one for one in read if not _is_empty_section(one)}
    choice = choose(given, plugins)
    given = {key: one for key, one in given.items() if one.value is not None or key not in choice.places()}
    given = {key: one for key, one in given.items() if key in choice.specs or not _comes_from(one, inherited)}
    problems += [*choice.problems, *unknown_keys(given, choice, plugins)]
    known = {key: one for key, one in given.items() if key in choice.specs}
    values = choice.defaults() | _preset_values(choice)
    values |= _given_values(known, values, choice, problems)
    problems += _not_set(choice, known)
    raise_if_any(problems)
    return _built(choice, known, values)


def _comes_from(one: Given, files: Sequence[Path]) -> bool:
    return one.origin.rpartition(":")[0] in map(str, files)


def _is_empty_section(one: Given) -> bool:
    return one.value is None and one.key in SECTIONS


def _preset_values(choice: Choice) -> dict[str, Any]:
    problems: list[str] = []
    values = _typed(((preset, preset.value) for preset in choice.presets.values()), choice, problems)
    if problems:
        raise PluginError(problems[0])
    return values


def _given_values(known: Mapping[str, Given], below: Mapping[str, Any], choice: Choice,
                  problems: list[str]) -> dict[str, Any]:
    """Typed values of what was given; interpolations may refer to it and to the values `below`."""
    plain = _typed(((one, one.value) for one in known.values() if not is_interpolated(one.value)), choice, problems)
    written = {key: one.value for key, one in known.items() if is_interpolated(one.value)}
    resolved, failures = interpolate(written, {**below, **plain})
    problems += [f"{known[key]}: {reason}" for key, reason in failures.items()]
    return plain | _typed(((known[key], value) for key, value in resolved.items()), choice, problems)


def _typed(given: Iterable[tuple[Given, Any]], choice: Choice, problems: list[str]) -> dict[str, Any]:
    """Typed values of those that can be read; the others become problems."""
    values: dict[str, Any] = {}
    for one, value in given:
        values |= _read(one, value, choice.specs[one.key], problems)
    return values


def _read(one: Given, value: Any, spec: KeySpec, problems: list[str]) -> dict[str, Any]:
    try:
        return {one.key: spec.read(value)}
    except ValueError as error:
        came_out = "" if value == one.value else f" gives {display(value)}"
        problems.append(f"{one}{came_out}: {error}")
        return {}


def _not_set(choice: Choice, known: Mapping[str, Given]) -> Iterator[str]:
    for key, spec in choice.specs.items():
        if spec.default is MISSING and key not in known and key not in choice.presets:
            yield f"{key} is not set and {spec.owner} needs it: give {key}=VALUE"
    for part in choice.parts.get("eval", ()):
        if part.key == "eval.data" and part.extension is not None:
            needed = [key for key, spec in extension_keys("data", part.extension).items() if spec.default is MISSING]
            yield from (f"eval.data names {part.name}, which needs {key} to be set: name it in data.name too" for key in needed)


def _built(choice: Choice, known: Mapping[str, Given], values: Mapping[str, Any]) -> RunConfig:
    def made(home: Any, place: str) -> Any:
        return home(**{f.name: values[f"{place}.{f.name}"] for f in fields(home) if f.init})

    def with_settings(section: Section, part: Part) -> Part:
        home = part.extension and config_class(section, part.extension)
        return replace(part, settings=made(home, part.key)) if home else part

    chosen: dict[str, tuple[Part, ...]] = {
        section: tuple(with_settings(section, part) for part in choice.parts[section]) for section in KINDS}
    chosen["eval"] = tuple(_for_evaluation(part, chosen["data"]) for part in choice.parts.get("eval", ()))
    return RunConfig(
        **{name: values[name] for name in TOP_LEVEL},
        **{section: made(home, section) for section, home in SECTIONS.items()},
        chosen=chosen,
        origins={key: one.origin for key, one in {**choice.presets, **known}.items()},
    )


def _for_evaluation(part: Part, data: Iterable[Part]) -> Part:
    """With the settings of the training data of the same name, or the defaults."""
    same = [one for one in data if one.key == part.key]
    home = part.extension and config_class("data", part.extension)
    return replace(part, settings=same[0].settings if same else home() if home else None)


def check(config: RunConfig, devices: int | None = None) -> None:
    """Raise ConfigError with everything that does not go together, CapacityError when `cluster.devices` asks for more.

    `devices`: how many of the asked kind there are; None when that is not known.
    """
    raise_if_any([*_indivisible(config), *_idle_evaluation(config), *_unreachable_best(config), *_plugin_problems(config)])
    kind, _, asked = config.cluster.devices.partition(":")
    if devices is not None and asked and int(asked) > devices:
        fix = f"at most {kind}:{devices} can be had" if devices else "cluster.devices=auto takes what there is"
        raise CapacityError(f"{_shown(config, 'cluster.devices', config.cluster.devices)}: "
                            f"only {devices} {kind} devices are there: {fix}")


def _indivisible(config: RunConfig) -> Iterator[str]:
    prompts, parts = config.rollout.prompts, config.algorithm.minibatches
    if config.env.name:
        return  # what is lost with a simulator is not known before
    # supervised training takes the data's response to a prompt and generates none
    size = 1 if getattr(config.settings("algorithm"), "supervised", False) else config.rollout.group_size
    samples = prompts * size
    if samples % parts:
        divisors = [n for n in range(1, samples + 1) if samples % n == 0]
        below = [n for n in divisors if n < parts][-1]
        nearest = " or ".join(str(n) for n in [below, *[n for n in divisors if n > parts][:1]])
        yield (f"{_shown(config, 'algorithm.minibatches', parts)}: the {samples} samples of a step (rollout.prompts "
               f"{prompts} x rollout.group_size {size}) cannot be split into {parts} equal parts: {nearest} would do")


def _idle_evaluation(config: RunConfig) -> Iterator[str]:
    if config.eval.k > 1 and config.eval.temperature == 0:
        yield (f"{_shown(config, 'eval.k', config.eval.k)}: with eval.temperature 0 all responses to a prompt are the same: "
               f"give eval.temperature a value above 0, or eval.k=1")


def _unreachable_best(config: RunConfig) -> Iterator[str]:
    best = config.checkpoint.best
    shown = _shown(config, "checkpoint.best", best)
    if best and not config.checkpoint.every:
        yield f"{shown}: with checkpoint.every 0 there is only the last checkpoint: give checkpoint.every=STEPS"
    if best.removeprefix("-").startswith("eval/") and not config.eval.every:
        yield f"{shown}: with eval.every 0 nothing is evaluated while training: give eval.every=STEPS"


def _plugin_problems(config: RunConfig) -> Iterator[str]:
    """What the plugins' own rules say: `problems()` and `problems_with(config)` of their configuration dataclasses."""
    for section in KINDS:
        for part in config.parts(section):
            told = list(part.settings.problems()) if hasattr(part.settings, "problems") else []
            if hasattr(part.settings, "problems_with"):
                told += part.settings.problems_with(config)
            yield from (_at_home(sentence, section, part) for sentence in told)


def _at_home(sentence: str, section: str, part: Part) -> str:
    """The plugin knows its keys as `reward.KEY`; where it is one of several they stand at `reward.math.KEY`."""
    names = "|".join(f.name for f in fields(part.settings))
    return re.sub(rf"\b{section}\.({names})\b", rf"{part.key}.\1", sentence)


def _shown(config: RunConfig, key: str, value: object) -> str:
    return str(Given(key, value, config.origin(key)))
