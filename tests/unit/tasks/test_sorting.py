from __future__ import annotations

import pytest

from rlinf_tasks.config import SortingConfig
from rlinf_tasks.sorting import Sorting


@pytest.mark.parametrize("length", [1, 4, 8])
def test_the_answer_is_the_digits_in_order(length: int) -> None:
    data = Sorting(SortingConfig(length), seed=3)
    for index in range(200):
        row = data.row(index)
        assert row.text is not None
        assert row.text[0] + row.text[-1] == "s="
        assert len(row.text) == length + 2
        assert list(row.answer or "") == sorted(row.text[1:-1])


def test_rows_differ() -> None:
    data = Sorting(SortingConfig(4), seed=0)
    assert len({data.row(i).text for i in range(500)}) > 450
