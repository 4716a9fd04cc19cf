"""How a process ended, seen by one that is not its parent."""

import os
import signal
import subprocess
import sys

import pytest

from rlinf_cli.flow.exits import Exit, describe


def grandchild():
    """The pid of a process that sleeps and that another one is to wait for."""
    code = ("import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait(); "
            "sys.stdin.read()")
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return parent, int(parent.stdout.readline())


def tells():
    """Whether this kernel says how a process ended."""
    child = subprocess.Popen(["true"])
    end = Exit(child.pid)
    child.wait()
    return end.reason() != ""


@pytest.mark.skipif(not tells(), reason="needs Linux 6.15")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_signal(number):
    parent, pid = grandchild()
    end = Exit(pid)
    os.kill(pid, number)
    assert end.reason() == f"signal {int(number)}: {signal.strsignal(number)}"
    end.close()
    parent.communicate("")


@pytest.mark.skipif(not tells(), reason="needs Linux 6.15")
def test_an_exit_code():
    child = subprocess.Popen([sys.executable, "-c", "import os; os._exit(7)"])
    end = Exit(child.pid)
    child.wait()
    assert end.reason() == "exit code 7"


def test_a_process_that_lives():
    end = Exit(os.getpid())
    assert end.reason() == ""
    end.close()
    end.close()
    assert end.reason() == ""


def test_a_process_that_is_not_there():
    child = subprocess.Popen(["true"])
    child.wait()
    assert Exit(child.pid).reason() == ""


@pytest.mark.parametrize(("status", "words"), [(9, "signal 9: Killed"), (11 | 128, "signal 11: Segmentation fault"),
                                                (3 << 8, "exit code 3"), (0, "exit code 0")])
def test_wait_statuses_in_words(status, words):
    assert describe(status) == words
