"""Ctrl-C, a killed worker, a killed driver: nothing hangs, nothing is lost, nothing stays behind."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from rlinf_cli.runs.checkpoints import Checkpoints

pytestmark = pytest.mark.e2e


def steps(run):
    path = run / "metrics.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def begin(start, tmp_path, name, *words):
    running = start("train", "--algo", "grpo", "--name", name, "--steps", "100000", *words)
    running.wait_for(lambda: steps(tmp_path / "runs" / name) >= 3)
    return running, tmp_path / "runs" / name


def ends_saved(running, stop, run, survivors):
    family = running.family()
    stop()
    code, output = running.end()
    assert code == 130, output
    assert "rlinf train --resume" in output
    assert survivors(family) == []
    assert json.loads((run / "run.json").read_text())["status"] == "interrupted"


def test_an_interrupt_saves_says_how_to_go_on_and_leaves_no_process(start, rlinf, survivors, tmp_path):
    running, run = begin(start, tmp_path, "stopped")
    ends_saved(running, running.interrupt, run, survivors)  # Ctrl-C
    trained = steps(run)
    running = start("train", "--resume", "runs/stopped")
    running.wait_for(lambda: steps(run) >= trained + 2)
    ends_saved(running, running.process.terminate, run, survivors)  # as schedulers do
    trained = steps(run)
    done = rlinf("train", "--resume", "runs/stopped", "--steps", trained + 2, check=True)
    assert f"steps 100000 → {trained + 2}" in done.stderr
    assert [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()] == list(range(1, trained + 3))


@pytest.mark.parametrize("role", ["rollout", "reward", "actor"])
def test_a_killed_worker_that_is_not_started_again_ends_the_run_naming_it(start, survivors, tmp_path, role):
    running, run = begin(start, tmp_path, "killed", "checkpoint.every=1", "cluster.restarts=0")
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


def test_a_full_disk_ends_the_run_in_a_sentence_and_spares_what_was_saved(rlinf, tmp_path):
    (tmp_path / "disk").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=9m", "tmpfs", str(tmp_path / "disk")]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small file system takes root")
    try:
        done = rlinf("train", "--name", "full", "--steps", "4", "runs_dir=disk", "checkpoint.every=1", "checkpoint.keep_last=9")
        assert done.returncode == 1, done.stderr
        error = done.stderr.splitlines()[-1]
        assert error.startswith("Error: cannot write checkpoint disk/full/checkpoints/step_000002: no space left on device; ")
        assert "Traceback" not in done.stderr
        assert "go on with: rlinf train --resume disk/full" in error
        checkpoints = Checkpoints(tmp_path / "disk/full/checkpoints")
        assert checkpoints.latest(full=True).step == 1
        assert steps(tmp_path / "disk/full") >= 2
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path / "disk")], check=True)
