"""What steps are predicted to take, as lengths come."""

from types import SimpleNamespace

import pytest

from rlinf_cli.runs import forecast
from rlinf_cli.runs.forecast import KNOWN, Forecast
from rlinf_cli.scheduling.profile import Profile


@pytest.fixture
def made(monkeypatch):
    """A forecast of steps that take as long as their longest response, and that takes `made.cost` seconds itself."""
    clock = SimpleNamespace(now=0.0, cost=0.0)

    def predict(problem, plan):
        clock.now += clock.cost
        return SimpleNamespace(step_s=float(max(problem.lengths)))

    monkeypatch.setattr(forecast, "predict", predict)
    monkeypatch.setattr(forecast, "plan_of", lambda placement, problem: None)
    monkeypatch.setattr(forecast.time, "perf_counter", lambda: clock.now)
    found = Forecast(lambda profile: profile)
    found.clock = clock
    return found


def test_before_there_is_a_profile_nothing_is_predicted(made):
    made.add([1, 2], 1.0)
    assert made.seconds is None


def test_a_profile_that_is_known_before_the_first_step_brings_its_lengths(made):
    assert made.of(Profile("", {}, (3, 4)), None) == 4.0
    made.add([1, 9], 1.0)
    assert made.seconds == 9.0
    assert made.updated(Profile("", {})).lengths == (3, 4, 1, 9)


def test_lengths_of_long_ago_are_forgotten(made):
    made.of(Profile("", {}, (50,)), None)
    for _ in range(KNOWN):
        made.add([7], 1.0)
    assert made.seconds == 7.0


def test_it_takes_a_hundredth_of_the_time_at_most(made):
    made.clock.cost = 0.1
    made.of(Profile("", {}, (1,)), None)
    seen = []
    for number in range(2, 42):
        made.add([number], 1.0)
        seen.append(made.seconds)
    assert len(set(seen)) == 5, "what it knew, and every ten seconds"
