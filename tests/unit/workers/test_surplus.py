"""How many prompts are asked, and what it does to lengths when the last ones are dropped."""

import pytest

from rlinf_cli.workers.surplus import Surplus, asked


@pytest.mark.parametrize(("prompts", "overprovision", "expected"), [
    (16, 0.0, 16), (16, 0.25, 20), (10, 0.1, 11), (10, 0.2, 12), (3, 0.5, 5), (1, 0.01, 2), (7, 4, 35), (100, 0.07, 107)])
def test_prompts_that_are_asked(prompts, overprovision, expected):
    assert asked(prompts, overprovision) == expected


def test_ranks_add_up():
    assert sum([Surplus(1, 10, 2, 1, 5), Surplus(3, 20, 1, 1, 9)], Surplus()) == Surplus(4, 30, 3, 2, 14)


def test_metrics():
    found = Surplus(kept=4, kept_tokens=40, dropped=4, begun=1, dropped_tokens=30).metrics()
    assert found == {"rollout/overprovision/dropped": 4.0, "rollout/overprovision/dropped_frac": 0.5,
                     "rollout/overprovision/length_bias": 40 / 4 - 70 / 5}


def test_what_had_not_begun_says_nothing_of_lengths():
    assert Surplus(kept=4, kept_tokens=40, dropped=4).metrics()["rollout/overprovision/length_bias"] == 0


def test_nothing_at_all():
    assert set(Surplus().metrics().values()) == {0.0}
