from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from textwrap import dedent

import pytest

from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.client import Client
from rlinf_cli.flow.controller import Controller

PRELUDE = """
import pickle, sys, time
import numpy as np
from rlinf_cli.flow.client import connect, client
from rlinf_cli.flow.channel import Channel
address, identity = pickle.load(sys.stdin.buffer)
connect(address, identity)
"""


class Run:
    """A controller in this process, clients of it here and in processes of their own."""

    def __init__(self, **options) -> None:
        self.controller = Controller("secret", **options)
        self.address = self.controller.address()
        self._clients: list[Client] = []
        self._children: list[subprocess.Popen[str]] = []
        self._threads: list[threading.Thread] = []

    def join(self, identity: str, node: str | None = None, timeout: float = 20.0, **options) -> Client:
        self._clients.append(Client(self.address, identity, node, timeout, **options))
        return self._clients[-1]

    def channel(self, name: str, identity: str = "driver", **options) -> Channel:
        """A handle of its own client, so that several processes can be played in one."""
        return Channel(name, self.join(identity, **options))

    def child(self, identity: str, script: str) -> subprocess.Popen[str]:
        """A process that is connected as `identity`, and then runs the script."""
        child = subprocess.Popen([sys.executable, "-c", PRELUDE + dedent(script)], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"})
        child.stdin.write(pickle.dumps((self.address, identity)))
        child.stdin.close()
        self._children.append(child)
        return child

    def background(self, call: Callable[[], object]) -> Result:
        result = Result(call)
        self._threads.append(result)
        result.start()
        return result

    def files(self) -> list[str]:
        return sorted(name for name in os.listdir(self.address.directory) if name not in ("lock", "socket"))

    def end(self) -> None:
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            child.wait()
            child.stdout.close()
        for client in self._clients:
            client.close()
        self.controller.stop()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive(), "a call did not end with the controller"


class Result(threading.Thread):
    """A call in a thread of its own: its value or error is raised from `value`."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self._value: object = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._value = self._call()
        except BaseException as error:
            self._error = error

    def value(self, timeout: float = 10.0) -> object:
        self.join(timeout)
        assert not self.is_alive(), "the call has not ended"
        if self._error is not None:
            raise self._error
        return self._value


@pytest.fixture
def make_run():
    runs: list[Run] = []

    def make(**options) -> Run:
        runs.append(Run(**options))
        return runs[-1]

    yield make
    for run in runs:
        run.end()
        assert not os.path.exists(run.address.directory)


@pytest.fixture
def run(make_run) -> Run:
    return make_run()


@pytest.fixture
def eventually():
    """Wait until something holds."""

    def wait(holds: Callable[[], object], timeout: float = 5.0) -> None:
        deadline = time.monotonic() + timeout
        while not holds():
            assert time.monotonic() < deadline, "it never came true"
            time.sleep(0.005)

    return wait
