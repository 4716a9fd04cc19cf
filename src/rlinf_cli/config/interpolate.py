"""OmegaConf's interpolation: `${rollout.prompts}`, `${.prompts}` within a section, `${oc.env:HOME}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rlinf_cli.config.errors import nearest_key

_START = re.compile(r"(\\*)\$\{")


def is_interpolated(value: Any) -> bool:
    """Whether OmegaConf would change the value."""
    if isinstance(value, (list, tuple)):
        return any(map(is_interpolated, value))
    return isinstance(value, str) and "${" in value


def escaped(value: Any) -> Any:
    """The value written so that OmegaConf reads it as it is."""
    if isinstance(value, (list, tuple)):
        return [escaped(element) for element in value]
    return _START.sub(lambda match: match[1] * 2 + r"\${", value) if isinstance(value, str) else value


def interpolate(written: Mapping[str, Any], known: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The written values with every interpolation resolved, and, for those where that fails, the reason.

    `known`: dotted key -> value of the other keys, taken as they are.
    """
    if not written:
        return {}, {}
    from omegaconf import OmegaConf

    failures = {key: reason for key, value in written.items() if (reason := _malformed(value))}
    sound = {key: value for key, value in written.items() if key not in failures}
    tree = OmegaConf.create(_nested({key: escaped(value) for key, value in known.items()} | sound))
    values = {key: _resolved(tree, key, failures, known) for key in sound}
    return {key: value for key, value in values.items() if key not in failures}, failures


def _malformed(value: Any) -> str:
    """Why OmegaConf cannot parse the value; empty when it can."""
    from omegaconf import OmegaConf
    from omegaconf.errors import GrammarParseError

    try:
        OmegaConf.create([value])
    except GrammarParseError as error:
        reason = str(error).splitlines()[0]
        return f"not a valid interpolation ({reason}): write ${{KEY}}, or \\${{ for the signs themselves"
    return ""


def _resolved(tree: Any, key: str, failures: dict[str, str], known: Mapping[str, Any]) -> Any:
    from omegaconf import OmegaConf
    from omegaconf.errors import InterpolationKeyError, OmegaConfBaseException

    try:
        value = OmegaConf.select(tree, key, throw_on_resolution_failure=True)
        return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
    except InterpolationKeyError as error:
        missing = str(error).split("'")[1]
        failures[key] = f"there is no key '{missing}' to take the value from.{nearest_key(missing, known)}"
    except OmegaConfBaseException as error:
        reason = str(error).splitlines()[0].rpartition("interpolation: ")[2]
        failures[key] = f"cannot be interpolated: {reason}"


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """The tree of dotted keys; what stands below a single value is no key, and left out."""
    tree: dict[str, Any] = {}
    for name in sorted(values, key=lambda name: name.count(".")):
        *path, last = name.split(".")
        place: Any = tree
        for step in path:
            place = place.setdefault(step, {}) if isinstance(place, dict) else None
        if isinstance(place, dict):
            place[last] = values[name]
    return tree
