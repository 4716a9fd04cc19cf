"""What rewards give, what they are called, and what they come to together."""

import numpy as np
import pytest

from rlinf_cli.config.schema import Part
from rlinf_cli.workers.scoring import combine, is_isolated, labels, split
from rlinf_rewards import register_rewards


@pytest.mark.parametrize(("value", "expected"), [
    (1, (1.0, {})), (True, (1.0, {})), (np.float32(0.5), (0.5, {})), (np.array(2.0), (2.0, {})),
    ({"reward": 1, "format": np.float32(0.5)}, (1.0, {"format": 0.5})),
])
def test_what_a_reward_gives(value, expected):
    assert split(value, "mine") == expected


@pytest.mark.parametrize(("value", "message"), [
    ({"format": 1.0}, r"returned \['format'\] without 'reward'"),
    ({}, r"returned \[\] without 'reward'"),
    ({1: 1.0, "a": 2.0}, r"returned \['1', 'a'\] without 'reward'"),
    (float("nan"), "reward=nan, which is not finite"),
    ({"reward": 1.0, "format": float("inf")}, "format=inf, which is not finite"),
    (None, "reward=None, which is not a number"),
    ("1.0", "reward='1.0', which is not a number"),
    ("x" * 1000, r"reward='x{79}, which is not a number"),
    ({"reward": 1.0, "two words": 1.0}, "named a value 'two words'; names are made of letters, digits"),
    ({"reward": 1.0, "a/b": 1.0}, "named a value 'a/b'"),
    ({"reward": 1.0, "": 1.0}, "named a value ''"),
    ({"reward": 1.0, 3: 1.0}, "named a value 3"),
])
def test_what_is_refused(value, message):
    with pytest.raises(ValueError, match=message):
        split(value, "mine")


def part(name, extension=None):
    return Part(name, 1.0, extension, None, f"reward.{name}")


@pytest.mark.parametrize(("names", "expected"), [
    (["math"], ["math"]),
    (["math", "format"], ["math", "format"]),
    (["math", "my/rewards.py:score"], ["math", "score"]),
    (["a.py:score", "b/c.py:score", "pkg.mod:Class.half"], ["a.py:score", "b_c.py:score", "Class.half"]),
    (["score", "a.py:score"], ["score", "a.py:score"]),
])
def test_labels(names, expected):
    assert labels([part(name) for name in names]) == expected


def test_a_single_part_keeps_the_names_of_its_values():
    assert combine({"exact": 0.5}, {"exact": (1.0, {"exact": 1.0, "ended": 0.0})}) == (0.5, {"exact": 1.0, "ended": 0.0})


def test_several_parts_put_theirs_before_them():
    total, reported = combine({"math": 1.0, "f": 0.2}, {"f": (0.5, {}), "math": (1.0, {"found": 1.0})})
    assert total == pytest.approx(1.1)
    assert reported == {"math": 1.0, "math.found": 1.0, "f": 0.5}


def test_what_may_be_called_in_place():
    rewards = {extension.name: is_isolated(part(extension.name, extension)) for extension in register_rewards()}
    assert {name for name, apart in rewards.items() if not apart} == {"exact", "length", "model"}
    assert is_isolated(part("mine.py:f"))
