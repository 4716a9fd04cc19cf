from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from rlinf_cli.errors import RunError, UsageError
from rlinf_cli.flow.errors import WorkerDiedError, WorkerError
from rlinf_cli.runs.checkpoints import Checkpoint, Checkpoints, open_checkpoint
from rlinf_cli.runs.naming import Reference


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "checkpoints"


def save(checkpoints: Checkpoints, step: int, content: str = "", size: int = 1000) -> None:
    with checkpoints.write(step, {"step": step, "content": content}) as path:
        (path / "model").mkdir()
        (path / "model" / "weights").write_bytes(bytes([step % 256]) * size)
        (path / "model" / "config.json").write_text("{}")
        (path / "optimizer").write_bytes(b"")


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def test_a_checkpoint_holds_what_the_trainer_and_the_run_saved(directory):
    save(Checkpoints(directory), 10, "a")
    latest = Checkpoints(directory).latest()
    assert latest == Checkpoint(directory / "step_000010", 10)
    assert latest.state == {"step": 10, "content": "a"}
    assert (latest.model / "weights").read_bytes() == b"\n" * 1000
    latest.verify(full=True)
    manifest = json.loads((latest.path / "manifest.json").read_text())
    assert manifest["step"] == 10
    assert {name: file["size"] for name, file in manifest["files"].items()} == {
        "model/config.json": 2, "model/weights": 1000, "optimizer": 0,
        "state.json": (latest.path / "state.json").stat().st_size}
    assert names(directory) == ["latest", "step_000010"]


def test_no_checkpoint_yet(directory):
    checkpoints = Checkpoints(directory)
    assert checkpoints.latest() is None
    assert checkpoints.steps() == []
    checkpoints.recover()
    with pytest.raises(UsageError, match=r"no checkpoint of step 3 in .*checkpoints: there is none yet"):
        checkpoints.open(3)
    assert not directory.exists()


def test_the_trainer_gets_an_empty_directory_even_after_a_kill(directory):
    (directory / ".writing-step_000010" / "model").mkdir(parents=True)
    with Checkpoints(directory).write(10, {}) as path:
        assert path.parent == directory
        assert names(path) == []
        (path / "weights").touch()


def test_the_newest_are_kept(directory):
    checkpoints = Checkpoints(directory, keep_last=3)
    for step in range(1, 7):
        save(checkpoints, step)
        assert checkpoints.steps() == list(range(max(1, step - 2), step + 1))
    assert names(directory) == ["latest", "step_000004", "step_000005", "step_000006"]


def test_one_is_kept_by_default_and_at_least(directory):
    save(Checkpoints(directory), 1)
    save(Checkpoints(directory), 2)
    assert Checkpoints(directory).steps() == [2]
    with pytest.raises(ValueError, match="keep_last is 0: at least the latest"):
        Checkpoints(directory, keep_last=0)


def test_more_may_be_kept_than_there_are(directory):
    checkpoints = Checkpoints(directory, keep_last=5)
    for step in range(1, 5):
        save(checkpoints, step)
        assert checkpoints.steps() == list(range(1, step + 1))


def test_steps_beyond_six_digits_sort(directory):
    checkpoints = Checkpoints(directory, keep_last=2)
    for step in (999_999, 1_000_000, 1_000_001):
        save(checkpoints, step)
    assert checkpoints.steps() == [1_000_000, 1_000_001]
    assert checkpoints.latest().step == 1_000_001


def test_an_unknown_step_lists_those_there_are(directory):
    checkpoints = Checkpoints(directory, keep_last=2)
    save(checkpoints, 10)
    save(checkpoints, 20)
    assert checkpoints.open(10).state["step"] == 10
    with pytest.raises(UsageError, match=r"no checkpoint of step 7 in .*: there are steps 10, 20$"):
        checkpoints.open(7)


def test_writing_the_same_step_again_replaces_it(directory):
    checkpoints = Checkpoints(directory)
    save(checkpoints, 10, "old")
    save(checkpoints, 10, "new")
    assert checkpoints.latest().state["content"] == "new"
    assert names(directory) == ["latest", "step_000010"]


def test_going_on_from_an_older_one_discards_the_branch_after_it(directory):
    checkpoints = Checkpoints(directory, keep_last=3)
    for step in (10, 20, 30):
        save(checkpoints, step, "old")
    again = Checkpoints(directory, keep_last=3)
    again.rewind(10)
    assert again.latest().step == 10
    assert again.steps() == [10, 20, 30]
    save(again, 25, "new")
    assert again.steps() == [10, 25]
    assert again.latest().state["content"] == "new"


def test_a_crash_after_going_back_does_not_return_to_the_old_branch(directory):
    checkpoints = Checkpoints(directory, keep_last=3)
    for step in (10, 20, 30):
        save(checkpoints, step, "old")
    Checkpoints(directory, keep_last=3).rewind(10)
    fresh = Checkpoints(directory, keep_last=3)
    fresh.recover()
    fresh.rewind(fresh.latest().step)
    save(fresh, 20, "new")
    assert fresh.steps() == [10, 20]
    assert fresh.latest().state["content"] == "new"


def test_going_on_from_a_step_that_is_not_there(directory):
    save(Checkpoints(directory), 10)
    with pytest.raises(UsageError, match="no checkpoint of step 5"):
        Checkpoints(directory).rewind(5)
    assert Checkpoints(directory).latest().step == 10


def test_what_a_killed_process_left_is_cleared(directory):
    checkpoints = Checkpoints(directory, keep_last=2)
    save(checkpoints, 10)
    for left in (".writing-step_000020", ".removed-step_000005", ".replaced-step_000010"):
        shutil.copytree(directory / "step_000010", directory / left)
    checkpoints.recover()
    assert names(directory) == ["latest", "step_000010"]


def test_without_the_pointer_the_newest_counts(directory):
    checkpoints = Checkpoints(directory, keep_last=2)
    save(checkpoints, 10)
    save(checkpoints, 20)
    (directory / "latest").unlink()
    assert checkpoints.latest().step == 20


def test_a_copied_run_still_loads(directory, tmp_path):
    checkpoints = Checkpoints(directory, keep_last=2)
    save(checkpoints, 10)
    save(checkpoints, 20)
    shutil.copytree(directory, tmp_path / "copy" / "checkpoints")
    latest = Checkpoints(tmp_path / "copy" / "checkpoints").latest()
    assert latest.step == 20
    latest.verify(full=True)


# --- the best


def score(checkpoints: Checkpoints, step: int, **metrics: float | None) -> None:
    with checkpoints.write(step, {"metrics": {f"reward/{name}": value for name, value in metrics.items()}}) as path:
        (path / "weights").touch()


def test_the_best_is_kept_beside_the_newest(directory):
    checkpoints = Checkpoints(directory, keep_last=2, best="reward/mean")
    for step, reward in enumerate([0.1, 0.9, 0.3, 0.4, 0.9, 0.2], 1):
        score(checkpoints, step, mean=reward)
    assert checkpoints.steps() == [2, 5, 6]
    assert checkpoints.best_step() == 2
    assert checkpoints.latest().step == 6
    score(checkpoints, 7, mean=0.91)
    assert checkpoints.steps() == [6, 7]
    assert checkpoints.best_step() == 7
    assert (directory / "best").read_text() == "step_000007\n"


def test_less_may_be_better(directory):
    checkpoints = Checkpoints(directory, best="-reward/errors")
    for step, errors in enumerate([4.0, 0.0, 2.0], 1):
        score(checkpoints, step, errors=errors)
    assert checkpoints.steps() == [2, 3]
    assert checkpoints.best_step() == 2


def test_only_steps_that_have_the_metric_count(directory):
    checkpoints = Checkpoints(directory, best="reward/mean")
    score(checkpoints, 1)
    assert checkpoints.best_step() is None
    score(checkpoints, 2, mean=0.2)
    score(checkpoints, 3, mean=None)
    score(checkpoints, 4, other=9.0)
    assert checkpoints.best_step() == 2
    assert checkpoints.steps() == [2, 4]


def test_another_metric_is_judged_by_what_is_there(directory):
    first = Checkpoints(directory, keep_last=2, best="reward/mean")
    for step, (mean, low) in enumerate([(0.9, 0.0), (0.1, 0.5), (0.2, 0.1)], 1):
        score(first, step, mean=mean, min=low)
    assert first.best_step() == 1
    again = Checkpoints(directory, keep_last=2, best="reward/min")
    score(again, 4, mean=0.0, min=0.2)
    assert again.best_step() == 2
    assert again.steps() == [2, 3, 4]
    none = Checkpoints(directory, keep_last=2)
    score(none, 5, mean=0.0, min=0.0)
    assert none.best_step() is None
    assert none.steps() == [4, 5]
    assert names(directory) == ["latest", "step_000004", "step_000005"]


def test_the_best_of_a_branch_that_was_left_is_not_the_best(directory):
    checkpoints = Checkpoints(directory, keep_last=3, best="reward/mean")
    for step, reward in [(10, 0.5), (20, 0.9), (30, 0.6)]:
        score(checkpoints, step, mean=reward)
    again = Checkpoints(directory, keep_last=3, best="reward/mean")
    again.rewind(10)
    score(again, 15, mean=0.4)
    assert again.steps() == [10, 15]
    assert again.best_step() == 10


def test_a_best_whose_state_is_damaged_does_not_stop_the_run(directory):
    checkpoints = Checkpoints(directory, best="reward/mean")
    score(checkpoints, 1, mean=0.9)
    (directory / "step_000001" / "state.json").write_text("{")
    score(checkpoints, 2, mean=0.1)
    assert checkpoints.best_step() == 2


def test_a_full_disk_spares_the_best(directory, file_limit):
    checkpoints = Checkpoints(directory, best="reward/mean")
    for step, reward in [(1, 0.9), (2, 0.1)]:
        score(checkpoints, step, mean=reward)
    with file_limit(10), pytest.raises(RunError, match="step_000003: file too large"):
        score(checkpoints, 3, mean=1.0)
    assert checkpoints.best_step() == 1
    assert checkpoints.open(1, full=True).score("reward/mean") == 0.9


# --- what a user points at


def test_the_checkpoint_that_was_pointed_at(directory):
    checkpoints = Checkpoints(directory, keep_last=2)
    for step in (10, 20):
        save(checkpoints, step)
    assert open_checkpoint(Reference(directory.parent)).step == 20
    assert open_checkpoint(Reference(directory.parent, 10), full=True).step == 10
    with pytest.raises(UsageError, match=r"no checkpoint of step 15 in .*: there are steps 10, 20"):
        open_checkpoint(Reference(directory.parent, 15))


def test_a_run_without_a_checkpoint_says_when_there_is_one(tmp_path):
    with pytest.raises(UsageError, match=r"has no checkpoint yet: one is written every checkpoint\.every steps and at the end"):
        open_checkpoint(Reference(tmp_path))
    with pytest.raises(UsageError, match=r"has no checkpoint yet: go away$"):
        open_checkpoint(Reference(tmp_path), otherwise="go away")


# --- damage


def cut_short(checkpoint):
    os.truncate(checkpoint.model / "weights", 999)


def grown(checkpoint):
    with open(checkpoint.model / "weights", "ab") as file:
        file.write(b"x")


def missing(checkpoint):
    (checkpoint.path / "optimizer").unlink()


def additional(checkpoint):
    (checkpoint.path / "model" / "notes.txt").write_text("x")


def other_state(checkpoint):
    text = (checkpoint.path / "state.json").read_text()
    (checkpoint.path / "state.json").write_text(text.replace("20", "21"))


def no_manifest(checkpoint):
    (checkpoint.path / "manifest.json").unlink()


def broken_manifest(checkpoint):
    os.truncate(checkpoint.path / "manifest.json", 20)


def foreign_manifest(checkpoint):
    (checkpoint.path / "manifest.json").write_text('{"files": {"model/weights": 7}}')


@pytest.mark.parametrize(("damage", "words"), [
    (cut_short, "model/weights has 999 bytes instead of 1000"),
    (grown, "model/weights has 1001 bytes instead of 1000"),
    (missing, "optimizer is missing"),
    (additional, "model/notes.txt does not belong to it"),
    (other_state, "state.json has other content than was written"),
    (no_manifest, "manifest.json cannot be read (no such file or directory)"),
    (broken_manifest, "manifest.json cannot be read ("),
    (foreign_manifest, "manifest.json cannot be read (not a manifest)"),
])
def test_damage_of_the_latest_is_named_with_a_way_out(directory, damage, words):
    checkpoints = Checkpoints(directory, keep_last=3)
    for step in (5, 10, 20):
        save(checkpoints, step)
    damage(checkpoints.latest())
    way_out = f"; go on from {directory / 'step_000010'}, which is complete"
    with pytest.raises(UsageError) as error:
        checkpoints.latest()
    assert str(error.value).startswith(f"checkpoint {directory / 'step_000020'} is damaged: {words}")
    assert str(error.value).endswith(way_out)
    with pytest.raises(UsageError, match=re.escape(words)):
        checkpoints.open(20)
    assert checkpoints.open(10).step == 10


def test_all_damage_is_named_at_once(directory):
    checkpoints = Checkpoints(directory)
    save(checkpoints, 20)
    for damage in (cut_short, missing, additional):
        damage(Checkpoint(directory / "step_000020", 20))
    with pytest.raises(UsageError) as error:
        checkpoints.latest()
    assert str(error.value).endswith("is damaged: optimizer is missing; model/notes.txt does not belong to it; "
                                     "model/weights has 999 bytes instead of 1000; no other one is complete")


def test_altered_content_of_a_large_file_shows_in_a_full_check(directory):
    checkpoints = Checkpoints(directory)
    save(checkpoints, 20, size=3 << 20)
    latest = checkpoints.latest()
    with open(latest.model / "weights", "r+b") as file:
        file.seek(2 << 20)
        file.write(b"x")
    latest.verify()
    for check in (latest.verify, checkpoints.latest, lambda full: checkpoints.open(20, full)):
        with pytest.raises(UsageError, match=r"step_000020 is damaged: model/weights has other content than was written"):
            check(full=True)


def test_a_full_check_recommends_only_what_is_whole(directory):
    checkpoints = Checkpoints(directory, keep_last=3)
    for step in (10, 20, 30):
        save(checkpoints, step, size=2 << 20)
    for step in (20, 30):
        with open(directory / f"step_{step:06d}" / "model" / "weights", "r+b") as file:
            file.write(b"x")
    with pytest.raises(UsageError, match=r"go on from .*/step_000010, which is complete"):
        checkpoints.latest(full=True)


def test_a_latest_that_was_removed_by_hand(directory):
    checkpoints = Checkpoints(directory, keep_last=2)
    save(checkpoints, 10)
    save(checkpoints, 20)
    shutil.rmtree(directory / "step_000020")
    with pytest.raises(UsageError, match=r"step_000020 is missing; go on from .*/step_000010, which is complete"):
        checkpoints.latest()


def test_a_pointer_to_nowhere(directory):
    checkpoints = Checkpoints(directory)
    save(checkpoints, 10)
    (directory / "latest").write_text("step_banana\n")
    with pytest.raises(UsageError, match=r"latest does not hold the name of a checkpoint; go on from .*/step_000010"):
        checkpoints.latest()


# --- failures while writing


def save_and_raise(checkpoints: Checkpoints, error: BaseException) -> None:
    with checkpoints.write(20, {}) as path:
        (path / "model").mkdir()
        raise error


@pytest.mark.parametrize("error", [
    ValueError("shape"), KeyboardInterrupt(), WorkerDiedError("actor", 0, "node-0", "save", "signal 9")])
def test_an_exception_in_the_body_passes_and_leaves_nothing(directory, error):
    checkpoints = Checkpoints(directory)
    save(checkpoints, 10)
    with pytest.raises(type(error)) as caught:
        save_and_raise(checkpoints, error)
    assert caught.value is error
    assert names(directory) == ["latest", "step_000010"]
    checkpoints.latest().verify(full=True)


def test_a_state_that_is_no_json_is_refused_before_anything_is_written(directory):
    with pytest.raises(TypeError, match="not JSON serializable"), Checkpoints(directory).write(1, {"x": object()}):
        pytest.fail("the body ran")
    with pytest.raises(ValueError, match="JSON compliant"), Checkpoints(directory).write(1, {"x": float("nan")}):
        pytest.fail("the body ran")
    assert not directory.exists()


@pytest.mark.parametrize("error", [
    OSError(28, "No space left on device"),
    RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
    WorkerError("actor", 0, "node-0", "save", "SafetensorError: No space left on device (os error 28)", ""),
])
def test_a_full_disk_is_one_sentence_however_it_is_reported(directory, error):
    checkpoints = Checkpoints(directory)
    save(checkpoints, 10)
    with pytest.raises(RunError) as caught:
        save_and_raise(checkpoints, error)
    assert str(caught.value) == (f"cannot write checkpoint {directory / 'step_000020'}: no space left on device; "
                                 f"the one before it, {directory / 'step_000010'}, is complete")
    assert caught.value.__cause__ is error
    assert names(directory) == ["latest", "step_000010"]


@pytest.mark.parametrize("limit", [10, 200, 999])
def test_a_file_that_may_not_grow(directory, file_limit, limit):
    checkpoints = Checkpoints(directory)
    save(checkpoints, 10)
    with file_limit(limit), pytest.raises(RunError, match=r"step_000020: file too large; the one before it"):
        save(checkpoints, 20)
    assert names(directory) == ["latest", "step_000010"]
    checkpoints.latest().verify(full=True)


def test_the_first_checkpoint_of_all_fails(directory, file_limit):
    with file_limit(10), pytest.raises(RunError, match=r"step_000020: file too large$"):
        save(Checkpoints(directory), 20)
    assert names(directory) == []


@pytest.mark.parametrize("size", [150_000, 400_000, 600_000])
def test_a_full_file_system(small_disk, size):
    directory = small_disk / "checkpoints"
    checkpoints = Checkpoints(directory, keep_last=100)
    fit = (1 << 20) // (size + 17_000)
    for step in range(1, fit + 1):
        save(checkpoints, step, size=size)
    for _ in range(2):
        with pytest.raises(RunError, match=r"no space left on device; the one before it"):
            save(checkpoints, fit + 1, size=size)
        assert checkpoints.latest().step == fit
        assert names(directory) == ["latest", *(f"step_{step:06d}" for step in range(1, fit + 1))]
    for step in checkpoints.steps():
        checkpoints.open(step).verify(full=True)


def test_writers_that_hide_the_reason_on_a_full_file_system(small_disk):
    import torch

    checkpoints = Checkpoints(small_disk / "checkpoints")
    save(checkpoints, 10)
    with (pytest.raises(RunError, match=r"no space left on device; the one before it") as caught,
          checkpoints.write(20, {}) as path):
        torch.save({"x": torch.zeros(1 << 20)}, path / "optimizer.pt")
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert checkpoints.latest().step == 10


@pytest.mark.parametrize(("call", "calls"), [("rename", 2), ("replace", 1), ("fsync", 10)])
@pytest.mark.parametrize("when", range(11))
def test_whatever_system_call_fails_the_latest_loads(directory, monkeypatch, call, calls, when):
    checkpoints = Checkpoints(directory)
    save(checkpoints, 10, "old")
    real, left = getattr(os, call), [when]

    def failing(*args):
        left[0] -= 1
        if left[0] == -1:
            raise OSError(5, "Input/output error")
        return real(*args)

    with monkeypatch.context() as patched:
        patched.setattr(os, call, failing)
        with contextlib.suppress(RunError) if when < calls else contextlib.nullcontext():
            save(checkpoints, 10, "new")
        assert (left[0] < 0) == (when < calls)
    latest = Checkpoints(directory).latest()
    latest.verify(full=True)
    assert latest.state["content"] in ("old", "new")
    checkpoints.recover()
    save(checkpoints, 20)
    assert names(directory) == ["latest", "step_000020"]


def test_a_run_directory_that_has_vanished_is_not_made_again(tmp_path):
    checkpoints = Checkpoints(tmp_path / "run" / "checkpoints")
    (tmp_path / "run").mkdir()
    save(checkpoints, 10)
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(RunError, match=r"cannot write checkpoint .*step_000020: no such file or directory$"):
        save(checkpoints, 20)
    assert not (tmp_path / "run").exists()


# --- what must be on the disk before what


def test_everything_is_on_the_disk_before_it_counts(directory, monkeypatch):
    checkpoints = Checkpoints(directory)
    save(checkpoints, 10)
    events = []
    real_fsync, real_rename, real_replace = os.fsync, os.rename, os.replace

    def fsync(descriptor):
        events.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))
        real_fsync(descriptor)

    def rename(source, target):
        events.append(("rename", Path(target).name))
        real_rename(source, target)

    def replace(source, target):
        events.append(("replace", Path(target).name))
        real_replace(source, target)

    for name, function in (("fsync", fsync), ("rename", rename), ("replace", replace)):
        monkeypatch.setattr(os, name, function)
    save(checkpoints, 20)
    published = events.index(("rename", "step_000020"))
    synced = {name for kind, name in events[:published] if kind == "sync"}
    assert synced == {"weights", "config.json", "optimizer", "state.json", "manifest.json", "model",
                      ".writing-step_000020"}
    assert events[published + 1 :] == [("sync", "checkpoints"), ("sync", ".latest.tmp"), ("replace", "latest"),
                                       ("sync", "checkpoints"), ("rename", ".removed-step_000010")]


def test_several_can_be_filled_at_once_and_count_in_their_own_time(directory):
    checkpoints = Checkpoints(directory, 9)
    for step in (2, 4):
        (checkpoints.begin(step) / "weights").write_text(str(step))
    assert checkpoints.steps() == []
    checkpoints.commit(2, {"step": 2})
    assert (checkpoints.latest(full=True).step, checkpoints.steps()) == (2, [2])
    checkpoints.commit(4, {"step": 4})
    assert (checkpoints.latest(full=True).step, checkpoints.steps()) == (4, [2, 4])


def test_what_was_begun_and_never_complete_leaves_nothing_behind(directory):
    checkpoints = Checkpoints(directory)
    checkpoints.begin(2)
    checkpoints.recover()
    assert list(directory.iterdir()) == []
    (checkpoints.begin(2) / "weights").write_text("again")
    (checkpoints.begin(2) / "other").write_text("once more")  # empty each time
    checkpoints.commit(2, {})
    assert not (checkpoints.latest().path / "weights").exists()


def test_a_trainer_that_writes_elsewhere_makes_no_checkpoint(directory):
    checkpoints = Checkpoints(directory)
    save(checkpoints, 10)
    checkpoints.begin(20)
    with pytest.raises(RunError, match=r"nothing has come of .*step_000020: .* file system that the actor's node shares"):
        checkpoints.commit(20, {})
    assert names(directory) == ["latest", "step_000010"]


@pytest.mark.parametrize(("damaged", "newest"), [((), 6), ((6,), 4), ((4, 6), 2), ((2, 4, 6), None)])
def test_the_newest_that_is_complete(directory, damaged, newest):
    checkpoints = Checkpoints(directory, 9)
    assert checkpoints.newest() is None
    for step in (2, 4, 6):
        with checkpoints.write(step, {}) as path:
            (path / "weights").write_text("abc")
    for step in damaged:
        (checkpoints.open(step).path / "weights").write_text("xyz")
    found = checkpoints.newest()
    assert (found and found.step) == newest


def test_what_lies_behind_where_the_run_went_back_to_is_none_of_its_own(directory):
    checkpoints = Checkpoints(directory, 9)
    for step in (2, 4, 6):
        with checkpoints.write(step, {}) as path:
            (path / "weights").touch()
    checkpoints.rewind(4)
    assert checkpoints.newest().step == 4
