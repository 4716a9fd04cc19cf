"""Stages behind generation: who shares devices with whom, how much is taken at once, and when others have made room."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlinf_cli.scheduling.pipeline import Pipeline, queue, stably_sorted, stations
from rlinf_cli.scheduling.plan import Plan
from rlinf_cli.scheduling.problem import Batch, Curve, Decoding, Law, Problem, Stage
from rlinf_cli.scheduling.simulate import predict
from rlinf_cli.scheduling.tree import parse


def batch(name, token, *after, chunk=0.0, **more):
    more.setdefault("weights", "policy")
    return Stage(name, Batch(((1, Law(chunk_s=chunk, token_s=token)),)), after, **more)


def problem(*stages, slots=4, lengths=(1, 2, 4, 9), interleaves=True, **more):
    rollout = Stage("rollout", Decoding(Curve((1.0,), (1.0,)), slots))
    return Problem((rollout, *stages), 8, np.array(lengths), interleaves=interleaves, **more)


def names(made, tree):
    return [station.name for station in stations(made, Plan(parse(tree)))]


SWITCHES = {("rollout", "actor"): 1.0, ("reference", "actor"): 5.0, ("actor", "rollout"): 2.0, ("actor", "reference"): 20.0}


def chain(*tokens, **more):
    """reference -> critic -> actor behind the rollout, with these seconds a token; `more` is of the reference."""
    return problem(batch("reference", tokens[0], "rollout", **more), batch("critic", tokens[1], "reference"),
                   batch("actor", tokens[2], "critic", trains=True))


class TestStations:
    made = chain(0.1, 0.1, 0.1)

    def test_what_takes_turns_within_each_chunk_is_one(self):
        assert names(self.made, "rollout 4 | (reference 2 ~ critic 2 ~ actor 2)") == ["rollout", "reference+critic+actor"]
        assert names(self.made, "rollout 4 | (reference 2 ~ critic 2) | actor 2") == ["rollout", "reference+critic", "actor"]
        assert names(self.made, "rollout 4 | (reference 2, critic 2, actor 2)") == ["rollout", "reference", "critic", "actor"]

    def test_only_where_the_program_can_and_the_weights_are_the_same(self):
        tree = "rollout 4 | (reference 2 ~ critic 2 ~ actor 2)"
        other = chain(0.1, 0.1, 0.1, weights="other")
        assert names(other, tree) == ["rollout", "reference", "critic", "actor"]
        cannot = problem(*self.made.stages[1:], interleaves=False)
        assert names(cannot, tree) == ["rollout", "reference", "critic", "actor"]

    def test_not_around_a_stranger_nor_with_generation(self):
        assert names(self.made, "rollout 4 | ((reference 2 ~ actor 2) | critic 2)") == ["rollout", "reference", "critic", "actor"]
        assert names(self.made, "rollout 4 ~ reference 4 ~ critic 4 ~ actor 4") == ["rollout", "reference", "critic", "actor"]


def test_three_in_turn_within_each_chunk_take_as_long_as_one_that_does_all():
    parts = chain(0.1, 0.2, 0.3)
    one = problem(batch("actor", 0.6, "rollout", trains=True))
    together = predict(parts, Plan(parse("rollout 4 | (reference 2 ~ critic 2 ~ actor 2)"), {"actor": 1})).step_s
    assert together == pytest.approx(predict(one, Plan(parse("rollout 4 | actor 2"), {"actor": 1})).step_s)


class TestChunks:
    def sizes(self, made, tree, **chunk):
        pipeline = Pipeline(made, Plan(parse(tree), chunk))
        pipeline.run(made.lengths, 0.0)
        return {station.name: size for station, size in pipeline.sizes.items()}

    def test_what_is_all_there_is_taken_at_once(self):
        made = problem(batch("actor", 0.1, "rollout", chunk=1.0, trains=True))
        assert self.sizes(made, "rollout 4, actor 4") == {"actor": 4}
        assert predict(made, Plan(parse("rollout 4, actor 4"))).stages["actor"] == pytest.approx(1.0 + 16 * 0.1 / 4)

    def test_what_comes_bit_by_bit_is_taken_as_its_fixed_cost_allows(self):
        free = problem(batch("actor", 0.1, "rollout", trains=True))
        assert self.sizes(free, "rollout 4 | actor 4") == {"actor": 1}
        costly = problem(batch("actor", 0.1, "rollout", chunk=50.0, trains=True))
        assert self.sizes(costly, "rollout 4 | actor 4") == {"actor": 4}

    def test_what_the_plan_says_in_whole_groups(self):
        made = problem(batch("actor", 0.1, "rollout", trains=True), group=2)
        assert self.sizes(made, "rollout 4 | actor 4", actor=1) == {"actor": 2}
        least = problem(batch("actor", 0.1, "rollout", trains=True, least_chunk=3))
        assert self.sizes(least, "rollout 4 | actor 4", actor=1) == {"actor": 3}

    def test_what_needs_its_whole_batch_takes_it(self):
        made = problem(batch("actor", 0.1, "rollout", trains=True, streams=False))
        assert self.sizes(made, "rollout 4 | actor 4", actor=1) == {"actor": 4}


class TestRoom:
    def times(self, tree, batches=3):
        made = problem(batch("reference", 0.1, "rollout", weights=""), batch("actor", 0.1, "reference", trains=True, weights="a"),
                       switch_s=SWITCHES)
        pipeline, begins = Pipeline(made, Plan(parse(tree))), 0.0
        for _ in range(batches):
            found = pipeline.run(made.lengths, begins)
            begins = max(found.end.values())
        return found

    def test_the_slowest_of_several_decides(self):
        found = self.times("(rollout 2 | reference 2), actor 4")
        assert found.switch["actor"] == 5.0
        assert found.begin["actor"] == pytest.approx(found.end["reference"] + 5.0)

    def test_who_has_made_room_for_one_has_made_it_for_another(self):
        found = self.times("(rollout 2 | reference 2), actor 4")
        assert found.switch["rollout"] == 2.0
        assert found.switch["reference"] == 0.0  # it came second, and did not wait for another 20 s
        assert found.done["reference"].min() == pytest.approx(found.begin["rollout"] + 1 + 0.1 / 2)

    def test_who_shares_no_device_never_does(self):
        assert set(self.times("rollout 2 | reference 2 | actor 4").switch.values()) == {0.0}


def test_scoring_of_the_next_step_does_not_wait_for_training_of_this_one():
    stages = batch("reference", 1.0, "rollout"), batch("actor", 1.0, "reference", trains=True)
    made = problem(*stages, staleness=2, lengths=(4, 4, 4, 4))
    found = predict(made, Plan(parse("rollout 2 | reference 1 | actor 1"), staleness=2))
    assert found.step_s == pytest.approx(16.0)  # what the slower of the two takes, not both


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 10)), min_size=1, max_size=30))
def test_a_queue_is_worked_off_in_order(jobs):
    arrivals, seconds = np.array(sorted(one for one, _ in jobs)), np.array([cost for _, cost in jobs])
    at, expected = 0.0, []
    for arrival, cost in zip(arrivals, seconds):
        at = max(at, arrival) + cost
        expected.append(at)
    assert queue(arrivals, seconds) == pytest.approx(np.array(expected))


def test_of_equal_arrivals_the_first_is_served_first():
    values = np.random.default_rng(0).integers(0, 400, 1000).astype(float)
    for some in (values, values[:1], values[:0], np.zeros(5), np.arange(9.0)):
        assert stably_sorted(some).tolist() == np.argsort(some, kind="stable").tolist()
