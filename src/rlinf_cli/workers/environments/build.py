"""From a configuration to environments, and to what one of them takes and gives."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Space
from numpy.typing import NDArray

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.environment import Environment
from rlinf_cli.data.digest import text_digest
from rlinf_cli.errors import UsageError
from rlinf_cli.models.resolve import build_once, default_cache
from rlinf_cli.workers.environments.members import Elsewhere
from rlinf_cli.workers.environments.order import Order

Spaces = tuple[Space[Any], Space[Any]]
"""Of the observations and the actions of one environment."""

_FILE = "spaces.json"
_VERSION = 1
_PATIENCE_S = 120.0


def build_environment(config: RunConfig) -> Environment:
    """The chosen one. Raises UsageError for what the simulator does not know."""
    extension = config.extension("env")
    if extension is None:
        raise UsageError("this workflow acts in an environment, and env.name is empty: name one, as in --env CartPole-v1")
    environment: Environment = extension.load()(config.settings("env"))
    return environment


def chunk_of(config: RunConfig) -> int:
    """Environment steps that an action of the chosen policy is for."""
    return int(getattr(config.settings("model"), "chunk", 1))


def spaces(config: RunConfig, device: str = "cpu") -> Spaces:
    """From the cache where it knows; else one environment is made for it, in a process of its own. Raises as its simulator."""
    extension = config.extension("env")
    assert extension is not None
    versions = [f"{name} {version(name)}" for name in ("gymnasium", *extension.requires)]
    key = text_digest([str(_VERSION), extension.target, repr(config.settings("env")), *versions])

    def build(directory: Path) -> None:
        (directory / _FILE).write_text(json.dumps([_described(space) for space in _looked_at(config, device)]))

    try:
        directory = build_once(default_cache().expanduser().resolve() / "spaces", key, build)
    except OSError:  # there is no place to write to: a cache is not needed
        return _looked_at(config, device)
    observation, action = map(_space, json.loads((directory / _FILE).read_text()))
    return observation, action


def check_images(config: RunConfig, device: str = "cpu") -> None:
    """Whether the environment can be drawn here. Raises as its simulator."""
    _looked_at(config, device, images=True)


def _looked_at(config: RunConfig, device: str, images: bool = False) -> Spaces:
    member = Elsewhere(Order(build_environment(config), 1, 1, device, images, 1), _PATIENCE_S)
    try:
        member.meet()
        observation, action = member.spaces
        return observation, action
    finally:
        member.close()


def _described(space: Space[Any]) -> Any:
    """As JSON has it."""
    if isinstance(space, Dict):
        return {"parts": [[name, _described(space[name])] for name in space]}
    if isinstance(space, Discrete):
        return {"choices": int(space.n), "from": int(space.start), "dtype": str(space.dtype)}
    if isinstance(space, Box):
        return {"shape": list(space.shape), "dtype": str(space.dtype), "low": _bound(space.low), "high": _bound(space.high)}
    raise UsageError(f"the environment has a space that is a {type(space).__name__}: a Box, a Discrete, or a Dict of boxes is "
                     "needed")


def _bound(array: NDArray[Any]) -> Any:
    """One number where all are the same."""
    flat = array.reshape(-1)
    return flat[0].item() if len(flat) and (flat == flat[0]).all() else array.tolist()


def _space(described: Any) -> Space[Any]:
    if "parts" in described:
        return Dict([(name, _space(part)) for name, part in described["parts"]])
    if "choices" in described:
        return Discrete(described["choices"], start=described["from"], dtype=np.dtype(described["dtype"]).type)
    shape, dtype = tuple(described["shape"]), np.dtype(described["dtype"])
    low, high = (np.broadcast_to(np.asarray(described[name], dtype), shape) for name in ("low", "high"))
    return Box(low, high, shape, dtype.type)
