"""Processes that carry a mark in their environment, so that none can hide."""

import os
import time
import uuid
from functools import partial
from pathlib import Path

import pytest

from rlinf_cli.sandbox.pool import Pool

FUNCTIONS = """
import os, signal, sys, time

def shout(text):
    return text.upper()

def daemon(_):
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork():
            os._exit(0)
        os.closerange(0, 100)
        time.sleep(600)
    return os.wait()[1]

def behave(what):
    if what == "hang":
        time.sleep(600)
    if what == "hang and block":
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        time.sleep(600)
    if what == "hang in C":
        9 ** 9 ** 9
    if what == "exit":
        os._exit(3)
    if what == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "raise":
        raise KeyError("unit")
    if what == "raise a novel":
        raise ValueError("x" * 1_000_000)
    if what == "sys.exit":
        sys.exit("usage: ...")
    if what == "cannot be sent":
        return lambda: None
    if what == "print":
        os.write(1, b"out " * 1000)
        sys.stderr.write("err" * 1_000_000)
    if what == "fork":
        os.fork()
    if what == "close":
        os.closerange(3, 1000)
    return what
"""


@pytest.fixture
def mark():
    """`NAME=VALUE`, an environment variable; whatever runs with it at the end of the test has escaped."""
    made = f"RLINF_TEST_MARK={uuid.uuid4().hex}"
    yield made
    deadline = time.monotonic() + 5
    while (left := marked(made)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert left == []


def marked(mark):
    """The processes that run with it."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _has(entry, mark)]


def _has(entry, mark):
    try:
        return mark.encode() in (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


@pytest.fixture
def running(mark):
    return partial(marked, mark)


@pytest.fixture
def environment(mark):
    name, _, value = mark.partition("=")
    return os.environ | {name: value}


@pytest.fixture
def pool(tmp_path, monkeypatch, environment):
    """Make a pool of functions: an expression over the names of `FUNCTIONS`."""
    (tmp_path / "pool_functions.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = []

    def make(functions="[behave]", processes=1, timeout_s=20.0, **rest):
        code = f"eval({functions!r}, vars(__import__('pool_functions')))"
        made.append(Pool(partial(eval, code), processes, timeout_s, name="reward mine", env=environment, **rest))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def outcomes():
    """Submit payloads, each its own key; what became of each."""

    def run(pool, *payloads):
        for payload in payloads:
            pool.submit(payload, payload)
        found = {}
        while pool.pending:
            for result in pool.poll():
                failure = result.failure
                found[result.key] = (failure.kind, failure.message) if failure else list(result.values)
        return found

    return run
