"""The `rlinf` command in processes of its own."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

DEVICES = ("--devices", "--placement", "--resume", "--fork", "--dry-run")


def on_one_device(words):
    """A new run on one device, unless the test says where: half as many processes to start."""
    return [*words, "--devices", "cpu:1"] if words[0] == "train" and not set(words) & set(DEVICES) else words


def command(directory, words, timeout=180, check=False, **environment):
    """Run `rlinf WORDS` in a directory; the completed process."""
    done = subprocess.run([sys.executable, "-m", "rlinf_cli", *map(str, words)], cwd=directory, text=True,
                          capture_output=True, timeout=timeout, env=os.environ | {"COLUMNS": "200"} | environment)
    if check and done.returncode != 0:
        raise AssertionError(f"rlinf {' '.join(map(str, words))} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


@pytest.fixture
def rlinf(tmp_path):
    """Run `rlinf WORDS` in an empty directory, training on one device; the completed process."""
    return lambda *words, **options: command(tmp_path, on_one_device(words), **options)


@pytest.fixture(scope="module")
def rlinf_in():
    """`rlinf_in(directory, WORDS)`: the same elsewhere, for what several tests look at."""
    return command


class Running:
    """A command under way, in a process group of its own as a terminal's foreground job is."""

    def __init__(self, words, directory, environment):
        self.log = directory / "output.txt"
        self.process = subprocess.Popen([sys.executable, "-m", "rlinf_cli", *map(str, words)], cwd=directory, text=True,
                                        stdout=self.log.open("w"), stderr=subprocess.STDOUT, start_new_session=True,
                                        env=os.environ | environment)

    def wait_for(self, condition, timeout=120):
        deadline = time.monotonic() + timeout
        while not condition():
            assert self.process.poll() is None, f"ended early:\n{self.log.read_text()}"
            assert time.monotonic() < deadline, f"took too long:\n{self.log.read_text()}"
            time.sleep(0.05)

    def family(self):
        """The process and all its descendants."""
        root = psutil.Process(self.process.pid)
        return [root, *root.children(recursive=True)]

    def interrupt(self):
        """Ctrl-C, as a terminal sends it: to the whole group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self, timeout=90):
        """Exit code and output."""
        return self.process.wait(timeout), self.log.read_text()


@pytest.fixture
def start(tmp_path):
    """Start `rlinf WORDS` in an empty directory; killed with all it started when the test ends."""
    started = []

    def begin(*words, **environment):
        started.append(Running(on_one_device(words), tmp_path, environment))
        return started[-1]

    yield begin
    for running in started:
        if running.process.poll() is None:
            for process in running.family():
                process.kill()
            running.process.wait()


def alive(processes):
    """Those that still run (a zombie waits for its parent and does nothing)."""
    _, left = psutil.wait_procs(processes, timeout=10)
    return [one for one in left if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture
def survivors():
    return alive
