"""Real processes, and what is left when one is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from rlinf_cli.flow import client as client_module
from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.client import client, connect
from rlinf_cli.flow.errors import ChannelBrokenError, ChannelError

PUT_AND_SLEEP = """
out = Channel("c")
for number in range(3):
    out.put((number, np.full(200_000, number), b"x" * 10), wait=True)
out.put("local")
client().flush()
print("ready", flush=True)
time.sleep(60)
"""


def ready(child: subprocess.Popen) -> None:
    assert child.stdout.readline() == b"ready\n"


def test_items_cross_processes(run):
    channel = run.channel("c")
    child = run.child("rollout[0]", """
        inbox, outbox = Channel("in"), Channel("c")
        for item in inbox:
            outbox.put({"sum": item.sum(), "array": item + 1})
        outbox.close()
    """)
    inbox = Channel("in", channel._client)
    for number in range(10):
        inbox.put(np.full(100_000, number))
    inbox.close()
    results = list(channel)
    assert [result["sum"] for result in results] == [100_000 * number for number in range(10)]
    assert [result["array"][0] for result in results] == list(range(1, 11))
    assert child.wait(10) == 0


def test_a_killed_producer_loses_nothing_that_it_put(run, eventually):
    channel = run.channel("c")
    child = run.child("rollout[0]", PUT_AND_SLEEP)
    ready(child)
    child.kill()
    eventually(lambda: run.controller.stats()["clients"] == ["driver"])
    items = channel.get(4, at_least=4, timeout=5)
    assert [item[0] for item in items[:3]] == [0, 1, 2]
    assert [item[1].sum() for item in items[:3]] == [0, 200_000, 400_000]
    assert items[3] == "local"
    del items
    eventually(lambda: run.files() == [])


def test_a_killed_producer_breaks_what_it_declared(run):
    channel = run.channel("c")
    channel.declare(["rollout[0]"])
    child = run.child("rollout[0]", PUT_AND_SLEEP)
    ready(child)
    waiting = run.background(lambda: channel.get(key="never"))
    began = time.monotonic()
    child.send_signal(signal.SIGKILL)
    with pytest.raises(ChannelBrokenError, match=r"rollout\[0\] died"):
        waiting.value()
    assert time.monotonic() - began < 2


def test_a_killed_producer_leaves_no_file(run, eventually):
    child = run.child("rollout[0]", """
        out = Channel("c")
        for size in (100_000, 5_000_000):
            out.put(np.ones(size), wait=True)
            out.get()
        print("ready", flush=True)
        time.sleep(60)
    """)
    ready(child)
    assert run.files() != []
    child.kill()
    eventually(lambda: run.files() == [])


def test_a_killed_consumer_gives_back_what_it_held(run, eventually):
    channel = run.channel("c")
    channel.put_many([np.ones(1_000_000)] * 3, wait=True)
    child = run.child("actor[0]", """
        held = Channel("c").get(2, at_least=2)
        print("ready", flush=True)
        Channel("c").get(5, at_least=5)
    """)
    ready(child)
    assert run.controller.stats()["slots"] == 3
    child.kill()
    eventually(lambda: run.controller.stats()["slots"] == 1)
    assert channel.get()[0].sum() == 1_000_000


def test_a_killed_consumer_takes_nothing_more(run, eventually):
    channel = run.channel("c")
    child = run.child("actor[0]", """
        print("ready", flush=True)
        Channel("c").get()
    """)
    ready(child)
    time.sleep(0.1)
    child.kill()
    eventually(lambda: run.controller.stats()["clients"] == ["driver"])
    channel.put("a", wait=True)
    assert channel.get(timeout=5) == ["a"]


def test_what_was_put_just_before_the_end_arrives(run):
    child = run.child("rollout[0]", """
        for number in range(5000):
            Channel("c").put(number)
    """)
    channel = run.channel("c")
    assert channel.get(5000, at_least=5000) == list(range(5000))
    assert child.wait(10) == 0


def test_a_forked_child_does_not_hide_its_parents_death(run):
    channel = run.channel("c")
    channel.declare(["reward[0]"])
    child = run.child("reward[0]", """
        import os
        from rlinf_cli.flow.errors import ChannelError
        if os.fork() == 0:
            try:
                client()
            except ChannelError:
                os.write(1, b"ready\\n")
            time.sleep(60)
        time.sleep(60)
    """)
    ready(child)
    child.kill()
    with pytest.raises(ChannelBrokenError, match=r"reward\[0\] died"):
        channel.get(timeout=5)


def test_files_go_even_when_the_controller_is_killed(run, eventually):
    script = """
        import pickle, sys, time
        from rlinf_cli.flow.controller import Controller
        controller = Controller("secret")
        sys.stdout.buffer.write(pickle.dumps(controller.address()))
        sys.stdout.buffer.flush()
        time.sleep(60)
    """
    import pickle
    from textwrap import dedent

    from rlinf_cli.flow.client import Client

    server = subprocess.Popen([sys.executable, "-c", dedent(script)], stdout=subprocess.PIPE)
    address = pickle.load(server.stdout)
    try:
        channel = Channel("c", Client(address, "driver"))
        channel.put(np.ones(1_000_000), wait=True)
        waiting = run.background(lambda: channel.get(2, at_least=2))
        time.sleep(0.05)
        server.kill()
        with pytest.raises(ChannelBrokenError, match="connection to the controller is lost"):
            waiting.value()
        eventually(lambda: not os.path.exists(address.directory))
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


class TestOnePerProcess:
    @pytest.fixture(autouse=True)
    def alone(self, monkeypatch):
        monkeypatch.setattr(client_module, "_current", None)

    def test_connect_then_client(self, run):
        with pytest.raises(ChannelError, match="call connect"):
            client()
        mine = connect(run.address, "driver")
        try:
            assert client() is mine
            assert run.controller.stats()["clients"] == ["driver"]
            Channel("c").put(1)
            assert Channel("c").get() == [1]
            with pytest.raises(ChannelError, match="already connected to a controller, as driver"):
                connect(run.address, "again")
        finally:
            mine.close()

    def test_after_close_it_may_connect_again(self, run):
        handle = Channel("c")
        for identity in ("first", "second"):
            mine = connect(run.address, identity)
            handle.put(identity, wait=True)
            assert handle.get() == [identity]
            mine.close()
            mine.close()


def test_ctrl_c_at_any_moment_leaves_the_connection_whole(run):
    """Interrupts while messages are sent; every item arrives at most once, in order, and the process goes on."""
    child = run.child("driver", """
        import signal
        def interrupt(*_):
            raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, interrupt)
        out, interrupted = Channel("c"), 0
        for number in range(1000):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.00002 * (number % 7 + 1))
                out.put((number, b"x" * 3000))
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupted += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(interrupted, flush=True)
        Channel("end").put("end", wait=True)
    """)
    assert run.channel("end").get(timeout=30) == ["end"]
    interrupted = int(child.stdout.readline())
    channel = run.channel("c", "reader")
    numbers = [item[0] for item in channel.get(1000)]
    assert numbers == sorted(set(numbers))
    assert len(numbers) >= 1000 - interrupted - 100
    assert interrupted > 0
