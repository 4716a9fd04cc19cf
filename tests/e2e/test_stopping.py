"""Ctrl-C, a killed worker, a killed driver: nothing hangs, nothing is lost, nothing stays behind."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e


def steps(run):
    path = run / "metrics.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def begin(start, tmp_path, name, *words):
    running = start("train", "--algo", "grpo", "--name", name, "--steps", "100000", *words)
    running.wait_for(lambda: steps(tmp_path / "runs" / name) >= 3)
    return running, tmp_path / "runs" / name


@pytest.mark.parametrize("how", ["Ctrl-C", "kill"])
def test_an_interrupt_saves_says_how_to_go_on_and_leaves_no_process(start, rlinf, survivors, tmp_path, how):
    running, run = begin(start, tmp_path, "stopped")
    family = running.family()
    if how == "Ctrl-C":
        running.interrupt()
    else:
        running.process.terminate()
    code, output = running.end()
    assert code == 130, output
    assert "rlinf train --resume" in output
    assert survivors(family) == []
    trained = steps(run)
    assert json.loads((run / "run.json").read_text())["status"] == "interrupted"
    done = rlinf("train", "--resume", "runs/stopped", "--steps", trained + 2, check=True)
    assert done.returncode == 0
    assert [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()] == list(range(1, trained + 3))


@pytest.mark.parametrize("role", ["rollout", "reward", "actor"])
def test_a_killed_worker_ends_the_run_naming_it(start, survivors, tmp_path, role):
    running, run = begin(start, tmp_path, "killed", "checkpoint.every=1")
    family = running.family()
    pid = next(process.pid for process in family if os.readlink(f"/proc/{process.pid}/fd/1").endswith(f"{role}-0.log"))
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    code, output = running.end()
    assert code == 1, output
    assert time.monotonic() - began < 30
    assert f"{role}[0]" in output
    assert "died" in output
    assert survivors(family) == []
    assert (run / "checkpoints/latest").exists()
    assert json.loads((run / "run.json").read_text())["status"] == "failed"


def test_nothing_outlives_a_killed_driver(start, survivors, tmp_path):
    running, _ = begin(start, tmp_path, "murdered")
    family = running.family()
    before = set(Path("/dev/shm").iterdir())
    running.process.kill()
    running.process.wait()
    assert survivors(family) == []
    assert before  # the run had its channels in shared memory


def test_a_reward_that_always_raises_ends_the_run_with_its_error(rlinf, tmp_path):
    (tmp_path / "broken.py").write_text("def score(sample):\n    raise ValueError('no such unit')\n")
    done = rlinf("train", "--algo", "grpo", "--name", "r", "--steps", "3", "--reward", "broken.py:score")
    assert done.returncode == 1
    assert "ValueError: no such unit" in done.stderr


def test_a_reward_that_sometimes_raises_is_counted(rlinf, tmp_path):
    (tmp_path / "shaky.py").write_text("def score(sample):\n    if sample.id.endswith('3'):\n        raise ValueError('no')\n"
                                       "    return float(sample.response == sample.answer)\n")
    rlinf("train", "--algo", "grpo", "--name", "r", "--steps", "2", "--reward", "shaky.py:score", check=True)
    rows = [json.loads(line) for line in (tmp_path / "runs/r/metrics.jsonl").read_text().splitlines()]
    assert all(row["reward/errors"] > 0 for row in rows)
