"""Whatever a call does, it costs its own task and nothing else."""

import os
import signal
import subprocess
import sys
import time

import pytest

from rlinf_cli.errors import RunError

SCRIPT = """
import sys, time
from functools import partial
sys.path.insert(0, sys.argv[1])
from rlinf_cli.sandbox.pool import Pool
pool = Pool(partial(eval, "[__import__('pool_functions').daemon, __import__('pool_functions').behave]"), 1, 600.0)
pool.submit(0, "hang")
pool.poll(0.5)
print("hangs", flush=True)
time.sleep(600)
"""


def test_each_payload_goes_to_each_function(pool, outcomes):
    assert outcomes(pool("[shout, behave]", processes=2), "a", "b", "c") == {one: [one.upper(), one] for one in "abc"}


@pytest.mark.parametrize(("what", "outcome"), [
    ("hang", ("timeout", "0.3 s")),
    ("hang and block", ("timeout", "0.3 s")),
    ("hang in C", ("timeout", "0.3 s")),
])
def test_a_call_that_never_ends_is_ended_at_its_limit(pool, outcomes, what, outcome):
    assert outcomes(pool(timeout_s=0.3), "before", what, "after") == {
        "before": ["before"], what: outcome, "after": ["after"]}


@pytest.mark.parametrize(("what", "outcome"), [
    ("exit", ("died", "exit code 3")),
    ("segfault", ("died", "signal 11: Segmentation fault")),
    ("close", ("died", "exit code 1")),
    ("raise", ("raised", "KeyError: 'unit'")),
    ("sys.exit", ("raised", "SystemExit: usage: ...")),
    ("fork", ["fork"]),
])
def test_a_call_that_misbehaves_costs_nothing_but_itself(pool, outcomes, what, outcome):
    found = outcomes(pool(), "before", what, "after", "last")
    assert found == {"before": ["before"], what: outcome, "after": ["after"], "last": ["last"]}


def test_what_cannot_be_sent_is_an_error_of_the_call(pool, outcomes):
    found = outcomes(pool(), "cannot be sent", "after")
    assert found["cannot be sent"][0] == "raised"
    assert "pickle" in found["cannot be sent"][1]
    assert found["after"] == ["after"]


def test_long_messages_are_cut(pool, outcomes):
    kind, message = outcomes(pool(), "raise a novel")["raise a novel"]
    assert (kind, message[:16], len(message)) == ("raised", "ValueError: xxxx", 501)


def test_the_traceback_is_told(pool):
    one = pool()
    one.submit(1, "raise")
    (result,) = one.poll()
    assert 'raise KeyError("unit")' in result.failure.detail


def test_the_function_that_was_at_it_is_told(pool):
    one = pool("[shout, behave, shout]", timeout_s=0.3)
    for payload in ("hang", "raise", "exit"):
        one.submit(payload, payload)
    results = []
    while one.pending:
        results += one.poll()
    assert [(result.key, result.values, result.failure.function) for result in results] == [
        ("hang", ["HANG"], 1), ("raise", ["RAISE"], 1), ("exit", ["EXIT"], 1)]


def test_others_go_on_while_one_hangs(pool):
    one = pool(processes=2, timeout_s=600.0)
    one.submit("hang", "hang")
    for number in range(500):
        one.submit(number, "fast")
    results = []
    while len(results) < 500:
        results += one.poll()
    assert {result.key for result in results} == set(range(500))
    assert one.pending == 1


def test_daemons_do_not_get_away(pool, outcomes, running):
    one = pool("[daemon, behave]", timeout_s=0.3)
    outcomes(one, "a", "b")
    before = set(running())
    assert len(before) == 4  # keeper, process, and two daemons
    outcomes(one, "hang")
    assert not before & set(running())  # with the process that was ended, its daemons
    one.close()
    assert running() == []


def test_nothing_outlives_the_process_that_has_the_pool(tmp_path, pool, environment, running):
    pool().close()  # for its module
    done = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)], env=environment, stdout=subprocess.PIPE)
    assert done.stdout.readline() == b"hangs\n"
    assert len(running()) == 4
    os.kill(done.pid, signal.SIGKILL)
    done.wait()
    done.stdout.close()
    deadline = time.monotonic() + 5
    while running() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert running() == []


def test_what_is_printed_goes_to_the_log_up_to_a_limit(pool, outcomes, tmp_path):
    with (tmp_path / "log").open("wb") as log:
        assert outcomes(pool(log=log.fileno()), "print", "after") == {"print": ["print"], "after": ["after"]}
    text = (tmp_path / "log").read_text()
    assert 1_000_000 < len(text) < 1_000_200
    assert text.startswith("out out")
    assert text.endswith("\nreward mine has printed 1,000,000 bytes; the rest is dropped\n")


def test_large_payloads_do_not_block(pool):
    one = pool("[len, behave]", timeout_s=0.5)
    one.submit("first", "hang")
    for number in range(5):
        one.submit(number, "x" * 3_000_000)
    results = {}
    while one.pending:
        results |= {result.key: result.values[0] for result in one.poll()}
    assert results == {"first": 4} | dict.fromkeys(range(5), 3_000_000)


def test_poll_waits_no_longer_than_told(pool):
    one = pool(timeout_s=600.0)
    assert one.poll() == []
    one.submit(1, "hang")
    begin = time.monotonic()
    assert one.poll(0.1) == []
    assert 0.1 <= time.monotonic() - begin < 2
    assert one.poll(0) == []


def test_tasks_that_no_process_has_taken_up_can_be_withdrawn(pool):
    one = pool(timeout_s=0.3)
    for number in range(6):
        one.submit(number, "hang" if number == 0 else "fast")
    one.poll(0)
    assert one.waiting == 5
    assert one.withdraw(lambda key: key % 2 == 1) == [1, 3, 5]
    results = []
    while one.pending:
        results += one.poll()
    assert [result.key for result in results] == [0, 2, 4]


@pytest.mark.parametrize(("functions", "message"), [
    ("nowhere", "reward mine could not be set up: NameError: name 'nowhere' is not defined"),
    ("os._exit(7)", r"reward mine could not be set up: its process ended \(exit code 7\)"),
    ("time.sleep(600)", "reward mine could not be set up: its process was not ready after 0.5 s"),
])
def test_functions_that_cannot_be_made(pool, functions, message, running):
    with pytest.raises(RunError, match=message):
        pool(functions, start_timeout_s=0.5 if "sleep" in functions else 60.0)
    assert running() == []


def test_a_process_that_cannot_be_started_again_ends_the_run(pool, tmp_path):
    flag = tmp_path / "started"
    one = pool(f"[behave] if not os.path.exists({str(flag)!r}) and open({str(flag)!r}, 'w') else 1 / 0")
    one.submit(1, "exit")
    one.submit(2, "after")
    assert [result.key for result in one.poll()] == [1]
    with pytest.raises(RunError, match="could not be set up: ZeroDivisionError"):
        one.poll()


def test_a_local_file_does_not_replace_a_module_in_the_process(pool, outcomes, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "here/json.py").write_text("raise RuntimeError('the wrong one')")
    monkeypatch.chdir(tmp_path / "here")
    assert outcomes(pool("[lambda text: __import__('json').loads(text)]"), "1") == {"1": [1]}
