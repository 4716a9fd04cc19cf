"""Programs that nobody vouches for, such as those that a model writes: run with limits, and ended with all they start.

This is no security boundary. A program runs as the user who runs `rlinf` and can read what that user can read; the
limits are against what goes wrong by itself or is tried for a reward.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import selectors
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from rlinf_cli.errors import RunError
from rlinf_cli.sandbox import keeper
from rlinf_cli.sandbox.kept import Kept, manner

_MB = 1 << 20
_BLOCK = 1 << 16
_PROBE_S = 10.0


@dataclass(frozen=True)
class ProgramLimits:
    """What a program may use."""

    seconds: float = 5.0
    """Of wall time; of CPU time, a second more."""
    memory_mb: int = 1024
    """Address space of each process."""
    output_bytes: int = 1_000_000
    """Printed, on standard output and error each."""
    file_mb: int = 16
    """Size of each file that it writes."""
    open_files: int = 64
    processes: int = 16
    """At a time, itself included; found out too late by 50 ms at most where the system does not help."""


@dataclass(frozen=True)
class ProgramOutcome:
    """How a program ended, and what it printed."""

    ended: str
    """In words: `exit code 0`, `signal 9: Killed`, `took longer than 5 s`, `printed more than 1000000 bytes`."""
    stdout: str
    stderr: str
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether it ended by itself and with exit code 0."""
        return self.ended == "exit code 0"


@dataclass(frozen=True)
class Isolation:
    """Whether programs get no network and see no other processes here."""

    available: bool
    reason: str = ""
    """Why not."""


@functools.cache
def isolation() -> Isolation:
    """Tried once in a process."""
    kept = Kept([sys.executable, "-I", "-S", "-c", ""], isolate=True)
    kept.wait(_PROBE_S)
    told = manner(kept.end())
    return Isolation(True) if told == "exit code 0" else Isolation(False, told or "it took too long")


def run_python(source: str, stdin: str = "", limits: ProgramLimits | None = None) -> ProgramOutcome:
    """Run a Python program, with the interpreter and packages of this one.

    It has an empty directory of its own, which is removed, next to nothing in its environment and, where `isolation` is
    available, no network. RunError when it cannot be started at all.

    Example::

        run_python("print(int(input()) + 1)", "41").stdout == "42\\n"
    """
    limits = limits or ProgramLimits()
    directory = tempfile.mkdtemp(prefix="rlinf-program-")
    try:
        (Path(directory) / "program.py").write_text(source, "utf-8", "replace")
        with tempfile.TemporaryFile() as given:
            given.write(stdin.encode(errors="replace"))
            given.seek(0)
            return _run(_kept(directory, limits, given), limits)
    finally:
        keeper.remove(directory)  # the keeper does it too, also where this process is killed


def _kept(directory: str, limits: ProgramLimits, stdin: IO[bytes]) -> Kept:
    return Kept([sys.executable, "-s", "-B", "program.py"], isolate=isolation().available, limits=_rlimits(limits),
                processes=limits.processes, remove=directory, env=_environment(directory), cwd=directory, stdin=stdin,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _rlimits(limits: ProgramLimits) -> dict[str, int]:
    found = {"RLIMIT_CPU": math.ceil(limits.seconds) + 1, "RLIMIT_AS": limits.memory_mb * _MB, "RLIMIT_CORE": 0,
             "RLIMIT_FSIZE": limits.file_mb * _MB, "RLIMIT_NOFILE": limits.open_files}
    # elsewhere it would count every process of the user
    return found | {"RLIMIT_NPROC": limits.processes} if isolation().available else found


def _environment(directory: str) -> dict[str, str]:
    return {"PATH": os.defpath, "HOME": directory, "TMPDIR": directory, "LANG": "C.UTF-8", "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def _run(kept: Kept, limits: ProgramLimits) -> ProgramOutcome:
    begin = time.monotonic()
    try:
        printed, why = _listen(kept, limits, begin + limits.seconds)
    finally:
        ended = kept.end()
        for stream in (kept.process.stdout, kept.process.stderr):
            assert stream is not None
            stream.close()
    if "error" in ended:
        raise RunError(f"a program could not be started in the sandbox: {ended['error']}")
    if "crowd" in ended:
        why = f"had {ended['crowd']} processes, more than {limits.processes}"
    stdout, stderr = (text[: limits.output_bytes].decode(errors="replace") for text in printed)
    return ProgramOutcome(why or manner(ended), stdout, stderr, time.monotonic() - begin)


def _listen(kept: Kept, limits: ProgramLimits, deadline: float) -> tuple[list[bytearray], str]:
    """What it prints until its end, and why it is to be ended before."""
    streams = [kept.process.stdout, kept.process.stderr]
    printed = [bytearray(), bytearray()]
    with selectors.DefaultSelector() as selector:
        selector.register(kept.control, selectors.EVENT_READ)
        for stream, text in zip(streams, printed):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ, text)
        while (left := deadline - time.monotonic()) > 0:
            found = [key for key, _ in selector.select(left)]
            for key in found:
                if key.data is not None and not _read(key.fd, key.data):
                    selector.unregister(key.fileobj)
            if max(map(len, printed)) > limits.output_bytes:
                return printed, f"printed more than {limits.output_bytes} bytes"
            if len(found) == 1 and found[0].data is None:  # it has ended, and all that it printed has been read
                return printed, ""
    return printed, f"took longer than {limits.seconds:g} s"


def _read(descriptor: int, text: bytearray) -> bool:
    """Whether more can come."""
    with contextlib.suppress(BlockingIOError):
        content = os.read(descriptor, _BLOCK)
        text += content
        return bool(content)
    return True
