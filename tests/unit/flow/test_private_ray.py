"""Ray's habits that a private Ray does not share: taking signals over, and speaking where it likes."""

import logging
import os
import signal
import stat
import subprocess
import sys
import threading

import pytest
import ray._private.utils
import ray._private.worker

from rlinf_cli.environment import environment
from rlinf_cli.flow import private_ray
from rlinf_cli.flow.private_ray import said_to, undisturbed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_takes_effect_at_the_end(number):
    seen, before = [], signal.getsignal(number)
    signal.signal(number, lambda *_: seen.append("ours"))
    try:
        with undisturbed():
            os.kill(os.getpid(), number)
            assert seen == []
        assert seen == ["ours"]
    finally:
        signal.signal(number, before)


def _interrupted():
    with undisturbed():
        os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_is_raised_at_the_end():
    with pytest.raises(KeyboardInterrupt):
        _interrupted()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ray_does_not_take_sigterm_over():
    before, original = signal.getsignal(signal.SIGTERM), ray._private.utils.set_sigterm_handler
    with undisturbed():
        ray._private.utils.set_sigterm_handler(lambda *_: None)
    assert signal.getsignal(signal.SIGTERM) == before
    assert ray._private.utils.set_sigterm_handler is original


def test_another_thread_has_no_signals():
    def body():
        with undisturbed():
            done.append(True)

    done = []
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert done == [True]


def test_what_ray_says_goes_to_a_file(tmp_path, capfd):
    path, before = tmp_path / "logs" / "ray.log", ray._private.worker.print_to_stdstream
    handlers = logging.getLogger("ray").handlers[:]
    with said_to(path):
        logging.getLogger("ray._private.worker").warning("from python")
        ray._private.worker.print_to_stdstream({"lines": ["from the raylet"], "pid": "raylet", "is_err": False},
                                               ignore_prefix=False)
    assert "from python" in path.read_text()
    assert "from the raylet" in path.read_text()
    assert capfd.readouterr() == ("", "")
    assert ray._private.worker.print_to_stdstream is before
    assert logging.getLogger("ray").handlers == handlers


def test_the_environment_is_as_before(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    with environment(**private_ray._settings("some-mark")):
        assert os.environ["RLINF_CLUSTER"] == "some-mark"
        assert os.environ["OMP_NUM_THREADS"] == "1"
        assert len(os.environ["RAY_AUTH_TOKEN"]) == 64
    assert os.environ["OMP_NUM_THREADS"] == "5"
    assert "RAY_AUTH_TOKEN" not in os.environ


def test_nobody_else_can_enter_rays_directory(monkeypatch, tmp_path):
    monkeypatch.setattr(private_ray, "_SOCKET_PATH_LEFT", 200)
    monkeypatch.setattr(private_ray.tempfile, "gettempdir", lambda: str(tmp_path))
    home = private_ray._home("0123456789abcdef")
    assert home.path == str(tmp_path / "rlinf-01234567")
    assert stat.S_IMODE(os.stat(home.path).st_mode) == 0o700
    home.remove()
    assert not os.path.exists(home.path)


def test_what_killed_runs_have_left_is_removed(monkeypatch, tmp_path):
    monkeypatch.setattr(private_ray, "_SOCKET_PATH_LEFT", 200)
    monkeypatch.setattr(private_ray.tempfile, "gettempdir", lambda: str(tmp_path))
    code = ("import os, sys; from rlinf_cli.flow.shared_directory import SharedDirectory; SharedDirectory(sys.argv[1]); "
            "os.kill(os.getpid(), 9)")
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "rlinf-abandoned")], check=False)
    alive = private_ray._home("a" * 16)
    (tmp_path / "rlinf-somebody-elses").mkdir()
    home = private_ray._home("b" * 16)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rlinf-aaaaaaaa", "rlinf-bbbbbbbb", "rlinf-somebody-elses"]
    alive.remove()
    home.remove()


def test_a_long_temporary_directory_is_no_place_for_sockets(monkeypatch):
    monkeypatch.setattr(private_ray.tempfile, "gettempdir", lambda: "/scratch/" + "x" * 60)
    home = private_ray._home("c" * 16)
    assert home.path == "/tmp/rlinf-cccccccc"
    home.remove()


def test_large_copies_go_past_the_cache_unless_the_user_says_otherwise(monkeypatch):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    assert private_ray._settings("mark")["GLIBC_TUNABLES"] == "glibc.cpu.x86_non_temporal_threshold=0x100000"
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.perturb=1")
    assert private_ray._settings("mark")["GLIBC_TUNABLES"] == "glibc.malloc.perturb=1"
