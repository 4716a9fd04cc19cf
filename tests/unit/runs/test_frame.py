from __future__ import annotations

import dataclasses
import math

import pytest
from rich.cells import cell_len

from rlinf_cli.runs.frame import Shown, View, draw, draw_phase, time_shares

VIEW = View(step=41, total=100, left=9.0, rewards=(0.1, 0.2, 0.4, 0.63), tokens_per_s=14_900.0,
            shares={"rollout": 0.41, "actor": 0.52, "sync": 0.02, "wait": 0.03, "idle": 0.02},
            samples=(Shown("d47=", "7", 1.0), Shown("d30=", "1", 0.0)))


def lines(view: View = VIEW, width: int = 120, ascii_only: bool = False, **changes) -> list[str]:
    return [line.plain for line in draw(dataclasses.replace(view, **changes), width, ascii_only)]


def test_a_wide_terminal_shows_all_in_three_lines():
    step, busy, samples = lines()
    assert step == ("  step 41/100  ━━━━━━━━━━━━╸                   41 %  0:00:09 left   "
                    "reward 0.63 ▁▂▅█   tokens/s 14.9k")
    assert busy == "  rollout ████████▎ 41 %   actor ██████████▍ 52 %   sync ▍ 2 %   wait ▋ 3 %   idle ▍ 2 %"
    assert samples.split("   ")[0] == "  prompt d47=  answer 7  reward 1.00"
    assert samples.endswith("prompt d30=  answer 1  reward 0.00" + " " * (len(samples) - len(samples.rstrip())))


def test_the_latest_evaluations_stand_beside_the_reward():
    assert lines(evaluated=(("sums mean@4", 0.625),))[0].endswith("reward 0.63 ▁▂▅█   sums mean@4 0.62   tokens/s 14.9k")
    many = lines(width=200, evaluated=tuple((f"t{number} mean@1", 0.5) for number in range(9)))
    assert "t1 mean@1 0.50" in many[0]
    assert "t2" not in many[0]


def test_an_evaluation_takes_no_share_of_a_step():
    shares = time_shares({"timing/step_s": 2.0, "timing/rollout_s": 1.0, "timing/eval_s": 9.0})
    assert shares["rollout"] == 0.5
    assert "eval" not in shares


def test_a_narrow_terminal_breaks_between_facts():
    assert lines(width=60) == [
        "  step 41/100  ━━━━━━━━━━╸                41 %  0:00:09 left",
        "  reward 0.63 ▁▂▅█   tokens/s 14.9k",
        "  rollout ███▎ 41 %   actor ████▏ 52 %   sync ▏ 2 %",
        "  wait ▎ 3 %   idle ▏ 2 %",
        "  prompt d47=  answer 7  reward 1.00",
        "  prompt d30=  answer 1  reward 0.00",
    ]


@pytest.mark.parametrize("width", [20, 30, 40, 59, 60, 79, 80, 99, 100, 101, 120, 200, 400])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_no_line_is_wider_than_the_terminal(width, ascii_only):
    long = "数学 and more words " * 50
    samples = (Shown(long, long, 1.0), Shown("p", long, -12345.678), Shown(long, "a", math.nan))
    view = dataclasses.replace(VIEW, step=123_456, total=1_000_000, left=1e6, rewards=tuple(range(24)), samples=samples)
    drawn = lines(view, width, ascii_only)
    assert max(cell_len(line) for line in drawn) <= width
    assert len(drawn) <= 14
    if ascii_only:
        assert all(line.replace("数", "").replace("学", "").isascii() for line in drawn)


def test_no_more_time_is_left_at_the_end():
    assert lines(step=100)[0].startswith("  step 100/100  " + "━" * 30 + "  100 %   reward")


def test_what_is_not_known_is_left_out():
    assert lines(left=None, rewards=(), tokens_per_s=math.nan, shares={}, samples=()) == [
        "  step 41/100  ━━━━━━━━━━━━╸                   41 %"]


def test_a_step_without_a_reward_leaves_a_gap():
    assert "reward - ▁ █ " in lines(rewards=(0.0, math.nan, 1.0, math.nan))[0]


def test_of_a_long_prompt_the_end_and_of_a_long_answer_the_beginning():
    (line,) = lines(width=60, samples=(Shown("x" * 100 + " what is 3+4?", "it is 7 since " * 20, 1.0),))[-1:]
    assert line == "  prompt …x what is 3+4?  answer it is 7 since…  reward 1.00"


def test_a_short_prompt_leaves_its_room_to_the_answer():
    (line,) = lines(width=60, samples=(Shown("3+4?", "it is 7 since " * 20, 1.0),))[-1:]
    assert line == "  prompt 3+4?  answer it is 7 since it is 7 si…  reward 1.00"


def test_what_a_model_wrote_cannot_drive_the_terminal():
    (line,) = lines(width=80, samples=(Shown("a\r\nb", "\x1b[31m\x07[bold]7[/bold]\u202e\ud800", 1.0),))[-1:]
    assert line == "  prompt a b  answer [31m [bold]7[/bold]  reward 1.00"


def test_time_shares_group_what_is_not_a_role():
    metrics = {"timing/step_s": 2.0, "timing/rollout_s": 0.8, "timing/actor_s": 0.4, "timing/sync_s": 0.1,
               "timing/onload_s": 0.1, "timing/offload_s": 0.1, "timing/wait_data_s": 0.2, "timing/wait_lock_s": 0.1,
               "timing/idle_s": 0.2, "actor/loss": 1.0, "timing/reward_s": math.nan}
    shares = time_shares(metrics)
    assert list(shares) == ["rollout", "actor", "sync", "switch", "wait", "idle"]
    assert list(shares.values()) == pytest.approx([0.4, 0.2, 0.05, 0.1, 0.15, 0.1])
    assert sum(shares.values()) == pytest.approx(1.0)


def test_what_took_no_time_has_no_share_but_a_role():
    shares = time_shares({"timing/step_s": 2.0, "timing/rollout_s": 2.0, "timing/reward_s": 0.0, "timing/sync_s": 0.0,
                          "timing/onload_s": 0.0, "timing/wait_lock_s": 0.0, "timing/idle_s": 0.0})
    assert shares == {"rollout": 1.0, "reward": 0.0}


@pytest.mark.parametrize("metrics", [
    {}, {"timing/rollout_s": 1.0}, {"timing/step_s": 0.0}, {"timing/step_s": math.nan}])
def test_no_shares_without_a_step_time(metrics):
    assert time_shares(metrics) == {}


def test_a_phase_turns_and_counts():
    assert draw_phase("starting Ray", 0.0).plain == "  ⠋ starting Ray"
    assert draw_phase("starting Ray", 12.4).plain.endswith(" starting Ray  12 s")
    assert {draw_phase("x", n / 8, ascii_only=True).plain for n in range(4)} == {"  | x", "  / x", "  - x", "  \\ x"}


def test_each_role_has_a_colour_and_idle_is_grey():
    styles = {span.style for line in draw(VIEW, 120) for span in line.spans}
    assert {"cyan", "magenta", "yellow", "red", "bright_black"} <= styles


def test_without_rewards_the_loss_is_drawn():
    step, *_, samples = lines(measure="loss", samples=(Shown("d47=", "7", None),))
    assert "loss 0.63 ▁▂▅█" in step
    assert samples == "  prompt d47=  answer 7"
