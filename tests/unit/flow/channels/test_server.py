"""What the controller does with strangers, broken connections and slow readers."""

from __future__ import annotations

import dataclasses
import os
import pickle
import socket
import stat
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest

from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.controller import Controller
from rlinf_cli.flow.errors import ChannelBrokenError, ChannelError
from rlinf_cli.flow.frames import pack, pack_bytes
from rlinf_cli.flow.shared_directory import SharedDirectory, shared_memory_root, sweep


class Bomb:
    def __reduce__(self):
        return os._exit, (7,)


@pytest.fixture(params=["unix", "tcp"])
def stranger(run, request):
    if request.param == "unix":
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(run.address.unix_path)
    else:
        sock = socket.create_connection((run.address.host, run.address.port))
    sock.settimeout(5)
    yield sock
    sock.close()


def closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(10) == b""
    except ConnectionResetError:
        return True


class TestStrangers:
    @pytest.mark.parametrize("first", [b"wrong", b"", b"secret ", pickle.dumps(Bomb()), pickle.dumps([("hello",)])])
    def test_a_wrong_token_is_shown_the_door_and_not_unpickled(self, run, stranger, first):
        stranger.sendall(pack_bytes(first))
        assert closed(stranger)
        assert run.controller.stats()["clients"] == []

    def test_messages_behind_a_wrong_token_are_not_read(self, run, stranger):
        stranger.sendall(pack_bytes(b"wrong") + pack([("hello", "x", "", False)]) + pack_bytes(pickle.dumps(Bomb())))
        assert closed(stranger)
        assert run.controller.stats()["clients"] == []

    def test_a_huge_first_frame_is_refused_before_it_is_read(self, stranger):
        stranger.sendall(struct.pack("<Q", 1 << 50))
        assert closed(stranger)

    def test_one_that_says_nothing_disturbs_nobody(self, run, stranger):
        channel = run.channel("c")
        channel.put(1)
        assert channel.get() == [1]

    def test_one_that_leaves_in_the_middle_disturbs_nobody(self, run, stranger):
        stranger.sendall(pack_bytes(b"secret")[:5])
        stranger.close()
        channel = run.channel("c")
        channel.put(1)
        assert channel.get() == [1]

    def test_the_right_token_later_is_let_in(self, run, stranger, eventually):
        stranger.sendall(pack_bytes(b"secret"))
        stranger.sendall(pack([("hello", "rollout[0]", "n", False)]))
        eventually(lambda: run.controller.stats()["clients"] == ["rollout[0]"])


class TestClients:
    def test_a_client_with_a_wrong_token_is_told(self, run):
        run.address = dataclasses.replace(run.address, token="guess")
        with pytest.raises(ChannelError, match=r"refused rollout\[0\]: wrong token"):
            run.join("rollout[0]")

    def test_the_token_is_not_shown(self, run):
        assert "secret" not in repr(run.address)

    def test_the_directory_is_private(self, run):
        assert stat.S_IMODE(os.stat(run.address.directory).st_mode) == 0o700

    def test_only_loopback_is_listened_on(self, run):
        assert run.address.host == "127.0.0.1"
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.2", run.address.port), timeout=1)

    def test_an_address_travels(self, run):
        assert pickle.loads(pickle.dumps(run.address)) == run.address

    def test_a_slow_reader_gets_everything(self, run):
        """More than a socket holds, while the others go on."""
        channel = run.channel("c")
        items = [bytes([number]) * 60_000 for number in range(200)]
        channel.put_many(items, wait=True)
        other = run.channel("d", "other")
        waiting = run.background(lambda: channel.get(200, at_least=200))
        other.put(1)
        assert other.get() == [1]
        assert waiting.value() == items


class TestStop:
    def test_waiting_calls_end(self, run):
        channel = run.channel("c")
        full = Channel.create("full", capacity=1, via=run.join("p[0]"))
        full.put(1, wait=True)
        waiting = [run.background(channel.get), run.background(lambda: full.put(2, wait=True))]
        run.controller.stats()
        run.controller.stop()
        for call in waiting:
            with pytest.raises(ChannelBrokenError, match="connection to the controller is lost"):
                call.value()
        with pytest.raises(ChannelBrokenError):
            channel.put(1)
        with pytest.raises(ChannelBrokenError):
            channel.get()

    def test_nothing_is_left(self, run):
        channel = run.channel("c")
        channel.put(np.ones(1_000_000))
        [held] = channel.get()
        channel.put(np.ones(1_000_000))
        run.controller.stop()
        assert not os.path.exists(run.address.directory)
        assert held.sum() == 1_000_000

    def test_twice_is_fine(self, run):
        run.controller.stop()
        run.controller.stop()

    def test_nobody_answers_afterwards(self, run):
        run.controller.stop()
        with pytest.raises(ChannelError, match="no controller answers"):
            run.join("late")

    def test_a_failure_of_the_server_is_told(self, run, eventually, monkeypatch):
        client = run.join("driver")
        monkeypatch.setattr(threading, "excepthook", lambda args: None)
        client.send("no-such-message")
        eventually(lambda: not client.connected)
        with pytest.raises(KeyError, match="no-such-message"):
            run.controller.stats()


class TestDirectories:
    def test_one_in_use_is_left_alone(self):
        directory = SharedDirectory()
        sweep()
        assert os.path.exists(directory.path)
        directory.remove()
        assert not os.path.exists(directory.path)
        directory.remove()

    def test_one_whose_maker_was_killed_is_swept(self):
        path = os.path.join(shared_memory_root(), f"rlinf-test-{os.getpid()}")
        script = f"from rlinf_cli.flow.shared_directory import SharedDirectory; SharedDirectory({path!r})"
        subprocess.run([sys.executable, "-c", script], check=True)
        assert os.path.exists(path)
        sweep()
        assert not os.path.exists(path)

    def test_what_is_not_ours_is_left_alone(self):
        path = os.path.join(shared_memory_root(), f"rlinf-foreign-{os.getpid()}")
        os.mkdir(path)
        sweep()
        assert os.path.exists(path)
        os.rmdir(path)

    def test_an_existing_directory_is_not_taken(self, tmp_path):
        with pytest.raises(FileExistsError):
            Controller("secret", directory=str(tmp_path))

    def test_a_directory_can_be_named(self, make_run, tmp_path):
        run = make_run(directory=str(tmp_path / "channels"), node="node-7")
        assert (run.address.directory, run.address.node) == (str(tmp_path / "channels"), "node-7")
        channel = run.channel("c")
        channel.put(np.ones(100_000))
        assert channel.get()[0].sum() == 100_000


def test_a_process_that_is_dismissed_is_gone_at_once_and_another_one_can_come_under_its_name(run):
    """What it had sent counts; its end, which is noticed later, is not taken for its successor's."""
    driver, old = run.join("driver"), run.join("rollout[0]")
    Channel("answers", old).put("one")
    driver.request("dismiss", ["rollout[0]", "rollout[1]"])
    assert run.controller.stats()["clients"] == ["driver"]
    new = Channel("answers", driver)
    new.declare(["rollout[0]"])
    old.close()
    successor = Channel("answers", run.join("rollout[0]"))
    successor.put("two")
    successor.done("rollout[0]")
    assert new.get(2, at_least=2) == ["one", "two"]
