from __future__ import annotations

import math

import pytest

from rlinf_cli.runs.sparkline import bar, clock, compact, sparkline


@pytest.mark.parametrize(("values", "expected"), [
    ([], ""),
    ([0, 1, 2, 3, 4, 5, 6, 7], "▁▂▃▄▅▆▇█"),
    ([7, 0], "█▁"),
    ([-2.0, 0.0, 2.0], "▁▅█"),
    ([3, 3, 3], "▄▄▄"),
    ([0.0], "▄"),
    ([1, math.nan, 2, math.inf], "▁ █ "),
    ([math.nan], " "),
    ([1e308, -1e307, 0], "█▁▂"),
])
def test_a_curve_spans_its_lowest_to_its_highest_value(values, expected):
    assert sparkline(values) == expected


def test_a_curve_without_block_characters():
    assert sparkline(range(8), ascii_only=True) == "_.-~=+*#"


@pytest.mark.parametrize(("share", "expected"), [
    (0.0, ""), (0.5, "████"), (1.0, "████████"), (0.125, "█"), (0.2, "█▋"), (0.001, "▏"), (-1.0, ""), (3.0, "████████"),
])
def test_a_bar_of_eight(share, expected):
    assert bar(share, 8) == expected


@pytest.mark.parametrize(("share", "expected"), [(0.0, ""), (0.01, "#"), (0.5, "####"), (1.0, "########")])
def test_a_bar_without_block_characters(share, expected):
    assert bar(share, 8, ascii_only=True) == expected


@pytest.mark.parametrize(("value", "expected"), [
    (0, "0"), (0.1234, "0.12"), (0.00123, "0.0012"), (9.87, "9.9"), (87.4, "87"), (999, "999"), (14_900, "14.9k"),
    (999_970, "1.0M"), (1.25e6, "1.2M"), (3e9, "3.0G"), (-14_900, "-14.9k"),
])
def test_compact_numbers(value, expected):
    assert compact(value) == expected


@pytest.mark.parametrize(("seconds", "expected"), [
    (0, "0:00:00"), (8.6, "0:00:09"), (3599.9, "1:00:00"), (93_784, "26:03:04"), (-5, "0:00:00"),
])
def test_clock(seconds, expected):
    assert clock(seconds) == expected
