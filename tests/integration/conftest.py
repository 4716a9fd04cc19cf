"""One private cluster for all tests of a session; scripts that need one of their own run as processes."""

import os
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import psutil
import pytest

from rlinf_cli.flow.channel import Channel


def pytest_collection_modifyitems(items):
    """Where tests are spread over processes, one of them has the Ray session, and all tests that use it."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.xdist_group("ray"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """All that its controller decided, over all tests, is replayed in the end."""
    from rlinf_cli.flow.cluster import Cluster
    from rlinf_cli.flow.journal_file import read_journal
    from rlinf_cli.state.channel import ChannelsState
    from rlinf_cli.state.device_lock import DeviceLockState
    from rlinf_cli.state.journal import replay

    directory = tmp_path_factory.mktemp("run")
    with Cluster.start("cpu:2", directory=directory / "logs", start_timeout=120, call_timeout=60,
                       run_directory=directory, journal=directory / "events.jsonl") as started:
        started.logs = directory / "logs"
        yield started
    records = list(read_journal(directory / "events.jsonl"))
    assert records
    assert replay(records, {"channels": ChannelsState(), "device_lock": DeviceLockState()}) is None


@pytest.fixture(scope="module", autouse=True)
def _classes_of_tests_can_be_sent(request):
    """A worker's process cannot import a test module."""
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)


@pytest.fixture
def launch(cluster):
    """`launch(WorkerClass, ranks=1, **arguments)`: a group that is ended with the test."""
    groups = []

    def start(worker, ranks=1, *args, role="", **kwargs):
        role = role or f"{worker.__name__.lower()}{len(groups)}"
        groups.append(cluster.launch(role, worker, [[rank] for rank in range(ranks)], *args, **kwargs))
        return groups[-1]

    yield start
    for group in groups:
        cluster.stop(group)


@pytest.fixture
def channel(request, cluster):
    """A channel of this test's own: `channel("samples")`."""
    made = []

    def make(name):
        made.append(Channel(f"{request.node.name}-{name}"))
        return made[-1]

    yield make
    for one in made:
        one.drop()


class Script:
    """A driver in a process of its own, in a process group of its own as a terminal's job is."""

    def __init__(self, source, directory):
        self.directory = Path(directory)
        (self.directory / "script.py").write_text(dedent(source))
        self.process = subprocess.Popen(
            [sys.executable, "script.py"], cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True, env={**os.environ, "OMP_NUM_THREADS": "1"})

    def line(self):
        """The next line that it prints."""
        line = self.process.stdout.readline().strip()
        assert line, self.process.communicate()[1]
        return line

    def end(self, timeout=60):
        """Exit code, what it still printed, what it complained of."""
        code = self.process.wait(timeout)
        # not communicate(): it does not see what `line` has read ahead
        return code, self.process.stdout.read(), self.process.stderr.read()

    def family(self):
        """All descendants, the janitor included."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def files(self):
        """Directories of its cluster: for Ray, and in shared memory."""
        janitor = next(process for process in self.family() if "janitor.py" in " ".join(process.cmdline()))
        return [Path(word) for word in janitor.cmdline()[-2:]]


@pytest.fixture
def script(tmp_path):
    """Start a script; it and what it started is killed with the test."""
    started = []

    def start(source):
        started.append(Script(source, tmp_path))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            for process in one.family():
                process.kill()
            one.process.kill()
            one.process.wait()


def wait_until(condition, timeout=10.0):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout} s"
        time.sleep(0.02)


@pytest.fixture
def until():
    """Wait for a condition; fail after `timeout` seconds."""
    return wait_until


def _alive(processes, timeout):
    """Zombies do not count: here nobody may be there to bury them."""
    deadline = time.monotonic() + timeout
    while True:
        left = [one for one in processes if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


@pytest.fixture
def survivors():
    """`survivors(processes, timeout)`: those that still run after so long."""
    return _alive
