"""Configuration keys of the built-in rewards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlinf_cli.api import key


@dataclass(frozen=True)
class ExactConfig:
    """Keys of the reward `exact`."""

    needs_answer: ClassVar[bool] = True

    extract: str = key("auto", choices=("auto", "all", "last-number"))
    """What is compared with the answer: the whole response, surrounding blanks aside, or the last number in it; `auto`
    takes the last number when the answer is one."""
    require_end: bool = True
    """Whether a response that was cut off at the length limit is wrong whatever it says."""
    ended: float = key(0.0, ge=0, le=1)
    """Share of the reward for ending with a stop token; the rest is for the right answer."""
