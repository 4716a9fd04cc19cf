"""A run that measures its first steps and moves, or not."""

import numpy as np
import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.flow.placement import RoleSpec, temporal
from rlinf_cli.flow.timeline import Call, CallTiming
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.runs.adapting import Adapter
from rlinf_cli.runs.breakdown import Placed, StepTime
from rlinf_cli.runs.step import StepReport
from rlinf_cli.scheduling.profile_file import load
from rlinf_cli.state.adaptation import MEASURED
from rlinf_cli.workers.engine_share import Usage
from rlinf_cli.workflows.reasoning import Reasoning

INSTALLED = load_plugins(None)
SPECS = [RoleSpec("rollout"), RoleSpec("reward", "one"), RoleSpec("actor", trains=True)]
STEP_S, TRAIN_S = 0.01, 0.01 / 8
"""A decode step, and training a token."""


@pytest.fixture
def adapter(tmp_path):
    """`adapter(staleness, steps, move_s)`; `said` has what it told."""

    def make(staleness=4, steps=400, move_s=5.0):
        config = resolve([], ["rollout.prompts=32", "rollout.group_size=1", "rollout.max_new_tokens=4000",
                              f"steps={steps}",
                              f"rollout.staleness={staleness}", "algorithm.minibatches=1", "algorithm.normalize=none"],
                         {}, INSTALLED)
        said = []
        made = Adapter(config, Reasoning().roles(config), temporal(SPECS, 2, "cpu"), 2, "cpu", move_s, said.append,
                       tmp_path / "profile.json")
        made.said = said
        return made

    return make


def report(number, lengths, seconds=None):
    """A step in temporal mode on two devices of 8 slots."""
    training = TRAIN_S * lengths.sum() / 2
    calls = [Placed(Call("actor", rank, "train", CallTiming(0.0, training)), (rank,)) for rank in (0, 1)]
    seconds = seconds or training + STEP_S * lengths.max()
    made = StepReport(number, count=len(lengths), lengths=lengths.tolist(), time=StepTime(0.0, seconds, calls, {}),
                      usage={"rollout": [Usage(8, {active: [100.0, 100 * STEP_S] for active in (1, 4, 8)}) for _ in (0, 1)]})
    made.metrics.update({"timing/idle_s": 0.0, "timing/wait_lock_s": 0.0})
    return made


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
    assert not made.step(report(6, lengths("lognormal", 6)), False), "it leaves already"


def test_constant_lengths_leave_it_in_turn(adapter):
    made = adapter()
    assert not any(steps(made, "constant", 20))
    assert made.target is None
    assert "stays temporal" in made.said[-1]
    assert "nothing is predicted to be faster" in made.said[-1]


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
