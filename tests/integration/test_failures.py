"""What goes wrong in a worker is raised where somebody waits: typed, within seconds, and nothing hangs."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time

import pytest

from rlinf_cli.errors import PluginError, RlinfError, UsageError
from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.errors import (
    CallTimeoutError,
    ChannelBrokenError,
    SerializationError,
    WorkerDiedError,
    WorkerError,
)
from rlinf_cli.flow.handle import gather
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.flow.worker import Worker, control

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def _in_time():
    """No failure takes longer than ten seconds to be told, a slow machine's start of a few processes aside."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < 15


class Picky(UsageError):
    def __init__(self, file, line):
        super().__init__(f"{file}:{line}: no prompt")


class Faulty(Worker):
    def __init__(self, error=None, only=None):
        if error is not None and only in (None, self.rank):
            raise error

    def fail(self, error, only=None):
        if only in (None, self.rank):
            raise error
        return self.rank

    def fail_deep(self):
        try:
            {}["missing"]
        except KeyError as error:
            raise RuntimeError("while looking it up") from error

    def sleep(self, seconds, only=None):
        if only in (None, self.rank):
            time.sleep(seconds)
        return self.rank

    def exit(self, code):
        os._exit(code)

    def leave(self):
        sys.exit("enough")

    def kill_self(self, number, only=None):
        if only in (None, self.rank):
            os.kill(os.getpid(), number)
            time.sleep(20)

    def pid(self):
        return os.getpid()

    def lock(self):
        return threading.Lock()

    def take(self, value):
        return value

    def produce(self, numbers: Out[int], count: int, then: str = "") -> None:
        for number in range(count):
            numbers.put(number)
        numbers.flush()
        if then == "raise":
            raise ValueError("no more numbers")
        if then == "wait":
            time.sleep(30)

    def consume(self, numbers: In[int]) -> int:
        return sum(numbers)

    def ask(self, group, method, *arguments):
        return getattr(group, method)(*arguments).wait(10)

    @control
    def poke(self, error=None):
        if error is not None:
            raise error
        return "poked"


def of(error, kind=WorkerError):
    assert isinstance(error, kind), repr(error)
    return error


# ---- exceptions ----


def test_an_exception_in_a_method(launch):
    group = launch(Faulty, role="faulty")
    with pytest.raises(WorkerError, match=r"faulty\[0\] on node-0 failed in fail: ValueError: no such token") as caught:
        group.fail(ValueError("no such token")).wait()
    error = caught.value
    assert isinstance(error.__cause__, ValueError)
    assert error.__cause__ is error.cause
    assert "in fail\n    raise error" in error.remote_traceback
    assert error.exit_code == 1
    assert group.pid().wait()[0] > 0  # the worker lives


def test_the_chain_of_causes_is_in_the_traceback(launch):
    with pytest.raises(WorkerError) as caught:
        launch(Faulty).fail_deep().wait()
    assert "KeyError: 'missing'" in caught.value.remote_traceback
    assert "The above exception was the direct cause" in caught.value.remote_traceback


def test_the_traceback_is_in_the_log(launch, cluster):
    with pytest.raises(WorkerError):
        launch(Faulty, role="logged").fail(ValueError("to be logged")).wait()
    log = (cluster.logs / "logged-0.log").read_text()
    assert "Traceback (most recent call last)" in log
    assert "ValueError: to be logged" in log


def test_waiting_again_raises_again(launch):
    handle = launch(Faulty).fail(ValueError("once"))
    for _ in range(2):
        with pytest.raises(WorkerError, match="once"):
            handle.wait()
    with pytest.raises(WorkerError, match="once"):
        handle.timings()


class Deals(Worker):
    """Rank 1 is told that rank 0 fails before rank 0's own failure is known."""

    def work(self):
        if self.rank == 1:
            raise ChannelBrokenError("rank 0 has nothing to deal out")
        time.sleep(0.5)
        raise ValueError("the cause")


def test_a_cause_that_comes_after_its_consequence_is_raised(launch):
    with pytest.raises(WorkerError, match=r"\[0\] .*the cause"):
        gather([launch(Deals, 2).work()])


def test_one_of_two_ranks_is_raised_at_once(launch):
    group = launch(Faulty, 2)
    group.ready()
    slow = group.sleep(8, only=0)
    began = time.monotonic()
    handle = group.fail(ValueError("rank one"), only=1)
    with pytest.raises(WorkerError, match=r"\[1\] .*rank one"):
        gather([handle])
    assert time.monotonic() - began < 7  # rank 0 still sleeps
    assert slow.wait() == [0, 1]


def test_an_exception_in_the_constructor(launch):
    group = launch(Faulty, 1, ValueError("no model"), role="faulty")
    with pytest.raises(WorkerError, match=r"faulty\[0\] on node-0 failed in __init__: ValueError: no model") as caught:
        group.ready()
    assert caught.value.method == "__init__"
    with pytest.raises(WorkerError, match="failed in __init__"):
        group.pid().wait()
    with pytest.raises(WorkerError, match="failed in __init__"):
        group.poke().wait()


def test_an_exception_in_one_constructor_of_two(launch):
    group = launch(Faulty, 2, ValueError("no model"), only=1)
    with pytest.raises(WorkerError, match=r"\[1\] .*failed in __init__"):
        group.ready()


def test_a_channel_of_a_worker_that_was_never_made(launch, channel):
    group = launch(Faulty, 1, ValueError("no model"))
    numbers = channel("numbers")
    group.produce(numbers, 3)
    with pytest.raises(ChannelBrokenError, match=r"failed in __init__: ValueError: no model"):
        list(numbers)


def test_an_exception_in_a_control_method(launch):
    group = launch(Faulty)
    with pytest.raises(WorkerError, match="failed in poke: KeyError: 'x'"):
        group.poke(KeyError("x")).wait()
    assert group.poke().wait() == ["poked"]


@pytest.mark.parametrize(("error", "code"), [(UsageError("data.jsonl:3: no prompt"), 2), (PluginError("missing"), 3)])
def test_our_own_errors_keep_their_exit_code(launch, error, code):
    with pytest.raises(RlinfError, match=str(error)) as caught:
        launch(Faulty).fail(error).wait()
    assert caught.value.exit_code == code
    assert type(caught.value.cause) is type(error)


def test_an_exception_that_cannot_be_sent_keeps_words_and_exit_code(launch):
    class Raiser(Worker):
        def go(self):
            raise Picky("data.jsonl", 3)

    with pytest.raises(WorkerError, match=r"data\.jsonl:3: no prompt") as caught:
        launch(Raiser).go().wait()
    assert caught.value.exit_code == 2
    assert caught.value.cause is None


def test_leaving_is_a_failure_of_the_call_not_of_the_worker(launch):
    group = launch(Faulty)
    with pytest.raises(WorkerError, match="failed in leave: SystemExit: enough"):
        group.leave().wait()
    assert group.poke().wait() == ["poked"]


def test_an_error_through_another_role_tells_the_whole_way(launch):
    inner, outer = launch(Faulty, role="inner"), launch(Faulty, role="outer")
    with pytest.raises(WorkerError, match=r"outer\[0\] .*failed in ask: inner\[0\] .*failed in fail: too short") as caught:
        outer.ask(inner, "fail", UsageError("too short")).wait()
    assert of(caught.value.cause).role == "inner"
    assert caught.value.exit_code == 2


# ---- what cannot be sent ----


def test_a_result_that_cannot_be_sent(launch):
    group = launch(Faulty)
    with pytest.raises(WorkerError, match=r"failed in lock: its result cannot be sent .*cannot pickle '_thread.lock'"):
        group.lock().wait()
    assert group.poke().wait() == ["poked"]


def test_an_argument_that_cannot_be_sent_is_told_at_the_call(launch):
    group = launch(Faulty, role="faulty")
    with pytest.raises(SerializationError, match=r"faulty.take\(\): argument 'value' cannot be sent .*_thread.lock"):
        group.take(threading.Lock())
    assert group.take(1).wait() == [1]


def test_a_constructors_argument_that_cannot_be_sent(cluster):
    with pytest.raises(SerializationError, match="faulty: the arguments of Faulty cannot be sent"):
        cluster.launch("faulty", Faulty, [[0]], threading.Lock())


def test_a_call_that_could_not_be_sent_breaks_its_channel(launch, channel):
    group = launch(Faulty)
    numbers = channel("numbers")
    with pytest.raises(SerializationError):
        group.produce(numbers, threading.Lock())
    with pytest.raises(ChannelBrokenError, match="cannot be sent"):
        numbers.get(timeout=5)


def _gone():
    raise ModuleNotFoundError("No module named 'elsewhere'")


class OnlyHere:
    def __reduce__(self):
        return _gone, ()


def test_an_argument_that_cannot_be_read(launch, channel):
    group = launch(Faulty)
    numbers = channel("numbers")
    with pytest.raises(WorkerError, match=r"its arguments could not be read in its process: .*elsewhere"):
        group.produce(numbers, OnlyHere()).wait()
    with pytest.raises(ChannelBrokenError, match="could not be read"):
        numbers.get(timeout=5)


# ---- deaths ----


def test_a_process_that_ends_itself(launch, cluster):
    group = launch(Faulty, role="faulty")
    group.ready()
    began = time.monotonic()
    with pytest.raises(WorkerDiedError) as caught:
        group.exit(7).wait()
    assert time.monotonic() - began < 5
    error = caught.value
    assert (error.role, error.rank, error.node, error.last_call) == ("faulty", 0, "node-0", "exit")
    assert error.log == str(cluster.logs / "faulty-0.log")
    assert error.pid > 0
    assert "while in exit" in str(error)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_process_that_is_killed_in_a_call(launch, cluster, number):
    group = launch(Faulty, 2, role="faulty")
    with pytest.raises(WorkerDiedError, match=r"faulty\[1\] on node-0 died .* while in kill_self") as caught:
        group.kill_self(number, only=1).wait()
    assert re.search(rf"signal {int(number)}|unexpectedly", caught.value.detail)
    if number == signal.SIGSEGV:
        assert "in kill_self" in (cluster.logs / "faulty-1.log").read_text()  # where it was


def test_a_process_that_is_killed_while_idle(launch, until, cluster):
    group = launch(Faulty, role="faulty")
    os.kill(group.pid().wait()[0], signal.SIGKILL)
    until(lambda: cluster._supervision.watch.latest() is not None, 5)
    with pytest.raises(WorkerDiedError, match="no call, the last was pid"):
        group.poke().wait()


def test_a_process_that_is_killed_while_it_is_made(launch):
    class Slow(Worker):
        def __init__(self):
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(20)

    with pytest.raises(WorkerDiedError, match="while in __init__"):
        launch(Slow, 2).ready()


def test_a_death_is_told_to_whoever_waits_for_something_else(launch):
    dying, other = launch(Faulty), launch(Faulty, role="other")
    other.ready()
    pid = dying.pid().wait()[0]
    threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
    began = time.monotonic()
    with pytest.raises(WorkerDiedError, match="no call"):
        other.sleep(8).wait()
    assert time.monotonic() - began < 5


def test_a_death_is_told_once_and_then_the_others_go_on(launch):
    dying, other = launch(Faulty, 2), launch(Faulty)
    pids = dying.pid().wait()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerDiedError):
        dying.poke().wait()
    assert other.poke().wait() == ["poked"]  # what a run does to save what can be saved
    assert other.pid().wait()[0] not in pids


def test_a_death_seen_by_another_worker(launch):
    dying, asking = launch(Faulty, role="dying"), launch(Faulty)
    with pytest.raises((WorkerDiedError, WorkerError), match=r"dying\[0\] on node-0 died"):
        asking.ask(dying, "exit", 3).wait()


# ---- channels ----


def test_a_failed_producer_breaks_its_channel_and_is_the_cause(launch, channel):
    producer, consumer = launch(Faulty, role="producer"), launch(Faulty, role="consumer")
    numbers = channel("numbers")
    handles = [consumer.consume(numbers), producer.produce(numbers, 3, "raise")]
    with pytest.raises(WorkerError, match=r"producer\[0\] .*failed in produce: ValueError: no more numbers"):
        gather(handles)
    with pytest.raises(WorkerError, match=r"consumer\[0\] .*failed in consume: producer\[0\] failed in produce: ValueError"):
        handles[0].wait()


def test_one_of_two_producers_fails(launch, channel):
    producer = launch(Faulty, 2)
    numbers = channel("numbers")
    producer.on(0).produce(numbers, 1, "wait")
    producer.on(1).produce(numbers, 1, "raise")
    with pytest.raises(ChannelBrokenError, match="no more numbers"):
        numbers.get(3, at_least=3, timeout=8)


def test_a_producer_that_dies_breaks_its_channel_and_is_the_cause(launch, channel):
    producer, consumer = launch(Faulty, role="producer"), launch(Faulty, role="consumer")
    numbers = channel("numbers")
    pid = producer.pid().wait()[0]
    handles = [consumer.consume(numbers), producer.produce(numbers, 3, "wait")]
    assert numbers.get(1, timeout=5)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerDiedError, match=r"producer\[0\] on node-0 died .* while in produce"):
        gather(handles)
    with pytest.raises((WorkerError, WorkerDiedError), match=r"producer\[0\]"):
        handles[0].wait()


def test_a_producer_that_dies_while_the_driver_consumes(launch, channel):
    producer = launch(Faulty, role="producer")
    numbers = channel("numbers")
    pid = producer.pid().wait()[0]
    producer.produce(numbers, 2, "wait")
    assert numbers.get(2, at_least=2) == [0, 1]
    threading.Timer(0.2, os.kill, (pid, signal.SIGKILL)).start()
    with pytest.raises(ChannelBrokenError, match=r"producer\[0\]"):
        numbers.get(timeout=8)


def test_only_the_consumer_is_waited_for(launch, channel):
    """The death that broke the channel is raised, though nobody waits for the producer."""
    producer, consumer = launch(Faulty, role="producer"), launch(Faulty, role="consumer")
    numbers = channel("numbers")
    pid = producer.pid().wait()[0]
    producer.produce(numbers, 1, "wait")
    handle = consumer.consume(numbers)
    threading.Timer(0.2, os.kill, (pid, signal.SIGKILL)).start()
    with pytest.raises(WorkerDiedError, match=r"producer\[0\]"):
        handle.wait()


# ---- time limits ----


def test_a_call_past_its_time_limit(launch, cluster):
    group = launch(Faulty, 2, role="sleeper")
    group.ready()
    began = time.monotonic()
    with pytest.raises(CallTimeoutError, match=r"not ended within 0.5 s: sleeper.sleep \(rank 1 of 2\)") as caught:
        group.sleep(8, only=1).wait(0.5)
    assert time.monotonic() - began < 7
    stacks = cluster.logs / "sleeper-1.stacks.txt"
    assert str(stacks) in str(caught.value)
    text = stacks.read_text()
    assert "sleeper[1]: sleep has not ended within 0.5 s" in text
    assert "in sleep" in text
    assert not (cluster.logs / "sleeper-0.stacks.txt").exists()
    assert group.pid().wait()  # behind the call that goes on


def test_a_time_limit_over_several_calls(launch):
    first, second = launch(Faulty, role="first"), launch(Faulty, role="second")
    first.ready()
    second.ready()
    handles = [first.sleep(2), second.sleep(2), first.poke()]
    with pytest.raises(CallTimeoutError, match=r"first.sleep \(rank 0 of 1\); second.sleep \(rank 0 of 1\)"):
        gather(handles, 0.5)
    gather(handles)


def test_the_clusters_time_limit_holds_where_none_is_given(launch):
    group = launch(Faulty)
    group.ready()
    group.call_timeout = 0.3
    with pytest.raises(CallTimeoutError, match=r"0.3 s"):
        group.sleep(1.5).wait()


def test_a_worker_that_is_never_ready(launch):
    class Stuck(Worker):
        def __init__(self):
            time.sleep(30)

    with pytest.raises(CallTimeoutError, match=r"not ended within 2 s: stuck.__init__ \(rank 0 of 1\)"):
        launch(Stuck, role="stuck").ready(2)


def test_channels_of_the_session_still_work(launch, channel):
    group = launch(Faulty)
    numbers = channel("numbers")
    group.produce(numbers, 4)
    assert list(Channel(numbers.name)) == [0, 1, 2, 3]
