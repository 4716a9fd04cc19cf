"""A Ray of our own: on loopback, behind a token, without the parts we do not use, gone when we are done.

`ray.init` would start a dashboard, a log monitor and an autoscaler beside it (three Python processes, 1.7 s and 2 s of
CPU time in Ray 2.60) and listen on all interfaces; `Node`, which it uses itself, lets us choose.
"""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import secrets
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ray
import ray._private.ray_constants
import ray._private.utils
import ray._private.worker
from ray._private.node import Node
from ray._private.parameter import RayParams
from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]

from rlinf_cli.environment import environment
from rlinf_cli.errors import RunError, UsageError
from rlinf_cli.flow.janitor import MARK, Janitor
from rlinf_cli.flow.shared_directory import SharedDirectory, remove_if_abandoned, shared_memory_root

LOOPBACK = "127.0.0.1"
_SOCKET_PATH_LEFT = 20
"""Longest directory below which Ray's socket paths still fit into a Unix address (107 bytes)."""


class _Head(Node):  # type: ignore[misc]
    def start_api_server(self, **_: Any) -> None:
        """The dashboard's server: nobody asks it anything."""


class PrivateRay:
    """Starts Ray in this thread, which must outlive it (the kernel ends Ray's processes with the thread).

    `slots`: processes to start ahead of need · `memory`: bytes of Ray's object store · `log`: a file for what Ray says.
    """

    def __init__(self, slots: int, memory: int, log: Path) -> None:
        mark = secrets.token_hex(8)
        self.shared_directory = os.path.join(shared_memory_root(), f"rlinf-{mark}")
        """For the channels' shared memory; removed with the rest."""
        self._home = _home(mark)
        self._directory = os.path.join(self._home.path, "ray")  # Ray lets everybody write into its own
        self._janitor = Janitor(mark, self._directory, self._home.path, self.shared_directory)
        self._node: Node | None = None
        self._quiet = contextlib.ExitStack()
        try:
            self._quiet.enter_context(said_to(log))
            with undisturbed(), environment(**_settings(mark)), _loopback():
                self._start(slots, memory)
        except Exception as error:  # Ray raises whatever it likes
            reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no reason'}"
            self.stop()
            raise RunError(f"Ray could not be started: {reason}. What it said is in {log}") from error
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all processes, remove all files."""
        with undisturbed():
            try:
                ray.shutdown()
                if self._node is not None:
                    self._node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)
            finally:
                self._quiet.close()
                self._janitor.finish()
                self._home.remove()

    def _start(self, slots: int, memory: int) -> None:
        AuthenticationTokenLoader.instance().reset_cache()
        Config.initialize("")  # reads the environment again, for the token
        with _unheard():
            self._node = _Head(
                RayParams(node_ip_address=LOOPBACK, num_cpus=slots, num_gpus=0, object_store_memory=memory,
                          temp_dir=self._directory, include_dashboard=False, include_log_monitor=False, no_monitor=True),
                head=True, shutdown_at_exit=False, spawn_reaper=True)
        ray.init(address=self._node.gcs_address, log_to_driver=False)


def join(address: str) -> None:
    """Take part in a cluster that runs already. Raises UsageError when there is none."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5.0).close()
    except (OSError, ValueError) as error:
        raise UsageError(f"cluster.address={address}: no Ray cluster answers there ({error}): write HOST:PORT of its "
                         "head node, as `ray start --head` prints it") from error
    with undisturbed():
        try:
            ray.init(address=address, log_to_driver=False)
        except (ConnectionError, RuntimeError, ray.exceptions.RayError) as error:
            raise UsageError(f"cluster.address={address}: Ray could not join: {str(error).strip().splitlines()[0]}") from error


@contextlib.contextmanager
def said_to(path: Path) -> Iterator[None]:
    """Write what Ray would print to a file: its log, and what its daemons report."""
    path.parent.mkdir(parents=True, exist_ok=True)
    logger, module = logging.getLogger("ray"), ray._private.worker
    handler = logging.FileHandler(path, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname).1s %(name)s: %(message)s"))
    before = logger.propagate, logger.handlers[:], module.print_to_stdstream
    logger.propagate, logger.handlers[:] = False, [handler]
    module.print_to_stdstream = _reporter(logging.getLogger("ray.daemons"))
    try:
        yield
    finally:
        logger.propagate, logger.handlers[:], module.print_to_stdstream = before
        handler.close()


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C and SIGTERM take effect at the end: an exception in the middle of Ray's start or end crashes the process.

    Their handlers stay as they were, where Ray would put one of its own.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {int(number): signal.signal(number, lambda number, _: came.append(number))
              for number in (signal.SIGINT, signal.SIGTERM)}
    utils = ray._private.utils
    set_handler, utils.set_sigterm_handler = utils.set_sigterm_handler, lambda handler: None
    try:
        yield
    finally:
        utils.set_sigterm_handler = set_handler
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in came:
            signal.raise_signal(number)


@contextlib.contextmanager
def _unheard() -> Iterator[None]:
    """A SIGTERM to all processes of a run, as schedulers send it, is the driver's affair, which saves and then ends the others:
    what is started inside does not hear it. Ray sees to SIGINT itself."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _reporter(logger: logging.Logger) -> Any:
    def report(data: Mapping[str, Any], *_: Any, **__: Any) -> None:
        for line in data["lines"]:
            logger.warning("%s", line)

    return report


_token = secrets.token_hex(32)
"""Kept as long as this process: Ray remembers it across clusters."""


_COPIES = f"glibc.cpu.x86_non_temporal_threshold={1 << 20:#x}"
"""Copies of 1 MiB and more write past the cache, which spares reading what they overwrite. The C library's own bound follows
the size of the cache that a machine shows; a virtual one shows its host's, and 190 MB were the bound then."""


def _settings(mark: str) -> dict[str, str]:
    return {
        MARK: mark, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _token, "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_worker_niceness": "0", "OMP_NUM_THREADS": "1",
        # the record of every call, for a dashboard that is not there, grows by some 3 kB a call
        "RAY_task_events_report_interval_ms": "0",
        "OMP_WAIT_POLICY": "passive", "GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", _COPIES),
    }  # fmt: skip


@contextlib.contextmanager
def _loopback() -> Iterator[None]:
    """Ray's own switch for staying on 127.0.0.1, which it would otherwise replace by the machine's address."""
    constants = ray._private.ray_constants
    before, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


def _home(mark: str) -> SharedDirectory:
    """A directory for Ray's files that nobody else can enter. What killed runs have left of theirs is removed."""
    root = tempfile.gettempdir()
    root = root if len(root) <= _SOCKET_PATH_LEFT else "/tmp"
    for path in glob.glob(os.path.join(root, "rlinf-*")):
        remove_if_abandoned(path)
    return SharedDirectory(os.path.join(root, f"rlinf-{mark[:8]}"))
