from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlinf_cli.rl.trajectory import Sample
from rlinf_rewards.config import LengthConfig
from rlinf_rewards.length import Length


def reward(tokens: int, **keys: int | str) -> float:
    ids, floats = np.zeros(tokens, np.int32), np.zeros(tokens, np.float32)
    sample = Sample("0-0/0", "0-0", ids, ids, np.ones(tokens, np.bool_), floats, ids, "stop", response="one word")
    return Length(LengthConfig(**keys)).score(sample)


@pytest.mark.parametrize(("tokens", "expected"), [(0, 0), (99, 0), (100, 0), (105, -0.25), (110, -0.5), (120, -1), (5000, -1)])
def test_at_most(tokens: int, expected: float) -> None:
    assert reward(tokens, target=100, tolerance=20) == pytest.approx(expected)


@pytest.mark.parametrize(("tokens", "expected"), [(0, -1), (80, -1), (95, -0.25), (100, 0), (110, -0.5), (120, -1), (300, -1)])
def test_near(tokens: int, expected: float) -> None:
    assert reward(tokens, target=100, tolerance=20, mode="near") == pytest.approx(expected)


@given(st.integers(0, 500), st.integers(1, 500), st.integers(1, 100), st.sampled_from(["at-most", "near"]))
def test_it_is_bounded_and_falls_with_the_distance(tokens: int, target: int, tolerance: int, mode: str) -> None:
    n = max(tokens, target)
    here, beyond = (reward(m, target=target, tolerance=tolerance, mode=mode) for m in (n, n + 1))
    assert -1 <= beyond <= here <= 0


def test_the_target_has_no_default() -> None:
    make: Callable[[], LengthConfig] = LengthConfig
    with pytest.raises(TypeError, match="target"):
        make()
