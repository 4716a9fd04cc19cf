from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from rlinf_rewards.cases import Cases, Exchange, read_cases

ASSERTS = ["assert f(1) == 2", "assert f(2) == 3"]
PAIRS = [{"input": "1\n", "output": "2"}, {"input": "2\n", "output": "3"}]
EXCHANGES = Cases(exchanges=(Exchange("1\n", "2"), Exchange("2\n", "3")))


@pytest.mark.parametrize(("tests", "cases"), [
    (ASSERTS, Cases(tuple(ASSERTS))),
    (tuple(ASSERTS), Cases(tuple(ASSERTS))),
    (np.array(ASSERTS, object), Cases(tuple(ASSERTS))),
    (ASSERTS[0], Cases((ASSERTS[0],))),
    ("x = 1\nassert x\n", Cases(("x = 1\nassert x\n",))),
    (PAIRS, EXCHANGES),
    ({"inputs": ["1\n", "2\n"], "outputs": ["2", "3"]}, EXCHANGES),
    ({"inputs": ["1\n", "2\n"], "outputs": ["2", "3"], "fn_name": None}, EXCHANGES),
    ({"inputs": [["1", "2"]], "outputs": [3]}, Cases(exchanges=(Exchange("1\n2", "3"),))),
    ("3", Cases(("3",))),
])
def test_layouts(tests: Any, cases: Cases) -> None:
    assert read_cases(tests) == cases


@pytest.mark.parametrize("tests", [ASSERTS, PAIRS, {"inputs": ["1\n", "2\n"], "outputs": ["2", "3"]}])
def test_the_same_as_json_text(tests: Any) -> None:
    assert read_cases(json.dumps(tests)) == read_cases(tests)


@pytest.mark.parametrize(("tests", "message"), [
    ([], "the row has no tests"),
    ("", "the row has no tests"),
    ({"inputs": [], "outputs": []}, "the row has no tests"),
    (None, "the tests None are neither statements nor pairs"),
    (7, "the tests 7 are neither"),
    ([{"input": "1"}], "neither statements nor pairs of input and output"),
    (["assert True", {"input": "1", "output": "1"}], "neither statements nor pairs"),
    ({"inputs": ["1"], "outputs": []}, "are not as many inputs as outputs"),
    ({"output": ["1"]}, "are not as many inputs as outputs"),
    ({"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}, r"call a function \(fn_name='add'\)"),
    ([{"input": "x" * 5000}], r"^.{,200}$"),
])
def test_what_cannot_be_read(tests: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_cases(tests)


def test_their_number() -> None:
    assert (len(read_cases(ASSERTS)), len(read_cases(PAIRS)), len(Cases())) == (2, 2, 0)
