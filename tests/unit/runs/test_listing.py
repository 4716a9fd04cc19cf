"""What is told of runs while they are written, killed, damaged or gone."""

from __future__ import annotations

import json
import shutil
import time
from datetime import datetime, timezone

import pytest

from rlinf_cli.errors import UsageError
from rlinf_cli.runs.checkpoints import Checkpoints
from rlinf_cli.runs.directory import RunDirectory
from rlinf_cli.runs.listing import describe, ends, list_runs, show_run, size_below

CONFIG = "name: ''\nsteps: 100\ncheckpoint:\n  best: reward/mean\n"


def line(step, **metrics):
    return json.dumps({"step": step, "time": float(step), **metrics}) + "\n"


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"


@pytest.fixture
def make(runs):
    """Makes a run with metrics of so many steps."""
    def run(name, steps=0):
        directory = RunDirectory.create(runs, name, False, CONFIG, {})
        directory.metrics.write_text("".join(
            line(step, **{"reward/mean": step / 10, "throughput/tokens_per_s": 100.0 * step}) for step in range(1, steps + 1)))
        return directory

    return run


def test_a_run_in_a_line(make, runs):
    run = make("a", 4)
    with run.attempt(["rlinf"]):
        pass
    (found,) = list_runs(runs)
    assert (found.name, found.path, found.status, found.step, found.steps) == ("a", runs / "a", "finished", 4, 100)
    assert (found.first_reward, found.reward, found.tokens_per_s) == (0.1, 0.4, 400.0)
    assert found.size == sum(path.stat().st_size for path in run.path.rglob("*") if path.is_file())
    assert abs(found.created - time.time()) < 60


def test_the_newest_comes_first_and_other_directories_are_no_runs(make, runs):
    for name, day in (("b", 2), ("c", 3), ("a", 1)):
        run = make(name)
        record = run.info() | {"created": datetime(2026, 1, day, tzinfo=timezone.utc).isoformat()}
        (run.path / "run.json").write_text(json.dumps(record))
        run.close()
    (runs / "foreign").mkdir()
    (runs / "notes.txt").write_text("x")
    assert [run.name for run in list_runs(runs)] == ["c", "b", "a"]


def test_where_there_is_no_directory_there_are_no_runs(tmp_path):
    assert list_runs(tmp_path / "nowhere") == []


def test_a_run_that_has_only_begun(make, runs):
    make("a").close()
    found = describe(runs / "a")
    assert (found.status, found.step, found.first_reward, found.reward, found.tokens_per_s) == ("created", 0, None, None, None)


HOLD = """
import sys
from pathlib import Path
from rlinf_cli.runs.directory import RunDirectory

with RunDirectory.open(Path(sys.argv[1])).attempt(["rlinf"]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_run_is_running_until_its_process_is_gone(make, runs, python):
    make("a", 2).close()
    process = python(HOLD, runs / "a")
    assert process.stdout.readline() == "held\n"
    assert describe(runs / "a").status == "running"
    process.kill()
    process.wait()
    assert describe(runs / "a").status == "killed"
    assert show_run(runs / "a").listed.status == "killed"


def test_lines_that_are_torn_or_hold_no_number(make, runs):
    run = make("a", 2)
    run.close()
    with run.metrics.open("a") as file:
        file.write(line(3, **{"reward/mean": None}) + '{"step": 4, "rew')
    found = describe(run.path)
    assert (found.step, found.first_reward, found.reward) == (3, 0.1, None)


@pytest.mark.parametrize(("content", "first", "last"), [
    ("", {}, {}), ('{"step": 1', {}, {}), ('{"step": 1}\n', {"step": 1}, {"step": 1}), ("no JSON\n", {}, {}), ("7\n", {}, {}),
    ('{"step": 0}\n{"step": 1, "x": 7}\n{"step": 2, "x": 8}\n', {"step": 1, "x": 7}, {"step": 2, "x": 8}),
    ('{"step": 1}\n\n{"step": 2}\nno JSON\n{"st', {"step": 1}, {"step": 2}),
    ("".join(json.dumps({"step": step, "x": "y" * 500}) + "\n" for step in range(1, 1001)), {"step": 1, "x": "y" * 500},
     {"step": 1000, "x": "y" * 500}),
])
def test_the_ends_of_a_file_of_lines(tmp_path, content, first, last):
    (tmp_path / "metrics.jsonl").write_text(content)
    assert ends(tmp_path / "metrics.jsonl", "x") == (first, last)


def test_a_damaged_record_spoils_no_list(make, runs):
    make("a", 1).close()
    broken = make("b", 1)
    broken.close()
    (broken.path / "run.json").write_text("{")
    assert {run.name: run.status for run in list_runs(runs)} == {"a": "created", "b": "damaged"}
    with pytest.raises(UsageError, match=r"cannot read .*run.json"):
        show_run(broken.path)


def test_a_record_with_an_odd_time_and_no_configuration(make, runs):
    run = make("a", 1)
    run.close()
    (run.path / "run.json").write_text(json.dumps({"created": "yesterday", "status": "finished", "attempts": []}))
    run.config.unlink()
    found = describe(run.path)
    assert (found.status, found.created, found.steps, found.step) == ("finished", None, None, 1)


def test_what_goes_away_meanwhile_counts_for_nothing(tmp_path):
    assert size_below(tmp_path / "gone") == 0
    (tmp_path / "broken").symlink_to("nowhere")
    (tmp_path / "file").write_text("abc")
    assert size_below(tmp_path) == 3 + len("nowhere")


def test_everything_about_one_run(make, runs):
    run = make("a", 3)
    checkpoints = Checkpoints(run.checkpoints, 2, "reward/mean")
    for step, reward in ((1, 0.9), (2, 0.2), (3, 0.3)):
        with checkpoints.write(step, {"metrics": {"reward/mean": reward}}) as path:
            (path / "weights").write_text("x" * 1000)
    run.close()
    (run.checkpoints / "step_000002" / "weights").write_text("x")
    found = show_run(run.path)
    assert found.best == "reward/mean"
    assert [(one.step, one.is_latest, one.is_best, one.score) for one in found.checkpoints] == [
        (1, False, True, 0.9), (2, False, False, 0.2), (3, True, False, 0.3)]
    assert [bool(one.problems) for one in found.checkpoints] == [False, True, False]
    assert found.checkpoints[0].size > 1000
    assert [row["step"] for row in found.rows] == [1, 2, 3]


def test_five_hundred_runs_in_under_a_second(make, runs):
    run = make("run", 30)
    for step in (1, 2):
        with Checkpoints(run.checkpoints, 2).write(step, {}) as path:
            (path / "model").mkdir()
            for name in ("config.json", "weights"):
                (path / "model" / name).write_text(name)
    run.close()
    for number in range(499):
        shutil.copytree(run.path, runs / f"run-{number}")
    began = time.process_time()
    assert len(list_runs(runs)) == 500
    assert time.process_time() - began < 1.0
