from __future__ import annotations

import math

import pytest

from rlinf_cli.runs.checkpoints import Checkpoints
from rlinf_cli.runs.summary import summary_lines


def rows(rewards, tokens_per_s=15_000.0, step_s=0.2):
    return [{"step": number, "time": 0.0, "reward/mean": reward, "throughput/tokens_per_s": tokens_per_s,
             "timing/step_s": step_s} for number, reward in enumerate(rewards, 1)]


@pytest.fixture
def run(tmp_path):
    with Checkpoints(tmp_path / "my run" / "checkpoints").write(100, {}):
        pass
    return tmp_path / "my run"


def test_what_was_reached_and_how_to_go_on(run):
    lines = summary_lines(run, rows([step / 100 for step in range(1, 101)]), seconds=21.3)
    assert lines == [
        "done       100 steps in 21 s · reward 0.96 (first 0.01) · 15.0k tokens/s",
        f"run        {run}",
        f"next       rlinf export '{run}' model/",
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


def test_without_a_checkpoint_there_is_nothing_to_go_on_from(tmp_path):
    assert summary_lines(tmp_path, rows([0.0]), 1.0)[1:] == [f"run        {tmp_path}"]
