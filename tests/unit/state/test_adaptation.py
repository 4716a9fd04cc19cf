"""When a run looks for a better placement, and whether it moves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlinf_cli.state.adaptation import (
    DRIFT,
    GAIN,
    MEASURED,
    WINDOW,
    Adaptation,
    Move,
    Planned,
    Relaunched,
    Search,
    Searched,
    Stay,
    StepDone,
)


def steps(adaptation, *seconds, left=100, saved=False):
    return [answer for one in seconds for answer in adaptation.handle(StepDone(one, left, saved))]


def test_the_first_steps_are_measured_and_the_very_first_does_not_count():
    adaptation = Adaptation()
    assert steps(adaptation, *[1.0] * MEASURED) == []
    assert steps(adaptation, 1.0) == [Search()]
    assert steps(adaptation, *[1.0] * 50, saved=True) == []


def test_nothing_is_searched_where_nothing_is_left():
    assert steps(Adaptation(), *[1.0] * (MEASURED + 1), left=0) == []


@pytest.mark.parametrize(("current", "best", "move", "left", "answer"), [
    (1.0, 0.5, 10.0, 100, Move()), (1.0, None, 0.0, 100, Stay("best")), (1.0, 1.2, 0.0, 100, Stay("best")),
    (1.0, 1 - GAIN + 0.01, 0.0, 10**6, Stay("gain")), (1.0, 0.5, 10.0, 20, Stay("cost")), (1.0, 0.5, 10.0, 21, Move()),
])  # fmt: skip
def test_it_moves_where_that_pays(current, best, move, left, answer):
    assert Adaptation().handle(Searched(current, best, move, left)) == [answer]


def test_a_sustained_drift_is_looked_into_at_a_checkpoint():
    adaptation = Adaptation(measures=False)
    adaptation.handle(Planned(1.0))
    steps(adaptation, 9.0)  # of new processes
    assert steps(adaptation, *[1.3] * WINDOW) == []
    assert adaptation.drift == pytest.approx(0.3)
    (search,) = steps(adaptation, 1.3, saved=True)
    assert search.drift == pytest.approx(0.3)


@pytest.mark.parametrize("odd", [1.0, 1 + DRIFT - 0.01, 0.7])
def test_a_fifth_of_the_window_may_be_as_predicted_but_no_more(odd):
    adaptation = Adaptation(measures=False)
    adaptation.handle(Planned(1.0))
    steps(adaptation, 9.0, *[1.3] * (WINDOW - 3), odd, odd, odd)
    assert adaptation.drift == 0.0
    steps(adaptation, 1.3)
    assert adaptation.drift == 0.0
    steps(adaptation, *[1.3] * (WINDOW - 3))
    assert adaptation.drift == pytest.approx(0.8 * 0.3 + 0.2 * (odd - 1))


def test_a_few_long_steps_among_many_short_ones_are_no_drift():
    adaptation = Adaptation(measures=False)
    adaptation.handle(Planned(1.0))
    steps(adaptation, 9.0)
    assert steps(adaptation, *[0.7, 0.7, 0.7, 0.7, 3.0] * (4 * WINDOW), saved=True) == []


def test_what_was_found_is_what_later_steps_are_compared_with():
    adaptation = Adaptation()
    steps(adaptation, *[2.0] * (MEASURED + 1))
    adaptation.handle(Searched(2.0, 1.9, 0.0, 100))
    assert steps(adaptation, *[2.2] * WINDOW, saved=True) == []
    assert steps(adaptation, *[1.0] * WINDOW, saved=True)[-1] == Search(-0.5)


def test_a_search_that_leaves_it_where_it_is_is_made_half_as_often():
    adaptation = Adaptation(measures=False)
    adaptation.handle(Planned(1.0))
    steps(adaptation, 9.0)
    for window in (WINDOW, 2 * WINDOW, 4 * WINDOW):
        assert steps(adaptation, *[1.3] * (window - 1), saved=True) == []
        assert len(steps(adaptation, 1.3, saved=True)) == 1
        assert adaptation.handle(Searched(1.0, None, 5.0, 100)) == [Stay("best")]
    adaptation.handle(Planned(1.0))
    steps(adaptation, 9.0)
    assert len(steps(adaptation, *[1.3] * WINDOW, saved=True)) == 1, "after a move it begins anew"


def test_the_first_step_of_new_processes_never_counts():
    adaptation = Adaptation()
    steps(adaptation, 9.0, 1.0)
    adaptation.handle(Relaunched())
    assert not adaptation.counts
    assert steps(adaptation, 9.0, *[1.0] * (MEASURED - 2)) == []
    assert adaptation.counts
    assert steps(adaptation, 1.0) == [Search()]


@given(st.lists(st.floats(0.9, 1.1), max_size=60), st.data())
def test_steps_as_predicted_never_lead_to_a_search(seconds, data):
    adaptation = Adaptation(measures=False)
    adaptation.handle(Planned(1.0))
    for one in seconds:
        assert adaptation.handle(StepDone(one, 10, data.draw(st.booleans()))) == []
