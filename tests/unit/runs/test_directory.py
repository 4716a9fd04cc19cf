from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rlinf_cli.errors import RlinfError, RunError, UsageError
from rlinf_cli.runs import lock
from rlinf_cli.runs.directory import RunDirectory

HOLD = """
import sys
from pathlib import Path
from rlinf_cli.runs.directory import RunDirectory

run = RunDirectory.open(Path(sys.argv[1]))
with run.attempt(["rlinf", "train"]) as attempt:
    print(attempt.number, flush=True)
    sys.stdin.readline()
"""


def create(root: Path, name: str = "a", overwrite: bool = False, **options) -> RunDirectory:
    return RunDirectory.create(root, name, overwrite, "seed: 1\n", {"note": "hello"}, **options)


def test_a_new_run_has_its_configuration_and_record(tmp_path):
    run = create(tmp_path / "deep" / "runs")
    assert run.path == tmp_path / "deep" / "runs" / "a"
    assert run.config.read_text() == "seed: 1\n"
    record = run.info()
    assert record["name"] == "a"
    assert record["note"] == "hello"
    assert record["status"] == "created"
    assert record["attempts"] == []
    assert (run.plan.name, run.metrics.name, run.samples.name, run.checkpoints.name) == (
        "plan.yaml", "metrics.jsonl", "samples.jsonl", "checkpoints")


def test_an_attempt_is_recorded_from_begin_to_end(tmp_path):
    run = create(tmp_path)
    with run.attempt(["rlinf", "train", "hub.token=abc"]) as attempt:
        assert attempt.logs == run.path / "logs" / "attempt_1" == run.logs
        assert attempt.logs.is_dir()
        during = run.info()
    assert during["status"] == "running"
    assert during["attempts"][0]["end"] is None
    after = run.info()
    assert after["status"] == "finished"
    (one,) = after["attempts"]
    assert one["end"] >= one["start"] >= after["created"]
    assert one["exit"] == "finished"
    assert one["command"] == ["rlinf", "train", "hub.token=[hidden]"]
    assert one["process"] == os.getpid()
    assert one["host"]
    assert set(one["versions"]) == {"rlinf-cli", "torch", "ray", "transformers"}
    assert one["versions"]["torch"]


class Interrupted(RlinfError):
    exit_code = 130


@pytest.mark.parametrize(("error", "status", "reason"), [
    (RunError("rollout[1] died"), "failed", "rollout[1] died"),
    (ZeroDivisionError(), "failed", "ZeroDivisionError"),
    (KeyboardInterrupt(), "interrupted", "interrupted"),
    (Interrupted("stopped at step 3"), "interrupted", "stopped at step 3"),
])
def test_how_an_attempt_ended(tmp_path, error, status, reason):
    run = create(tmp_path)
    with pytest.raises(type(error)), run.attempt([]):
        raise error
    record = run.info()
    assert record["status"] == status
    assert record["attempts"][0]["exit"] == reason


def test_an_attempt_can_set_its_own_outcome(tmp_path):
    run = create(tmp_path)
    with run.attempt([]) as attempt:
        attempt.status, attempt.reason = "interrupted", "time limit"
    assert run.info()["status"] == "interrupted"
    assert run.info()["attempts"][0]["exit"] == "time limit"


def lose_the_record(run: RunDirectory) -> None:
    (run.path / "run.json").unlink()
    raise RunError("the real reason")


def test_the_run_s_own_error_outlives_a_broken_record(tmp_path):
    run = create(tmp_path)
    with pytest.raises(RunError, match="the real reason"), run.attempt([]):
        lose_the_record(run)


def test_a_record_that_cannot_be_written_at_the_end_is_an_error(tmp_path, file_limit):
    run = create(tmp_path)
    with (contextlib.ExitStack() as stack, pytest.raises(RunError, match=r"cannot write .*run.json: file too large"),
          run.attempt([])):
        stack.enter_context(file_limit(10))
    assert run.info()["status"] == "running"


def test_further_attempts_count_up_and_earlier_ones_stay(tmp_path):
    create(tmp_path).close()
    for number in (1, 2, 3):
        with RunDirectory.open(tmp_path / "a").attempt([]) as attempt:
            assert attempt.number == number
    assert [one["number"] for one in RunDirectory.open(tmp_path / "a").info()["attempts"]] == [1, 2, 3]


def test_secrets_of_the_environment_are_not_written(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "key-0123456789")
    run = RunDirectory.create(tmp_path, "a", False, "logger:\n  key: key-0123456789\n", {"x": ["key-0123456789"]})
    with pytest.raises(RunError), run.attempt(["rlinf", "a=key-0123456789"]):
        raise RunError("server refused key-0123456789")
    for path in run.path.rglob("*"):
        assert not path.is_file() or "0123456789" not in path.read_text()
    assert run.config.read_text() == "logger:\n  key: ${oc.env:WANDB_API_KEY}\n"


def test_an_existing_run_is_not_touched(tmp_path):
    first = create(tmp_path)
    first.close()
    before = first.info()
    with pytest.raises(UsageError) as error:
        create(tmp_path)
    path = tmp_path / "a"
    assert str(error.value) == (f"run directory {path} exists: continue it with --resume {path}, "
                                "replace it with --overwrite, or choose another --name")
    assert first.info() == before


def test_overwrite_replaces_a_run(tmp_path):
    old = create(tmp_path)
    old.metrics.write_text("old")
    old.close()
    new = create(tmp_path, overwrite=True)
    assert not new.metrics.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


def test_overwrite_of_nothing_creates(tmp_path):
    assert create(tmp_path, overwrite=True).info()["name"] == "a"


@pytest.mark.parametrize("overwrite", [True, False])
def test_what_is_not_a_run_is_never_removed(tmp_path, overwrite):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "thesis.tex").write_text("years of work")
    (tmp_path / "b").write_text("a file")
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "run.json").write_text("{}")
    (tmp_path / "c").symlink_to(tmp_path / "target")
    with pytest.raises(UsageError, match=r"/a exists and is not a run.*remove that directory yourself"):
        create(tmp_path, "a", overwrite)
    with pytest.raises(UsageError, match=r"/b exists and is not a run.*remove that file yourself"):
        create(tmp_path, "b", overwrite)
    with pytest.raises(UsageError, match="/c exists"):
        create(tmp_path, "c", overwrite)
    assert (tmp_path / "a" / "thesis.tex").read_text() == "years of work"
    assert (tmp_path / "target" / "run.json").exists()


def test_unique_names_get_a_suffix(tmp_path):
    names = [create(tmp_path, unique=True).path.name for _ in range(3)]
    assert names == ["a", "a-2", "a-3"]
    assert RunDirectory.open(tmp_path / "a-3").info()["name"] == "a-3"


def test_a_name_with_a_slash_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"run name '\.\./a' cannot be"):
        create(tmp_path / "runs", "../a")
    assert not (tmp_path / "a").exists()


def test_a_read_only_place(read_only):
    with pytest.raises(UsageError, match=r"cannot make run directory .*/read-only/a: permission denied$"):
        create(read_only)
    with pytest.raises(UsageError, match=r"cannot make run directory .*/read-only/runs/a: permission denied$"):
        create(read_only / "runs")


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "runs").write_text("")
    with pytest.raises(UsageError, match=r"cannot make run directory .*/runs/a: (file exists|not a directory)$"):
        create(tmp_path / "runs")


def test_a_full_disk_leaves_no_half_made_run(tmp_path, file_limit):
    with file_limit(3), pytest.raises(UsageError, match=r"cannot make run directory .*/a: file too large"):
        create(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_opening_what_is_not_a_run(tmp_path):
    with pytest.raises(UsageError, match=r"is not a run directory \(it has no run.json\)"):
        RunDirectory.open(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(UsageError, match=r"cannot read .*run.json: "):
        RunDirectory.open(tmp_path)
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(UsageError, match="is not the record of a run"):
        RunDirectory.open(tmp_path)


def test_the_plan_is_replaced_as_a_whole(tmp_path, file_limit):
    run = create(tmp_path)
    run.write_plan("rollout: [0]\n")
    with file_limit(3), pytest.raises(OSError, match="File too large"):
        run.write_plan("rollout: [0, 1]\n")
    assert run.plan.read_text() == "rollout: [0]\n"
    assert not list(run.path.glob(".plan*"))


def test_two_processes_cannot_work_on_one_run(tmp_path, python):
    run = create(tmp_path)
    run.close()
    holder = python(HOLD, run.path)
    assert holder.stdout.readline() == "1\n"
    in_use = rf"run directory {run.path} is in use by process {holder.pid} on \S+: wait for it to end, or choose"
    with pytest.raises(UsageError, match=in_use), run.attempt([]):
        pass
    with pytest.raises(UsageError, match=in_use):
        create(tmp_path, overwrite=True)
    assert run.info()["status"] == "running"
    assert len(run.info()["attempts"]) == 1
    holder.communicate("\n", timeout=10)
    with run.attempt([]) as attempt:
        assert attempt.number == 2


def test_a_new_run_is_its_process_s_own(tmp_path, python):
    create(tmp_path)
    other = python(HOLD.replace("print(", "print('no', "), tmp_path / "a")
    assert other.wait(10) != 0
    assert other.stdout.read() == ""


def test_a_killed_process_is_no_obstacle(tmp_path, python):
    run = create(tmp_path)
    run.close()
    holder = python(HOLD, run.path)
    holder.stdout.readline()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert run.info()["status"] == "running"
    with run.attempt([]):
        first, second = run.info()["attempts"]
    assert first["exit"] == "killed, or the machine went down"
    assert first["end"] is None
    assert second["number"] == 2


def test_a_child_process_does_not_keep_the_run(tmp_path, python):
    run = create(tmp_path)
    run.close()
    fork = ("import os, time\n    child = os.fork()\n    if child == 0:\n"
            "        sys.stdout.close()\n        time.sleep(20)\n        os._exit(0)\n    ")
    forks = HOLD.replace("print(", fork + "print(child, ")
    holder = python(forks, run.path)
    child = int(holder.stdout.readline().split()[0])
    holder.kill()
    holder.wait()
    try:
        with run.attempt([]) as attempt:
            assert attempt.number == 2
    finally:
        os.kill(child, signal.SIGKILL)


def test_importing_it_is_cheap(python):
    process = python("import sys, rlinf_cli.runs.directory, rlinf_cli.runs.checkpoints, rlinf_cli.runs.metrics\n"
                     "import rlinf_cli.runs.samples, rlinf_cli.runs.progress, rlinf_cli.runs.summary\n"
                     "print(sorted({'torch', 'ray', 'transformers', 'numpy', 'rich'} & set(sys.modules)))")
    assert process.communicate(timeout=10)[0] == "[]\n"


def test_run_json_is_plain_json(tmp_path):
    run = create(tmp_path)
    with run.attempt(sys.argv):
        pass
    assert json.loads((run.path / "run.json").read_text()) == run.info()


def test_who_holds_a_run_can_be_asked_without_a_lock(tmp_path, python):
    assert lock.holder(tmp_path) is None
    run = create(tmp_path)
    run.close()
    assert lock.holder(run.path) is None
    process = python(HOLD, run.path)
    process.stdout.readline()
    assert lock.holder(run.path) == process.pid
    process.communicate("\n", timeout=10)
    assert lock.holder(run.path) is None


def test_a_run_on_a_file_system_that_has_become_read_only(small_disk):
    run = create(small_disk)
    run.close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    before = run.info()
    with pytest.raises(UsageError, match=rf"cannot write to run directory {run.path}: read-only file system"), run.attempt([]):
        pytest.fail("the run began")
    assert run.info() == before
