"""Whoever is killed leaves nothing behind."""

import os
import secrets
import subprocess
import sys
import time

import psutil
import pytest

from rlinf_cli.flow.janitor import MARK, Janitor, clear, members


@pytest.fixture
def mark():
    return secrets.token_hex(8)


@pytest.fixture
def sleeper(mark):
    """Starts processes that bear the mark, and that SIGTERM does not end."""
    started = []

    def start(value=mark):
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, MARK: value})
        process.stdout.readline()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def wait_for(condition, timeout=10.0):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_marked_processes_are_found(mark, sleeper):
    mine, other = sleeper(), sleeper("another-mark")
    assert list(members(mark, "/nowhere")) == [mine.pid]
    assert other.pid not in members(mark, "/nowhere")
    assert list(members(mark + "0", "/nowhere")) == []


def test_processes_with_a_file_open_in_a_directory_are_found(mark, tmp_path):
    for name in ("inside", "inside-not"):
        (tmp_path / name).mkdir()
    with (tmp_path / "inside/log").open("w") as inside, (tmp_path / "inside-not/log").open("w") as outside:
        found, other = (subprocess.Popen(["sleep", "60"], stdout=file) for file in (inside, outside))
    assert list(members(mark, str(tmp_path / "inside"))) == [found.pid]
    clear(mark, str(tmp_path / "inside"))
    assert found.wait(5) == -9
    assert other.poll() is None
    other.kill()
    other.wait()


def test_clearing_kills_the_marked_and_removes_directories(mark, sleeper, tmp_path):
    mine, other = sleeper(), sleeper("another-mark")
    (tmp_path / "a" / "b").mkdir(parents=True)
    clear(mark, str(tmp_path / "never-made"), str(tmp_path / "a"))
    assert mine.wait(5) == -9
    assert other.poll() is None
    assert not (tmp_path / "a").exists()


def test_an_orderly_end(mark, sleeper, tmp_path):
    directory = tmp_path / "kept"
    directory.mkdir()
    janitor = Janitor(mark, str(directory))
    left_over = sleeper()
    began = time.monotonic()
    janitor.finish()
    assert time.monotonic() - began < 3
    assert left_over.wait(5) == -9
    assert not directory.exists()
    assert janitor._process.returncode == 0


DRIVER = """
import sys, time
from rlinf_cli.flow.janitor import Janitor
janitor = Janitor(sys.argv[1], sys.argv[2])
print(janitor._process.pid, flush=True)
time.sleep(60)
"""


def test_a_driver_that_is_killed(mark, sleeper, tmp_path):
    directory = tmp_path / "kept"
    directory.mkdir()
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, mark, str(directory)], stdout=subprocess.PIPE, text=True)
    janitor = int(driver.stdout.readline())
    left_over = sleeper()
    time.sleep(0.2)
    assert directory.exists()
    assert left_over.poll() is None
    driver.kill()
    driver.wait()
    assert left_over.wait(10) == -9
    wait_for(lambda: not directory.exists())
    wait_for(lambda: not psutil.pid_exists(janitor))


def test_ctrl_c_in_the_drivers_terminal_is_not_for_the_janitor(mark):
    janitor = Janitor(mark, "/nowhere")
    assert os.getpgid(janitor._process.pid) == janitor._process.pid
    janitor.finish()
