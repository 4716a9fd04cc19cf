import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def run_directory(tmp_path):
    directory = tmp_path / "run-1"
    directory.mkdir()
    return directory


@pytest.fixture
def attempt(run_directory, tmp_path):
    """Run an attempt with real loggers: what was said, and everything it printed."""

    def call(loggers, step, numbers, *keys, **environment):
        away = {"HOME": str(tmp_path), "TRACKIO_DIR": str(tmp_path / "trackio"), "NETRC": str(tmp_path / "none")}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "TRACKIO_"))}
        script = Path(__file__).parent / "attempt.py"
        done = subprocess.run([sys.executable, script, run_directory, str(step), json.dumps(numbers), loggers, *keys],
                              capture_output=True, text=True, cwd=tmp_path, env={**inherited, **away, **environment}, timeout=120)
        assert done.returncode == 0, done.stderr
        printed, _, result = done.stdout.rpartition("RESULT ")
        return json.loads(result.splitlines()[0]) | {"out": printed + "\n".join(result.splitlines()[1:]), "err": done.stderr}
    return call


def records(path):
    """What a `.wandb` file holds: leveldb's log format (blocks of 32 KiB, records cut in pieces) of protobuf messages."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, whole = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # the only piece, or the last
            yield Record.FromString(whole)
            whole = b""


@pytest.fixture
def wandb_records(run_directory):
    """Those of every attempt in turn, written offline."""
    def call():
        return [list(records(path)) for path in sorted(run_directory.glob("wandb/offline-run-*/*.wandb"))]
    return call
