"""A process that is killed while it writes checkpoints: what is latest always loads."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from rlinf_cli.runs.checkpoints import Checkpoints

SAVE = """
import sys
from pathlib import Path
from rlinf_cli.runs.checkpoints import Checkpoints

def save(checkpoints, step):
    with checkpoints.write(step, {"step": step, "metrics": {"reward/mean": -abs(step - 10)}}) as path:
        (path / "model").mkdir()
        for name in ("a", "b"):
            (path / "model" / name).write_bytes(step.to_bytes(4, "big") * 20_000)

directory = Path(sys.argv[1])
"""

SAVE_FOR_EVER = SAVE + """
checkpoints = Checkpoints(directory, keep_last=2, best="reward/mean")
latest = checkpoints.latest()
step = latest.step if latest else 0
checkpoints.recover()
print("ready", flush=True)
while True:
    step += 1
    save(checkpoints, step)
"""

END_AT_EVERY_EVENT = SAVE + """
import os, shutil

class Countdown:
    # ends the process, as a kill would, at the n-th thing that it asks of the file system
    def __init__(self, events):
        self.left = events
    def __call__(self, event, args):
        if event in ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate"):
            self.left -= 1
            if self.left < 0:
                os._exit(9)

def child(number, first, second):
    place = directory / str(number)
    checkpoints = Checkpoints(place, best="reward/mean")
    save(checkpoints, first)
    sys.addaudithook(Countdown(number))
    save(checkpoints, second)
    os._exit(0)

first, second = int(sys.argv[2]), int(sys.argv[3])
for number in range(1000):
    pid = os.fork()
    if pid == 0:
        child(number, first, second)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0:
        break
print(number)
"""


def check(directory: Path) -> int:
    """Step of the latest checkpoint, after reading all of it, and of the best."""
    checkpoints = Checkpoints(directory)
    best = checkpoints.best_step()
    for one in [checkpoints.latest(full=True), *([checkpoints.open(best, full=True)] if best else [])]:
        assert one.state["step"] == one.step
        assert (one.model / "a").read_bytes() == one.step.to_bytes(4, "big") * 20_000
    return checkpoints.latest_step()


def test_kill_at_random_points_of_many_saves(tmp_path, python):
    rng, steps = random.Random(7), [0]
    for _ in range(50):
        process = python(SAVE_FOR_EVER, tmp_path)
        assert process.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0.0, 0.08))
        process.send_signal(signal.SIGKILL)
        process.wait()
        if steps[-1] or (tmp_path / "latest").exists():
            steps.append(check(tmp_path))
    assert steps == sorted(steps)
    assert steps[-1] > 12
    checkpoints = Checkpoints(tmp_path, keep_last=2)
    checkpoints.recover()
    assert checkpoints.best_step() == 10
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".writing")]


@pytest.mark.parametrize(("first", "second"), [(10, 20), (10, 10)])
def test_end_at_every_single_point_of_a_save(tmp_path, python, first, second):
    process = python(END_AT_EVERY_EVENT, tmp_path, first, second)
    points = int(process.communicate(timeout=60)[0])
    assert points > 20
    seen = []
    for number in range(points + 1):
        place = tmp_path / str(number)
        seen.append(check(place))
        checkpoints = Checkpoints(place)
        checkpoints.recover()
        with checkpoints.write(30, {"step": 30}) as path:
            (path / "model").mkdir()
        assert sorted(os.listdir(place)) == ["latest", "step_000030"]  # without a metric there is no best
    assert seen == sorted(seen)
    assert seen[0] == first
    assert seen[-1] == second
