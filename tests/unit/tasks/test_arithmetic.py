from __future__ import annotations

import operator
import re
from collections import Counter

import pytest

from rlinf_tasks.arithmetic import Arithmetic
from rlinf_tasks.config import ArithmeticConfig

COMPUTED = {"+": operator.add, "-": operator.sub, "*": operator.mul}


@pytest.mark.parametrize("digits", [1, 2, 9])
def test_the_answer_is_right(digits: int) -> None:
    data = Arithmetic(ArithmeticConfig(["+", "-", "*"], digits, "text"), seed=1)
    signs: Counter[str] = Counter()
    for index in range(300):
        row = data.row(index)
        match = re.fullmatch(r"(\d+)([-+*])(\d+)=", row.text or "")
        assert match is not None
        a, sign, b = int(match[1]), match[2], int(match[3])
        assert max(a, b) < 10**digits
        assert row.answer == str(COMPUTED[sign](a, b))
        assert int(row.answer) >= 0
        signs[sign] += 1
    assert min(signs.values()) > 60


def test_one_operation_alone() -> None:
    data = Arithmetic(ArithmeticConfig(["*"], 1), seed=0)
    assert all(" * " in (data.row(i).messages or [])[0]["content"] for i in range(20))


def test_an_operation_is_needed() -> None:
    assert list(ArithmeticConfig([]).problems()) == ["data.operations is empty: name one of +, -, *"]
    assert list(ArithmeticConfig().problems()) == []
