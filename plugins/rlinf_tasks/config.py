"""Configuration keys of the built-in tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from rlinf_cli.api import key

FORMS = ("chat", "text")


@dataclass(frozen=True)
class DigitsConfig:
    """Keys of the data set `digits`."""

    length: int = key(2, ge=1, le=8)
    """Digits of the number."""


@dataclass(frozen=True)
class SortingConfig:
    """Keys of the data set `sorting`."""

    length: int = key(4, ge=1, le=8)
    """Digits to sort."""


@dataclass(frozen=True)
class ArithmeticConfig:
    """Keys of the data set `arithmetic`."""

    operations: list[str] = key(["+", "-"], choices=("+", "-", "*"))  # noqa: RUF009
    """Operations, each as likely as the others; of a difference the larger number comes first."""
    digits: int = key(2, ge=1, le=9)
    """Most digits of each of the two numbers."""
    form: str = key("chat", choices=FORMS)
    """A question as a chat message, or bare text such as `47+8=`."""

    def problems(self) -> Iterator[str]:
        if not self.operations:
            yield "data.operations is empty: name one of +, -, *"


@dataclass(frozen=True)
class CountdownConfig:
    """Keys of the data set `countdown`."""

    count: int = key(3, ge=2, le=6)
    """Numbers that are given."""
    largest: int = key(20, ge=2, le=1000)
    """Each number is between 1 and this."""
    operations: list[str] = key(["+", "-", "*"], choices=("+", "-", "*", "/"))  # noqa: RUF009
    """Operations that the target is made with."""
    form: str = key("chat", choices=FORMS)
    """A task as a chat message, or bare text such as `3,5,7=56?`."""

    def problems(self) -> Iterator[str]:
        if not set(self.operations) & {"+", "-", "*"}:
            yield "data.operations needs one of +, -, *: not every two numbers can be divided"


@dataclass(frozen=True)
class CountdownRewardConfig:
    """Keys of the reward `countdown`."""

    needs_columns: ClassVar[tuple[str, ...]] = ("target",)

    use: str = key("exactly", choices=("exactly", "at-most"))
    """Whether each number must be used exactly once, or at most once."""
    valid: float = key(0.1, ge=0, le=1)
    """Reward of an expression of the right numbers that does not give the target."""
    require_end: bool = True
    """Whether a response that was cut off at the length limit is wrong whatever it says."""
