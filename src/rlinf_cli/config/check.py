"""Rules over several keys, and over what the machine has; nothing heavy is imported for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rlinf_cli.config.errors import raise_if_any
from rlinf_cli.config.schema import KINDS, RunConfig
from rlinf_cli.config.source import Given
from rlinf_cli.errors import CapacityError


def check(config: RunConfig, devices: int | None = None) -> None:
    """Raise ConfigError with everything that does not go together, CapacityError when `cluster.devices` asks for more.

    `devices`: how many of the asked kind there are; None when that is not known.
    """
    raise_if_any([*_core_problems(config), *_plugin_problems(config)])
    kind, _, asked = config.cluster.devices.partition(":")
    if devices is not None and asked and int(asked) > devices:
        fix = f"at most {kind}:{devices} can be had" if devices else "cluster.devices=auto takes what there is"
        raise CapacityError(f"{_shown(config, 'cluster.devices', config.cluster.devices)}: "
                            f"only {devices} {kind} devices are there: {fix}")


def _core_problems(config: RunConfig) -> Iterator[str]:
    yield from _indivisible(config)
    if config.placement != "temporal" and not Path(config.placement).is_file():
        yield f"{_shown(config, 'placement', config.placement)}: there is no such file"
    if config.extension("data") is None and not Path(config.data.name).expanduser().is_file():
        yield f"{_shown(config, 'data.name', config.data.name)}: there is no such file"
    if config.model.name.startswith((".", "/", "~")) and not Path(config.model.name).expanduser().is_dir():
        yield f"{_shown(config, 'model.name', config.model.name)}: there is no such directory"


def _indivisible(config: RunConfig) -> Iterator[str]:
    prompts, size, parts = config.rollout.prompts, config.rollout.group_size, config.algorithm.minibatches
    samples = prompts * size
    if samples % parts:
        divisors = [n for n in range(1, samples + 1) if samples % n == 0]
        below = [n for n in divisors if n < parts][-1]
        nearest = " or ".join(str(n) for n in [below, *[n for n in divisors if n > parts][:1]])
        yield (f"{_shown(config, 'algorithm.minibatches', parts)}: the {samples} samples of a step (rollout.prompts "
               f"{prompts} x rollout.group_size {size}) cannot be split into {parts} equal parts: {nearest} would do")


def _plugin_problems(config: RunConfig) -> Iterator[str]:
    """What the plugins' own rules say: `problems()` and `problems_with(config)` of their configuration dataclasses."""
    for section in KINDS:
        settings = config.settings(section)
        if hasattr(settings, "problems"):
            yield from settings.problems()
        if hasattr(settings, "problems_with"):
            yield from settings.problems_with(config)


def _shown(config: RunConfig, key: str, value: object) -> str:
    return str(Given(key, value, config.origin(key)))
