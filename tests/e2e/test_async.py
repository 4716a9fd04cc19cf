"""An asynchronous run: bounded staleness, every sample and every second accounted for, the same prompts after a resume; and one
whose processes are killed all the time."""

import json
import os
import random
import re
import shutil
import signal
import time

import pytest

from rlinf_cli.runs.checkpoints import Checkpoints

pytestmark = pytest.mark.e2e

SMALL = ("--devices", "cpu:2", "placement=spatial", "rollout.prompts=4", "rollout.group_size=2", "rollout.max_new_tokens=4",
         "log.samples=1000")

REWARD = """
def score(sample):
    if sum(map(ord, sample.id)) % 5 == 0:
        raise ValueError("no")
    return sum(map(ord, sample.response)) % 5 / 4
"""


def lines(run, name):
    path = run / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def prompts(run):
    """Step -> the prompts whose samples it had."""
    found = {}
    for sample in lines(run, "samples.jsonl"):
        found.setdefault(sample["step"], []).append(sample["id"].partition("/")[0])
    return found


def check_samples(run, steps):
    """All of each step's prompts, twice, and nothing else: batch by batch, in the order of the data."""
    found = prompts(run)
    assert sorted(found) == list(range(1, steps + 1))
    for step, ids in found.items():
        assert sorted(ids) == sorted(2 * [f"0-{row}" for row in range(4 * (step - 1), 4 * step)])


def test_nothing_is_too_old_lost_or_unexplained_and_a_resume_goes_on_with_the_same_prompts(rlinf, tmp_path):
    (tmp_path / "spread.py").write_text(REWARD)
    run = tmp_path / "runs/ahead"
    rlinf("train", "--name", "ahead", "--steps", "9", "rollout.staleness=2", "eval.every=6", "eval.prompts=4",
          "checkpoint.every=2", "checkpoint.keep_last=9", "--reward", "spread.py:score", *SMALL, check=True)
    rows = {row["step"]: row for row in lines(run, "metrics.jsonl")}
    assert list(rows) == list(range(10))
    assert {step for step, row in rows.items() if "timing/eval_s" in row} == {0, 6, 9}  # one version each, or it had failed
    check_samples(run, 9)
    for step in range(1, 10):
        row = rows[step]
        assert row["rollout/staleness/max"] <= 2
        # scenario S4; nothing waits once a step has ended
        dropped = sum(value for name, value in row.items() if name.startswith("actor/dropped/"))
        assert row["rollout/samples"] == 8 == row["actor/samples"] + dropped
        assert row.get("actor/dropped/no_reward", 0) >= row["reward/errors"]
        parts = {name: value for name, value in row.items() if name.startswith("timing/")}
        whole = parts.pop("timing/step_s")
        parts.pop("timing/eval_s", None)
        assert sum(parts.values()) == pytest.approx(whole, rel=1e-6)
    assert max(row.get("rollout/staleness/max", 0) for row in rows.values()) > 0
    assert any("actor/dropped/no_reward" in row for row in rows.values())

    trace = json.loads((run / "trace.json").read_text())["traceEvents"]
    threads = {event["tid"]: event["args"]["name"] for event in trace if event.get("name") == "thread_name"}
    shown = {event["name"] for event in trace if event["ph"] == "X" and threads[event["tid"]].startswith("under way")}
    assert shown >= {"step 2", "step 3"}
    assert [event["name"] for event in trace].count("train") == 9

    checkpoints = Checkpoints(run / "checkpoints")
    assert checkpoints.steps() == [2, 4, 6, 8, 9]
    for step in checkpoints.steps():
        found = checkpoints.open(step, full=True)
        assert (found.state["step"], found.state["batches"], found.state["samples"]) == (step, step, 8 * step)
    shutil.copytree(run, tmp_path / "runs/again")
    rlinf("train", "--resume", "runs/again@4", check=True)
    assert {step: sorted(ids) for step, ids in prompts(tmp_path / "runs/again").items()} == {
        step: sorted(ids) for step, ids in prompts(run).items()}


def workers(running, logs):
    """Process id -> its log, of the workers that there are now."""
    found = {}
    for process in running.family():
        try:
            target = os.readlink(f"/proc/{process.pid}/fd/1")
        except OSError:
            continue
        if target.startswith(str(logs)) and target.endswith("-0.log") and not target.endswith("controller-0.log"):
            found[process.pid] = os.path.basename(target)
    return found


SLOW = """
import time

def score(sample):
    time.sleep(0.02)
    return float(len(sample.response) % 2)
"""
"""So that the run is not over before its workers have been killed."""


def test_a_run_survives_the_deaths_of_its_workers(start, tmp_path):
    """Every so often a worker of any role is killed, once the run has recovered from the death before."""
    (tmp_path / "slow.py").write_text(SLOW)
    chance, killed = random.Random(6), []
    run = tmp_path / "runs/hunted"
    running = start("train", "--name", "hunted", "--steps", "40", "rollout.staleness=1", "checkpoint.every=5",
                    "cluster.restarts=9", "--reward", "slow.py:score", *SMALL)
    running.wait_for(lambda: len(lines(run, "metrics.jsonl")) >= 3)
    for _ in range(3):
        pid, log = chance.choice(sorted(workers(running, run / "logs/attempt_1").items(), key=lambda one: one[1]))
        os.kill(pid, signal.SIGKILL)
        killed.append(log.removesuffix("-0.log"))
        running.wait_for(lambda: len(lines(run, "incidents.jsonl")) == len(killed))
        time.sleep(0.3)
    code, output = running.end(timeout=180)
    assert code == 0, output
    rows, incidents = lines(run, "metrics.jsonl"), lines(run, "incidents.jsonl")
    assert [row["step"] for row in rows] == list(range(1, 41))
    check_samples(run, 40)
    assert [one["role"] for one in incidents] == killed
    assert all(one["action"] == ("recovered" if one["role"] == "actor" else "restarted") for one in incidents)
    assert all(re.match(r"weights v\d+", one["detail"]) for one in incidents if one["role"] == "rollout")
    assert rows[-1]["progress/restarts"] == len(killed)
    assert output.count("incident ") == len(killed)
    assert Checkpoints(run / "checkpoints").latest(full=True).step == 40
