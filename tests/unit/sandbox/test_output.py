"""What a process prints must not fill the log."""

import os

import pytest

from rlinf_cli.sandbox.output import CappedLog


@pytest.mark.parametrize("parts", [[b"x" * 10], [b"xxxx", b"xxxx", b"xx"], [b"x" * 25, b"y" * 5], [b"x"] * 30])
def test_so_much_and_then_one_line(tmp_path, parts):
    with (tmp_path / "log").open("wb") as file:
        log = CappedLog(file.fileno(), "mine", most=10)
        for part in parts:
            log.write(part)
    assert (tmp_path / "log").read_text() == "x" * 10 + "\nmine has printed 10 bytes; the rest is dropped\n"


def test_all_of_less(tmp_path):
    with (tmp_path / "log").open("wb") as file:
        log = CappedLog(file.fileno(), "mine", most=10)
        log.write(b"")
        log.write(b"123")
        log.write(b"456")
    assert (tmp_path / "log").read_bytes() == b"123456"


def test_a_slow_reader_gets_all(tmp_path):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        CappedLog(writer, "mine", most=1 << 20).write(b"z" * 500_000)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        assert file.read() == b"z" * 500_000
    os.waitpid(pid, 0)
