"""Runs beside each other: values worked out by hand."""

from __future__ import annotations

import json

import pytest

from rlinf_cli.errors import UsageError
from rlinf_cli.runs.compare import compare_runs


@pytest.fixture
def run(tmp_path):
    """Makes a run from the rewards of its steps; each takes 2 s and 100 tokens."""
    def make(name, rewards, **settings):
        path = tmp_path / "runs" / name
        path.mkdir(parents=True)
        (path / "run.json").write_text('{"attempts": []}')
        (path / "config.yaml").write_text(json.dumps({"name": name, "seed": 0, "trainer": {"lr": 0.1}, **settings}))
        (path / "metrics.jsonl").write_text("".join(json.dumps(
            {"step": step, "time": 0.0, "reward/mean": reward, "actor/loss": -reward if reward is not None else None,
             "timing/step_s": 2.0, "throughput/tokens_per_s": 50.0, "progress/tokens": 100.0 * step}) + "\n"
            for step, reward in enumerate(rewards, 1)))
        return name

    return make


@pytest.fixture
def compare(tmp_path):
    return lambda *names, metric="reward/mean": compare_runs(names, metric, tmp_path / "runs")


def test_what_each_reached_and_at_what_cost(run, compare):
    found = compare(run("a", [0.0, 0.5, 0.9, 0.8]), run("b", [0.1, 0.2, 0.6]))
    a, b = found.runs
    assert found.goal == 0.6
    assert (a.first, a.final, a.best, a.best_step, a.steps, a.tokens, a.seconds, a.tokens_per_s) == (
        0.0, 0.8, 0.9, 3, 4, 400.0, 8.0, 50.0)
    assert (a.step_to_goal, a.tokens_to_goal, a.seconds_to_goal) == (3, 300.0, 6.0)
    assert (b.final, b.step_to_goal, b.seconds_to_goal) == (0.6, 3, 6.0)


def test_the_goal_is_reached_by_a_mean_not_by_luck(run, compare):
    lucky = [0.0, 0.9] + [0.0] * 8 + [0.4] * 10
    found = compare(run("lucky", lucky), run("steady", [0.4] * 20))
    assert found.goal == pytest.approx(0.4)
    assert [one.step_to_goal for one in found.runs] == [2 if (0.9 + 0.0) / 2 >= 0.4 else None, 2]
    found = compare(run("luckier", [0.0, 0.7, *lucky[2:]]), "steady")
    assert [one.step_to_goal for one in found.runs] == [12, 2]


def test_less_may_be_better(run, compare):
    found = compare(run("a", [0.0, 0.5, 0.9]), run("b", [0.1, 0.6]), metric="-actor/loss")
    assert found.goal == -0.6
    assert [(one.final, one.best, one.best_step, one.step_to_goal) for one in found.runs] == [
        (-0.9, -0.9, 3, 3), (-0.6, -0.6, 2, 2)]


def test_settings_that_differ_and_no_others(run, compare):
    found = compare(run("a", [0.1]), run("b", [0.1], seed=1, trainer={"lr": 0.2}), run("c", [0.1], extra=True))
    assert found.settings == {"seed": [0, 1, 0], "trainer.lr": [0.1, 0.2, 0.1], "extra": [None, None, True]}


def test_steps_without_the_metric_do_not_count(run, compare):
    found = compare(run("a", [None, 0.5, None]), run("b", [None]), run("c", []))
    a, b, c = found.runs
    assert (a.first, a.final, a.best_step, a.steps, a.step_to_goal) == (0.5, 0.5, 2, 3, 2)
    assert (b.final, b.best, b.step_to_goal, b.steps, b.tokens) == (None, None, None, 1, 100.0)
    assert (c.final, c.steps, c.tokens, c.seconds, c.tokens_per_s) == (None, 0, None, 0, None)


def test_a_metric_that_none_has_is_told_with_the_nearest(run, compare):
    said = r"none of these runs has a step with the metric 'reward/meen'; did you mean 'reward/mean'"
    with pytest.raises(UsageError, match=said):
        compare(run("a", [0.1]), metric="reward/meen")


def test_runs_of_one_name_are_told_apart_by_their_paths(run, compare, tmp_path):
    run("a", [0.1])
    (tmp_path / "runs").rename(tmp_path / "before")
    run("a", [0.1])
    found = compare("a", str(tmp_path / "before" / "a"))
    assert [one.name for one in found.runs] == [str(tmp_path / "runs/a"), str(tmp_path / "before/a")]


def test_an_unknown_run_is_named(run, compare):
    run("a", [0.1])
    with pytest.raises(UsageError, match="no run 'b'"):
        compare("a", "b")
