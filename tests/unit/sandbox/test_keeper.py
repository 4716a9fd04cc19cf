"""A program's processes, and what becomes of them when it ends, is ended, or its owner is gone."""

import os
import subprocess
import sys
import time

import pytest

from rlinf_cli.sandbox.keeper import descendants
from rlinf_cli.sandbox.kept import Kept, manner
from rlinf_cli.sandbox.program import isolation

isolated = pytest.mark.parametrize("isolate", [False, pytest.param(True, marks=pytest.mark.skipif(
    not isolation().available, reason=isolation().reason))])

ESCAPE = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    time.sleep(600)
os.wait()
"""


@pytest.fixture
def keep(environment):
    """Start Python code under a keeper."""
    started = []

    def start(code, **rest):
        started.append(Kept([sys.executable, "-I", "-S", "-c", code], env=environment, **rest))
        return started[-1]

    yield start
    for one in started:
        if one.control.fileno() >= 0:
            one.end()


@isolated
@pytest.mark.parametrize(("code", "told"), [
    ("", "exit code 0"), ("raise SystemExit(7)", "exit code 7"), ("import os; os.kill(os.getpid(), 9)", "signal 9: Killed"),
    ("import os; os.kill(os.getpid(), 15)", "signal 15: Terminated"), ("import os; os.abort()", "signal 6: Aborted"),
])
def test_how_it_ended_is_told(keep, isolate, code, told):
    kept = keep(code, isolate=isolate)
    assert kept.wait(20)
    assert manner(kept.end()) == told


@isolated
def test_what_is_left_when_it_ends_is_ended(keep, isolate, running):
    kept = keep(ESCAPE, isolate=isolate)
    assert kept.wait(20)
    assert kept.end() == {"status": 0}
    assert running() == []


@isolated
def test_all_of_it_is_ended_when_told(keep, isolate, running):
    kept = keep(f"{ESCAPE}\nprint('away', flush=True)\ntime.sleep(600)", isolate=isolate, stdout=subprocess.PIPE)
    assert kept.process.stdout.readline() == b"away\n"
    assert len(running()) == 3 + isolate
    assert kept.end() == {}
    kept.process.stdout.close()
    assert running() == []


@isolated
def test_a_program_that_attacks_its_parent(keep, isolate, running):
    code = "import os, signal\nfor n in (1, 2, 3, 10, 12, 15): os.kill(os.getppid(), n)\nos.setpgid(0, 0)"
    kept = keep(code, isolate=isolate)
    assert kept.wait(20)
    assert "status" in kept.end()
    assert running() == []


@isolated
def test_a_crowd_is_ended(keep, isolate, running):
    code = "import os, time\nfor _ in range(30):\n    if os.fork() == 0: time.sleep(600)\ntime.sleep(600)"
    kept = keep(code, isolate=isolate, processes=8)
    assert kept.wait(20)
    assert kept.end()["crowd"] > 8
    assert running() == []


def test_what_does_not_exist_cannot_be_started(environment, tmp_path):
    with (tmp_path / "errors").open("wb") as errors:
        kept = Kept(["/no/such/program"], env=environment, stderr=errors)
        assert kept.wait(20)
        assert manner(kept.end()) == "exit code 127"
    assert "FileNotFoundError" in (tmp_path / "errors").read_text()


def test_waiting_has_a_limit(keep):
    kept = keep("import time; time.sleep(600)")
    begin = time.monotonic()
    assert not kept.wait(0.1)
    assert time.monotonic() - begin >= 0.1


def test_its_directory_goes_with_it(keep, tmp_path):
    inside = tmp_path / "inside"
    (inside / "deep" / "er").mkdir(parents=True)
    (inside / "deep" / "file").write_text("text")
    (inside / "link").symlink_to(tmp_path)
    (tmp_path / "outside").write_text("text")
    kept = keep("", remove=str(inside))
    assert kept.wait(20)
    kept.end()
    assert not inside.exists()
    assert (tmp_path / "outside").exists()


def test_descendants_are_those_of_all_generations(keep, running):
    kept = keep(f"{ESCAPE}\nprint('away', flush=True)\ntime.sleep(600)", stdout=subprocess.PIPE)
    kept.process.stdout.readline()
    assert set(descendants(kept.process.pid)) == set(running()) - {kept.process.pid}
    assert set(running()) <= set(descendants(os.getpid()))
    kept.end()
    kept.process.stdout.close()
