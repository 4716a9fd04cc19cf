"""Rewards that misbehave, in whole runs: what they cost, what is told, and what they leave behind (scenario T1)."""

import contextlib
import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

MISBEHAVES = """
import os, sys, time

def score(sample):
    number = int(sample.id[-4:])
    if sample.id.endswith("-1/0003"):
        time.sleep(600)                    # never ends
    if number == 5:
        if os.fork() == 0:                 # a daemon
            os.setsid()
            if os.fork():
                os._exit(0)
            time.sleep(600)
        os.wait()
    if number == 6:
        sys.stdout.write("x" * 200_000)    # megabytes, in all
    if sample.id.endswith("-2/0007"):
        os._exit(3)
    if sample.id.endswith("-3/0000"):
        raise KeyError("unit")
    return float(sample.response.strip() == sample.answer)

def hang(response):
    time.sleep(600)
"""


def marked(mark):
    """The processes whose environment has it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone
            if mark.encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_text())
    return found


def test_a_reward_that_misbehaves_costs_its_samples_and_no_more(rlinf, tmp_path):
    (tmp_path / "mine.py").write_text(MISBEHAVES)
    mark = f"mark-of-{tmp_path}"
    rlinf("train", "--algo", "grpo", "--reward", "0.5*exact + mine.py:score", "--name", "odd", "--steps", "1",
          "rollout.prompts=8", "reward.timeout_s=4", "reward.processes=2", "log.samples=1000", check=True, REWARD_MARK=mark)
    (metrics,) = [json.loads(line) for line in (tmp_path / "runs/odd/metrics.jsonl").read_text().splitlines()]
    samples = [json.loads(line) for line in (tmp_path / "runs/odd/samples.jsonl").read_text().splitlines()]
    failed = {sample["id"]: sample["error"] for sample in samples if sample["reward"] is None}
    assert {
        "0-1/0003": "TimeoutError: reward mine.py:score took longer than 4 s (reward.timeout_s)",
        "0-2/0007": "the process of reward mine.py:score died (exit code 3)",
        "0-3/0000": "mine.py:score: KeyError: 'unit'",
    }.items() <= failed.items()
    assert metrics["reward/errors"] == metrics["reward/score/errors"] == len(failed)
    assert metrics["reward/timeouts"] == sum(error.startswith("TimeoutError: ") for error in failed.values())
    assert all(sample["reward"] == 1.5 * sample["rewards"]["score"] for sample in samples if sample["reward"] is not None)
    log = (tmp_path / "runs/odd/logs/attempt_1/reward-0.log").read_text()
    assert "has printed 1,000,000 bytes; the rest is dropped" in log
    assert len(log) < 1_100_000
    assert marked(mark) == []


def test_a_reward_that_always_hangs_ends_the_run_with_a_sentence(rlinf, tmp_path):
    (tmp_path / "mine.py").write_text(MISBEHAVES)
    mark = f"mark-of-{tmp_path}"
    done = rlinf("train", "--algo", "grpo", "--reward", "mine.py:hang", "--name", "hung", "--steps", "2", "reward.timeout_s=0.5",
                 REWARD_MARK=mark)
    assert done.returncode == 1
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert "no sample of this step has a reward" in told
    assert "TimeoutError: reward mine.py:hang took longer than 0.5 s (reward.timeout_s)" in told
    assert "Traceback" not in done.stderr
    assert marked(mark) == []
