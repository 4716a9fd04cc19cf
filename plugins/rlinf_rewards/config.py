"""Configuration keys of the built-in rewards."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rlinf_cli.api import UsageError, check_directory, key


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


_INSIDE = r"(?:(?!</?(?:think|answer)>).)+"


@dataclass(frozen=True)
class FormatConfig:
    """Keys of the reward `format`."""

    pattern: str = rf"<think>{_INSIDE}</think>\s*<answer>{_INSIDE}</answer>"
    """Regular expression; `.` matches line ends too. The default: some thoughts between `<think>` and `</think>`, then some
    answer between `<answer>` and `</answer>`, each tag once."""
    mode: str = key("whole", choices=("whole", "anywhere"))
    """Whether the pattern is to match the whole response, blanks around it aside, or any part of it."""

    def problems(self) -> Iterator[str]:
        yield from _wrong(self.pattern)


@dataclass(frozen=True)
class RegexConfig:
    """Keys of the reward `regex`."""

    needs_answer: ClassVar[bool] = True

    pattern: str = r"<answer>(.*?)</answer>"
    """Regular expression whose first group is compared with the answer; `.` matches line ends too."""
    take: str = key("last", choices=("first", "last"))
    """Which of several matches counts."""
    ignore_case: bool = False
    """Whether the case of letters makes no difference when texts are compared; numbers are compared as numbers."""

    def problems(self) -> Iterator[str]:
        yield from _wrong(self.pattern) or _without_group(self.pattern)


@dataclass(frozen=True)
class LengthConfig:
    """Keys of the reward `length`."""

    target: int = key(ge=1)
    """Wanted length of the response, in tokens."""
    tolerance: int = key(64, ge=1)
    """Tokens beyond the target at which the reward has fallen to -1."""
    mode: str = key("at-most", choices=("at-most", "near"))
    """Whether only longer responses lose, or shorter ones too."""


@dataclass(frozen=True)
class CodeConfig:
    """Keys of the reward `code`."""

    tests: str = "tests"
    """Column with the tests of a row; `answer`: the row's answer, as in veRL's layout."""
    score: str = key("all", choices=("all", "fraction"))
    """1 when all tests pass and otherwise 0, or the share of tests that pass."""
    run_s: float = key(5.0, gt=0)
    """Seconds that all tests of a response may take together; tests that are not done by then have not passed."""
    memory_mb: int = key(1024, ge=64)
    """Memory that the program may use, in MB."""

    @property
    def needs_answer(self) -> bool:
        return self.tests == "answer"

    @property
    def needs_columns(self) -> tuple[str, ...]:
        return () if self.needs_answer else (self.tests,)

    def problems_with(self, config: Any) -> Iterator[str]:
        if self.run_s >= config.reward.timeout_s:
            yield (f"reward.run_s={self.run_s:g} reaches the limit of the whole reward, reward.timeout_s="
                   f"{config.reward.timeout_s:g}, at which a sample is left out: give one that is higher")


def _wrong(pattern: str) -> list[str]:
    try:
        re.compile(pattern)
    except re.error as error:
        return [f"reward.pattern={pattern} is no regular expression: {error}"]
    return []


def _without_group(pattern: str) -> list[str]:
    if re.compile(pattern).groups:
        return []
    return [f"reward.pattern={pattern} has no group: put ( and ) around what is compared with the answer"]


@dataclass(frozen=True)
class ModelRewardConfig:
    """Keys of the reward `model`."""

    on_device: ClassVar[bool] = True

    path: str = key()
    """Hugging Face directory of a sequence classifier with one label, and its tokenizer."""
    dtype: str = key("float32", choices=("float32", "bfloat16"))
    """Type of its weights and arithmetic."""
    batch_tokens: int = key(16384, ge=1)
    """Most tokens, padding included, that it reads at once; changes memory and speed, not the result."""

    def problems(self) -> Iterator[str]:
        """Raises UsageError as `check_directory`."""
        path = Path(self.path).expanduser()
        if not path.is_dir():
            raise UsageError(f"reward.path={self.path} is no directory: give that of a reward model, a sequence classifier "
                             "saved with model.save_pretrained")
        check_directory(path)
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        kinds, labels = config.get("architectures") or [], len(config.get("id2label") or "01")
        if not any(kind.endswith("ForSequenceClassification") for kind in kinds):
            yield f"reward.path={self.path} holds {', '.join(kinds) or 'an unnamed model'}, which is no sequence classifier"
        elif labels != 1:
            yield (f"reward.path={self.path} tells {labels} labels apart: a reward model has one, whose number is the reward "
                   "(num_labels=1)")
