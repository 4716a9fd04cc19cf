"""Configuration keys of the reward `math`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rlinf_cli.api import key


@dataclass(frozen=True)
class MathConfig:
    r"""Keys of the reward `math`."""

    needs_answer: ClassVar[bool] = True

    extract: str = key("auto", choices=("auto", "boxed"))
    r"""What is compared with the answer: the last `\boxed{...}` of the response; with `auto`, where there is none, the last
    expression in it."""
    digits: int = key(6, ge=1, le=15)
    """Decimal places to which numbers that are not exact have to agree."""
