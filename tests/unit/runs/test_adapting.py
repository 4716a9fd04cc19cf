"""A run that measures its first steps, or knows a profile, and moves, or not."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.flow.placement import RoleSpec, temporal
from rlinf_cli.flow.timeline import Call, CallTiming
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.runs.adapting import Adapter, with_least_memory
from rlinf_cli.runs.breakdown import Placed, StepTime
from rlinf_cli.runs.measuring import StepMeasurements
from rlinf_cli.runs.placing import Beginning
from rlinf_cli.runs.step import StepReport
from rlinf_cli.scheduling.fit import memory_law
from rlinf_cli.scheduling.graph import Called
from rlinf_cli.scheduling.profile import MemoryPoint, RoleProfile
from rlinf_cli.scheduling.profile_file import load
from rlinf_cli.state.adaptation import MEASURED, WINDOW
from rlinf_cli.workers.engine_share import Usage
from rlinf_cli.workflows.reasoning import Reasoning

INSTALLED = load_plugins(None)
SPECS = [RoleSpec("rollout"), RoleSpec("reward", "one"), RoleSpec("actor", trains=True)]
IN_TURN = temporal(SPECS, 2, "cpu")
CONFIG = resolve([], ["rollout.prompts=32", "rollout.group_size=1", "rollout.max_new_tokens=4000", "algorithm.minibatches=1",
                      "algorithm.normalize=none"], {}, INSTALLED)
STEP_S, TRAIN_S = 0.01, 0.01 / 8
"""A decode step, and training a token."""


@pytest.fixture
def adapter(tmp_path):
    """`adapter(staleness, steps, move_s, profile)`; `said` has what it told."""

    def make(staleness=4, steps=400, move_s=5.0, profile=None):
        config = replace(CONFIG, steps=steps, rollout=replace(CONFIG.rollout, staleness=staleness))
        said = []
        made = Adapter(config, Reasoning().roles(config), Beginning(IN_TURN, True, profile), 2, "cpu", move_s,
                       said.append, tmp_path / "profile.json")
        made.said = said
        return made

    return make


def report(number, lengths, seconds=None):
    """A step in temporal mode on two devices of 16 slots."""
    generation, training = float(STEP_S * lengths.max()), float(TRAIN_S * lengths.sum() / 2)
    calls = [Placed(Call(role, rank, "work", CallTiming(began, took)), (rank,)) for rank in (0, 1)
             for role, began, took in (("rollout", 0.0, generation), ("actor", generation, training))]
    seconds = seconds or generation + training
    return StepReport(number, count=len(lengths), lengths=lengths.tolist(), time=StepTime(0.0, seconds, calls, {}),
                      usage={"rollout": [Usage(16, {active: [100.0, 100 * STEP_S] for active in (1, 8, 16)}) for _ in (0, 1)]})


def lengths(kind, number):
    draws = np.random.default_rng(number)
    found = np.full(32, 100.0) if kind == "constant" else 100 * draws.lognormal(-0.5, 1.0, 32)
    return np.maximum(1, found.round()).astype(np.int64)


def steps(adapter, kind, count, first=1, **more):
    return [adapter.step(report(number, lengths(kind, number), **more), False) for number in range(first, first + count)]


def test_a_long_tail_moves_it_to_devices_apart(adapter):
    made = adapter()
    assert steps(made, "lognormal", MEASURED + 1) == [False] * MEASURED + [True]
    assert made.target.mode == "spatial"
    assert made.target.devices("rollout") != made.target.devices("actor")
    assert "changes after step 5: spatial: rollout, reward | actor on cpu:0 | cpu:1 — predicted" in made.said[-1]
    assert load(made._path).lengths
    assert made.step(report(6, lengths("lognormal", 6)), False), "steps that were under way end, or begin again after a death"


def test_constant_lengths_leave_it_in_turn(adapter):
    made = adapter()
    assert not any(steps(made, "constant", 20))
    assert made.target is None
    assert "stays temporal" in made.said[-1]
    assert "nothing is predicted to be faster" in made.said[-1]
    assert len(made.said) == 1


def test_a_move_must_pay(adapter):
    made = adapter(steps=MEASURED + 3, move_s=60.0)
    assert not any(steps(made, "lognormal", MEASURED + 1))
    assert "too few steps are left" in made.said[-1]


def test_steps_are_compared_with_what_was_predicted(adapter):
    made = adapter()
    steps(made, "lognormal", MEASURED + 1)
    one = report(6, lengths("lognormal", 6), seconds=1.0)
    made.moved(7.0)
    made.compare(one)
    assert one.metrics["plan/error_frac"] == pytest.approx(1 / one.metrics["plan/predicted_s"] - 1)
    assert made.placement.mode == "spatial"
    assert made.target is None


def test_before_there_is_a_plan_nothing_is_predicted(adapter):
    one = report(1, lengths("constant", 1))
    adapter().compare(one)
    assert "plan/predicted_s" not in one.metrics


def test_what_too_few_steps_have_shown_is_measured_for_longer(adapter):
    made = adapter(staleness=0)
    for number in range(1, 12):
        one = report(number, lengths("constant", number))
        made.step(replace(one, usage={"rollout": [Usage(16, {16: [1.0, STEP_S]})]}), False)
        assert bool(made.said) is (number >= 10), "of decode steps, eight make a point"


def seen(*calls):
    """A step with these calls: role, channels that it takes from, those that it puts into."""
    return SimpleNamespace(calls=lambda: [Called(role, "work", ins, outs) for role, ins, outs in calls], flowed=dict, handles=[])


def test_who_takes_from_whom_is_what_the_calls_say(adapter):
    made = adapter(staleness=0)
    made.look(seen(("rollout", ("prompts",), ("samples",)), ("reward", ("samples",), ("scored",))))
    made.look(seen(("reward", ("samples",), ("scored",)), ("actor", ("scored",), ())))
    steps(made, "constant", MEASURED + 1)
    assert set(load(made._path).transfers) == {("rollout", "reward"), ("reward", "actor")}


def test_what_goes_around_in_a_circle_is_one_stage(adapter):
    made = adapter(staleness=0)
    made.look(seen(("rollout", ("prompts", "scored"), ("samples",)), ("reward", ("samples",), ("scored",))))
    steps(made, "lognormal", MEASURED + 1)
    assert load(made._path).roles["rollout+reward"].batches


def test_what_was_seen_on_one_number_of_ranks_may_need_all_of_it_on_one():
    role = RoleProfile("actor", memory=(MemoryPoint(4, 10e9, 1e9),))
    law = memory_law(with_least_memory(role))
    assert (law.fixed, law.shared, law.left) == pytest.approx((0.0, 40e9, 1e9), abs=1.0)
    known = RoleProfile("actor", memory=(MemoryPoint(1, 12e9, 1e9), MemoryPoint(4, 10e9, 1e9)))
    assert with_least_memory(known) is known


def measured(kind):
    """The profile of a run with such lengths."""
    found = StepMeasurements(CONFIG, Reasoning().roles(CONFIG))
    for number in range(MEASURED):
        found.add(report(number, lengths(kind, number)), {role: len(ranks) for role, ranks in IN_TURN.items()})
    return found.profile("2 cpu")


def test_with_a_profile_every_step_is_compared_from_the_first_on(adapter):
    made = adapter(profile=measured("constant"))
    one = report(1, lengths("constant", 1))
    made.compare(one)
    assert one.metrics["plan/error_frac"] == pytest.approx(0.0, abs=0.02)
    assert not any(steps(made, "constant", 30))
    assert made.said == [], "nothing is off, and nothing is searched for"


def test_a_prediction_follows_the_lengths_that_come(adapter):
    made = adapter(profile=replace(measured("constant"), lengths=(50,) * 32))
    errors = []
    for number in range(1, 40):
        one = report(number, lengths("constant", number))
        made.compare(one)
        errors.append(one.metrics["plan/error_frac"])
        assert not made.step(one, False)
    assert errors[0] == pytest.approx(1.0, abs=0.05)
    assert errors[-1] == pytest.approx(0.0, abs=0.02)


def train(made, kind, first, count):
    """Whether the run is left in one of these steps, each of which may be saved."""
    for number in range(first, first + count):
        one = report(number, lengths(kind, number))
        made.compare(one)
        if made.step(one, True):
            return True
    return False


def test_other_lengths_are_searched_with_what_the_roles_were_known_to_cost(adapter):
    known = replace(measured("constant"), lengths=(20,) * 128)
    made = adapter(profile=known)
    assert train(made, "lognormal", 1, WINDOW + 20)
    assert "than predicted, as responses have other lengths: changes after step" in made.said[-1]
    assert made.target.mode == "spatial"
    assert load(made._path).roles == known.roles


def test_roles_that_take_longer_are_measured_again(adapter):
    known = measured("constant")
    slow = replace(known, roles={name: replace(role, decoding=tuple(replace(point, step_s=point.step_s / 2)
                                                                    for point in role.decoding))
                                 for name, role in known.roles.items()})
    made = adapter(profile=slow)
    assert not train(made, "constant", 1, WINDOW + 1)
    (said,) = made.said
    assert "longer than predicted: stays temporal" in said
    assert load(made._path).roles["rollout"].decoding == known.roles["rollout"].decoding
    one = report(WINDOW + 2, lengths("constant", 1))
    made.compare(one)
    assert one.metrics["plan/error_frac"] == pytest.approx(0.0, abs=0.02)


def test_new_processes_begin_with_a_step_that_says_nothing(adapter):
    made = adapter()
    steps(made, "constant", 3)
    made.relaunched()
    steps(made, "constant", 1, first=3, seconds=60.0)
    steps(made, "constant", 2, first=4)
    assert "predicted 0.4" not in made.said[-1]
    assert len(load(made._path).lengths) == 32 * 6
