"""What of gymnasium's spaces the policies serve."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Space

from rlinf_cli.api import UsageError

WHOLE = ""
"""Name of an observation that is no mapping."""


def parts(space: Space[Any]) -> Mapping[str, Space[Any]]:
    """What is observed, by name, in a fixed order."""
    return {name: space[name] for name in sorted(space)} if isinstance(space, Dict) else {WHOLE: space}


def is_image(space: Space[Any]) -> bool:
    """Whether a part is an image: bytes of three dimensions, [height, width, channels] or [channels, height, width]."""
    return isinstance(space, Box) and space.dtype == np.uint8 and len(space.shape) == 3


def vectors(space: Space[Any]) -> dict[str, int]:
    """Name of each part that is no image -> numbers that it becomes; a choice of n becomes n numbers."""
    return {name: int(part.n) if isinstance(part, Discrete) else int(np.prod(part.shape or (1,)))
            for name, part in parts(space).items() if not is_image(part)}


def images(space: Space[Any]) -> dict[str, tuple[int, ...]]:
    """Name of each image -> its shape."""
    return {name: part.shape for name, part in parts(space).items() if is_image(part) and part.shape is not None}


def channels_last(shape: tuple[int, ...]) -> bool:
    """Whether an image of this shape is [height, width, channels]."""
    return shape[2] <= shape[0]


def observation_problems(space: Space[Any], images: bool) -> Iterator[str]:
    """What cannot be observed, a sentence each; `images`: whether they can."""
    for name, part in parts(space).items():
        what = f"the observation '{name}'" if name else "the observation"
        if not isinstance(part, (Box, Discrete)):
            yield f"{what} is a {type(part).__name__}: policies observe a Box, a Discrete, or a Dict of these"
        elif is_image(part) and not images:
            yield f"{what} is an image of shape {part.shape}, which this policy does not see: use model.name=cnn"


def action_problems(space: Space[Any], squash: bool) -> Iterator[str]:
    """Why such actions cannot be drawn, a sentence each."""
    if not isinstance(space, (Box, Discrete)):
        yield f"the action is a {type(space).__name__}: policies draw a Box or a Discrete"
    elif isinstance(space, Box) and squash and not space.is_bounded():
        yield "model.squash=true needs actions with bounds, and the environment's have none: leave it out"


def require_served(config: Any, observation_space: Space[Any], action_space: Space[Any]) -> None:
    """Raises UsageError saying what of the spaces a policy of this configuration cannot serve."""
    problems = list(config.problems_with_spaces(observation_space, action_space))
    if problems:
        raise UsageError("; ".join(problems))
