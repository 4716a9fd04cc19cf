"""Programs that nobody vouches for."""

import contextlib
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from rlinf_cli.sandbox import program
from rlinf_cli.sandbox.program import Isolation, ProgramLimits, isolation, run_python

SHORT = ProgramLimits(seconds=0.5)


@pytest.fixture(autouse=True)
def scratch(tmp_path, monkeypatch):
    """Where temporary directories are made; none may be left."""
    place = tmp_path / "scratch"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield place
    assert list(place.iterdir()) == []


@pytest.fixture(params=[False, True], ids=["plain", "isolated"])
def isolate(request, monkeypatch):
    """Both with and without namespaces, where there are any."""
    found = isolation()
    if request.param and not found.available:
        pytest.skip(found.reason)
    monkeypatch.setattr(program, "isolation", lambda: Isolation(request.param))
    return request.param


def test_it_reads_and_prints(isolate):
    outcome = run_python("import sys\nprint(int(input()) + 1)\nprint('oh', file=sys.stderr)", "41\n")
    assert (outcome.ended, outcome.stdout, outcome.stderr, outcome.ok) == ("exit code 0", "42\n", "oh\n", True)


def test_exit_codes_and_signals(isolate):
    assert run_python("raise SystemExit(3)").ended == "exit code 3"
    assert run_python("import os\nos.kill(os.getpid(), 9)").ended == "signal 9: Killed"
    failed = run_python("1 / 0")
    assert (failed.ok, "ZeroDivisionError" in failed.stderr) == (False, True)


def test_time_is_limited(isolate):
    outcome = run_python("while True: pass", limits=SHORT)
    assert (outcome.ended, outcome.ok) == ("took longer than 0.5 s", False)
    assert 0.5 <= outcome.seconds < 5
    assert run_python("print(1, flush=True)\nimport time; time.sleep(600)", limits=SHORT).stdout == "1\n"


def test_output_is_limited(isolate):
    outcome = run_python("while True: print('x' * 100)", limits=ProgramLimits(output_bytes=1000))
    assert outcome.ended == "printed more than 1000 bytes"
    assert len(outcome.stdout) == 1000
    assert run_python("print('x' * 999)", limits=ProgramLimits(output_bytes=1000)).ok


def test_memory_is_limited(isolate):
    outcome = run_python("x = bytearray(1 << 30)", limits=ProgramLimits(memory_mb=256))
    assert "MemoryError" in outcome.stderr
    assert run_python("x = bytearray(1 << 26)", limits=ProgramLimits(memory_mb=256)).ok


def test_files_are_limited(isolate):
    outcome = run_python("open('big', 'wb').write(bytes(3 << 20))", limits=ProgramLimits(file_mb=1))
    assert "File too large" in outcome.stderr
    outcome = run_python("files = [open('/dev/null') for _ in range(50)]", limits=ProgramLimits(open_files=20))
    assert "Too many open files" in outcome.stderr


def test_processes_are_limited(isolate):
    code = "import os, time\nfor _ in range(40):\n    if os.fork() == 0: time.sleep(600)\ntime.sleep(600)"
    outcome = run_python(code, limits=ProgramLimits(processes=4, seconds=20))
    # where the user is not root, fork itself fails in a namespace
    assert "more than 4" in outcome.ended or "BlockingIOError" in outcome.stderr
    assert run_python("import subprocess\nprint(subprocess.check_output(['echo', 'hi'], text=True))").stdout == "hi\n\n"


def test_it_has_an_empty_directory_of_its_own(isolate, scratch):
    outcome = run_python("import os\nprint(os.listdir(), os.getcwd())\nos.makedirs('a/b')\nopen('a/b/c', 'w').write('x')")
    assert outcome.stdout.startswith(f"['program.py'] {scratch}/rlinf-program-")


def test_secrets_do_not_reach_it(isolate, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "s3cret")
    outcome = run_python("import os\nprint(sorted(os.environ))")
    assert "SOME_API_KEY" not in outcome.stdout
    look = f"print(b's3cret' in open('/proc/{os.getpid()}/environ', 'rb').read())"
    # what the environment of a process was when it started: that of this one has the secret of the test only by chance
    assert "PermissionError" in run_python(look).stderr or not isolate


def test_there_is_no_network_in_a_namespace(isolate):
    code = "import socket\nprint(sorted(name for _, name in socket.if_nameindex()))"
    assert (run_python(code).stdout == "['lo']\n") or not isolate
    code = "import socket\nsocket.create_connection(('127.0.0.1', 9), 1)"
    assert ("unreachable" in run_python(code).stderr) == isolate


def test_it_is_the_same_each_time(isolate):
    code = "print(hash('text'), {'a', 'b', 'c', 'd'})"
    assert run_python(code).stdout == run_python(code).stdout


def test_text_of_all_kinds(isolate):
    assert run_python("print(input()[::-1])", "äöü 数学").stdout == "学数 üöä\n"
    assert "SyntaxError" in run_python("x = '\0'").stderr
    assert run_python("print('\ud800')").stdout == "?\n"
    assert run_python("import os\nos.write(1, b'\\xff')").stdout == "�"


def test_standard_streams_that_are_closed(isolate):
    assert run_python("import os\nos.close(1)\nos.close(2)\nos._exit(5)").ended == "exit code 5"
    outcome = run_python("import os, time\nos.close(1)\nos.close(2)\ntime.sleep(600)", limits=SHORT)
    assert outcome.ended == "took longer than 0.5 s"


def test_what_it_leaves_behind_is_ended(isolate, scratch):
    code = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(600)\n    os._exit(0)"
    assert run_python(f"{code}\nos.wait()").ok
    assert not [place for place in working_directories() if place.startswith(str(scratch))]


def working_directories():
    """Of all processes."""
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            yield os.readlink(process / "cwd")


def test_isolation_says_why_there_is_none(monkeypatch):
    monkeypatch.setattr(program, "Kept", lambda command, isolate: Broken())
    assert isolation.__wrapped__() == Isolation(False, "[Errno 1] Operation not permitted: 'unshare'")


class Broken:
    def wait(self, seconds):
        return True

    def end(self):
        return {"error": "[Errno 1] Operation not permitted: 'unshare'"}


def test_limits_are_values():
    assert replace(ProgramLimits(), seconds=1.0) == ProgramLimits(1.0)


def test_nothing_heavy_is_imported():
    code = ("import sys, rlinf_cli.sandbox.program, rlinf_cli.sandbox.pool\n"
            "print([name for name in ('numpy', 'torch', 'ray') if name in sys.modules])")
    assert run_python(code).stdout == "[]\n", sys.path
