from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from rlinf_cli.rl.trajectory import Sample


@pytest.fixture
def sample() -> Callable[..., Sample]:
    """Makes samples; keyword arguments replace the defaults."""

    def make(**fields) -> Sample:
        tokens = np.arange(3, dtype=np.int32)
        values = {"id": "0-1/0", "group_id": "0-1", "prompt_ids": tokens, "response_ids": tokens,
                  "mask": tokens >= 0, "logprobs": tokens.astype(np.float32), "versions": tokens, "finish": "stop",
                  "prompt": "d47=", "response": "7", "answer": "7", "reward": 1.0}
        return Sample(**{**values, **fields})

    return make


@pytest.fixture
def python() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts scripts that are ended with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(script: str, *arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen([sys.executable, "-c", script, *map(str, arguments)], stdout=subprocess.PIPE,
                                   stdin=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stdin.close()


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A directory that this process may not write to."""
    directory = tmp_path / "read-only"
    directory.mkdir()
    directory.chmod(0o555)
    as_root = os.geteuid() == 0
    if as_root:
        os.seteuid(65534)
    try:
        yield directory
    finally:
        if as_root:
            os.seteuid(0)
        directory.chmod(0o755)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    mount = tmp_path / "disk"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount)], capture_output=True).returncode:
        pytest.skip("mounting a small file system takes root")
    yield mount
    subprocess.run(["umount", "--lazy", str(mount)], check=True)


@pytest.fixture
def file_limit() -> Callable[[int], contextlib.AbstractContextManager[None]]:
    """Within it, no file can grow beyond so many bytes."""

    @contextlib.contextmanager
    def limit(size: int) -> Iterator[None]:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)

    return limit
