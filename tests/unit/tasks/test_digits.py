from __future__ import annotations

from collections import Counter

import pytest

from rlinf_cli.api import Row
from rlinf_cli.config.rules import Rule
from rlinf_tasks.config import DigitsConfig
from rlinf_tasks.digits import Digits


def test_a_row_follows_from_seed_and_index() -> None:
    """Written down once: another Python or platform must give the same."""
    digits = Digits(DigitsConfig(), seed=0)
    assert [digits.row(i) for i in (0, 1, 10**12)] == [
        Row(text="d47=", answer="7"), Row(text="d76=", answer="6"), Row(text="d66=", answer="6")]
    assert Digits(DigitsConfig(), seed=0).row(1) == digits.row(1)
    assert [Digits(DigitsConfig(), seed=1).row(i) for i in range(8)] != [digits.row(i) for i in range(8)]


@pytest.mark.parametrize("length", [1, 2, 8])
def test_the_answer_is_the_last_digit(length: int) -> None:
    digits = Digits(DigitsConfig(length=length), seed=3)
    for index in range(200):
        row = digits.row(index)
        assert row.text is not None
        assert row.messages is None
        assert len(row.text) == length + 2
        assert row.text == f"d{int(row.text[1:-1]):0{length}d}="
        assert row.text[-2] == row.answer


def test_every_number_comes_as_often() -> None:
    digits = Digits(DigitsConfig(), seed=0)
    counts = Counter(digits.row(i).text for i in range(10_000))
    assert len(counts) == 100
    assert sum((count - 100) ** 2 / 100 for count in counts.values()) < 148.2  # chi-square, 99 degrees, p = 0.001


def test_it_never_ends() -> None:
    assert Digits(DigitsConfig(), seed=0).size is None


def test_length_has_limits() -> None:
    rule: Rule = DigitsConfig.__dataclass_fields__["length"].metadata["rule"]
    assert [length for length in range(-1, 12) if rule.allows(length)] == list(range(1, 9))
