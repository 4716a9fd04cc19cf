from __future__ import annotations

import math

import pytest

from rlinf_cli.runs.checkpoints import Checkpoints
from rlinf_cli.runs.summary import final, finite, summary_lines, window


def rows(rewards, tokens_per_s=15_000.0, step_s=0.2):
    return [{"step": number, "time": 0.0, "reward/mean": reward, "throughput/tokens_per_s": tokens_per_s,
             "timing/step_s": step_s} for number, reward in enumerate(rewards, 1)]


@pytest.fixture
def run(tmp_path):
    (tmp_path / "my run").mkdir()
    with Checkpoints(tmp_path / "my run" / "checkpoints").write(100, {}) as path:
        (path / "weights").write_text("x")
    return tmp_path / "my run"


def test_what_was_reached_and_how_to_go_on(run):
    lines = summary_lines(run, rows([step / 100 for step in range(1, 101)]), seconds=21.3)
    assert lines == [
        "done       100 steps in 21 s · reward 0.96 (first 0.01) · 15.0k tokens/s",
        f"run        {run}",
        f"next       rlinf eval '{run}'",
        f"           rlinf export '{run}' model/",
        f"           rlinf train --resume '{run}' --steps 200",
    ]


def test_the_final_reward_is_the_mean_of_the_last_tenth(run):
    (done, *_) = summary_lines(run, rows([0.0] * 18 + [0.5, 1.0]), 1.0)
    assert "reward 0.75 (first 0.00)" in done


def test_a_short_run_has_its_last_step(run):
    (done, *_) = summary_lines(run, rows([0.25, 0.5]), 1.0)
    assert done == "done       2 steps in 1.0 s · reward 0.50 (first 0.25) · 15.0k tokens/s"


def test_a_resumed_run_counts_its_own_steps_and_the_whole_reward(run):
    (done, *_) = summary_lines(run, rows([0.1] * 50 + [0.9] * 50), 300.0, first_step=51)
    assert done.startswith("done       50 steps in 5 min 0 s · reward 0.90 (first 0.10)")


def test_tokens_per_second_is_over_the_whole_time(run):
    mixed = rows([0.0], tokens_per_s=100.0, step_s=9.0) + rows([0.0], tokens_per_s=1000.0, step_s=1.0)
    assert summary_lines(run, mixed, 10.0)[0].endswith("· 190 tokens/s")


def test_what_is_not_known_is_left_out(run):
    assert summary_lines(run, [{"step": 1, "time": 0.0}], 7300.0)[0] == "done       1 step in 2 h 1 min"
    assert summary_lines(run, rows([math.nan], math.nan), 1.0)[0] == "done       1 step in 1.0 s"
    assert summary_lines(run, [], 1.0)[0] == "done       0 steps in 1.0 s"


def test_a_best_by_a_metric_that_never_came_is_told(run):
    lines = summary_lines(run, rows([0.5]), 1.0, best="-reward/meen")
    assert lines[2] == ("warning    no step had the metric of checkpoint.best=-reward/meen, so no checkpoint is the best; "
                        "did you mean 'reward/mean'")
    assert not any("warning" in line for line in summary_lines(run, rows([0.5]), 1.0, best="-reward/mean"))


def test_where_a_metric_ended():
    assert final([float(step) for step in range(1, 31)]) == 29.0
    assert final([0.0, 2.0]) == 2.0
    assert math.isnan(final([]))
    assert [window(count) for count in (0, 1, 14, 16, 100)] == [1, 1, 1, 2, 10]
    assert finite([{"a/b": 1.0}, {}, {"a/b": math.nan}, {"a/b": 2.0}], "a/b") == [1.0, 2.0]


def test_without_a_checkpoint_there_is_nothing_to_go_on_from(tmp_path):
    assert summary_lines(tmp_path, rows([0.0]), 1.0)[1:] == [f"run        {tmp_path}"]


def test_without_rewards_the_loss_is_told(run):
    losses = [{"step": number, "time": 0.0, "actor/loss": loss} for number, loss in enumerate([2.5, 0.5, 0.25], 1)]
    assert summary_lines(run, losses, 1.0)[0] == "done       3 steps in 1.0 s · loss 0.25 (first 2.50)"


def test_a_run_that_learned_nothing_is_told_why(run):
    lines = summary_lines(run, rows([0.0]), 1.0, warning="every reward so far is 0")
    assert lines[2] == "warning    every reward so far is 0"
