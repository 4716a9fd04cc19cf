"""`scripts/scaling.py`: the table of modes, and the page that it is written into."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from rlinf_cli.scheduling.embodied import LIBERO, MANISKILL

SCRIPT = Path(__file__).parents[3] / "scripts" / "scaling.py"
INF = float("inf")


@pytest.fixture(scope="module")
def scaling():
    spec = importlib.util.spec_from_file_location("scaling", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_page_keeps_what_is_around_the_markers(scaling):
    page = f"before\n{scaling.BEGIN}\nold\n{scaling.END}\nafter\n"
    once = scaling.written(page, ["new", ""])
    assert once == f"before\n{scaling.BEGIN}\n\nnew\n{scaling.END}\nafter\n"
    assert scaling.written(once, ["new", ""]) == once


def test_the_page_has_a_section_for_each_setting(scaling):
    page = scaling.PAGE.read_text(encoding="utf-8")
    titles = [setting.title for setting in scaling.SETTINGS] + [robots.name for robots, _ in scaling.ROBOTS]
    assert all(f"### {title}" in page for title in titles)


@pytest.mark.parametrize(("title", "devices"), [("GRPO 1.5B", 128), ("PPO 14B", 64), ("GRPO 30B-A3B (MoE)", 32)])
def test_the_page_says_what_the_script_finds(scaling, title, devices):
    setting = next(one for one in scaling.SETTINGS if one.title == title)
    found = scaling.language_row(setting, devices)
    section = scaling.PAGE.read_text(encoding="utf-8").partition(f"### {title}\n")[2].partition("###")[0]
    line = next(line for line in section.splitlines() if line.startswith(f"| {devices} |"))
    assert line.split(" | ")[1:4] == [scaling.figure(seconds) for seconds in (found.temporal, found.spatial, found.best)]
    assert line.endswith(f"| {found.plan.replace('|', chr(92) + '|')} |")


def test_lengths_that_prompts_have_in_common_are_the_same_in_another_order(scaling):
    lengths = scaling.assumed_lengths(512, 1000)
    spreads = []
    for share in (0.0, 0.5, 1.0):
        found = scaling.alike(lengths, 16, share)
        assert sorted(found) == sorted(lengths)
        spreads.append(np.log(found).reshape(-1, 16).std(axis=1).mean())
    assert spreads[0] > 1.2 * spreads[1] > 5 * spreads[2]


def test_a_section(scaling):
    rows = [scaling.Row(8, 100.0, INF, 100.0, "a 8, b 8"), scaling.Row(16, 60.0, 55.0, 50.0, "a 8 | b 8")]
    lines = list(scaling.section("Title", "said so", rows))
    assert lines[:3] == ["### Title", "", "The paper: said so."]
    assert lines[-3] == "| 8 | 100.0 | – | 100.0 | +0 % | – | 1.00 | a 8, b 8 |"
    assert lines[-2] == "| 16 | 60.0 | 55.0 | 50.0 | +20 % | +10 % | 2.00 | a 8 \\| b 8 |"


def test_a_model_that_does_not_fit_has_no_row(scaling):
    large = next(setting for setting in scaling.SETTINGS if "32B" in setting.title)
    assert scaling.language_row(large, 8) is None


def test_the_best_of_a_row_is_no_slower_than_any_mode(scaling):
    small = next(setting for setting in scaling.SETTINGS if setting.title == "PPO 1.5B")
    found = scaling.language_row(small, 8)
    assert found.best <= min(found.temporal, found.spatial) < INF
    assert found.devices == 8


@pytest.mark.parametrize(("robots", "plan"), [(MANISKILL, "simulator | policy, then train on all"),
                                              (LIBERO, "simulator, policy, train on all")])
@pytest.mark.parametrize("devices", [8, 16, 32])
def test_robots_run_as_the_paper_reports(scaling, robots, plan, devices):
    assert scaling.robot_row(robots, devices).plan == plan
