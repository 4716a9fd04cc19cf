from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from rlinf_cli.api import Row
from rlinf_cli.config.schema import Rule
from rlinf_tasks import register_datasets
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


def test_the_extension_loads_and_fits_the_longest_number() -> None:
    (extension,) = register_datasets()
    assert extension.name == "digits"
    assert extension.load() is Digits
    assert extension.load_config() is DigitsConfig
    longest = Digits(DigitsConfig(length=8), 0).row(0).text
    assert len(longest or "") <= extension.preset["rollout.max_prompt_tokens"]


def test_listing_it_is_light() -> None:
    code = ("import sys, rlinf_tasks as t; [e.load_config() for e in t.register_datasets()]; import rlinf_tasks.digits;"
            "print([m for m in ('numpy', 'torch', 'ray', 'transformers') if m in sys.modules])")
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
