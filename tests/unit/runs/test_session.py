"""What `rlinf train` decides before it starts: which run, from where."""

import json
import os
import pickle

import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.errors import RunError, UsageError
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.runs.checkpoints import Checkpoints
from rlinf_cli.runs.directory import RunDirectory
from rlinf_cli.runs.session import _open_directory, open_session, outcome
from rlinf_cli.runs.state import RunState

INSTALLED = load_plugins(None)


@pytest.fixture
def configure(tmp_path, monkeypatch):
    """A `Configure` of these arguments, in an empty directory."""
    monkeypatch.chdir(tmp_path)

    def made(*arguments):
        return lambda before: resolve([], ["cluster.devices=cpu:1", *arguments], {}, INSTALLED, before)

    return made


@pytest.fixture
def trained(tmp_path, configure):
    """A run of 5 steps, called old, with checkpoints of steps 2 (the best) and 4."""
    session = open_session(configure("steps=5", "seed=7", "name=old", "trainer.schedule=constant"), None, "", tmp_path / "runs")
    directory, _ = _open_directory(session, False)
    checkpoints = Checkpoints(directory.checkpoints, 2, "reward/mean")
    for step in (2, 4):
        state = RunState(step, step * 10, step * 128, step, 16, session.prepared.fingerprint, {"reward/mean": 1 / step})
        with checkpoints.write(step, state.to_json()) as path:
            (path / "model").mkdir()
            (path / "model" / "weights").write_bytes(bytes([step]) * (2 << 20))
    for path, lines in ((directory.metrics, 1), (directory.samples, 3)):
        path.write_text("".join(json.dumps({"step": step, "time": 1.0, "reward/mean": step / 10}) + "\n"
                                for step in range(1, 5) for _ in range(lines)) + '{"step": 5, "ti')
    directory.close()
    return directory.path


def contents(directory):
    return {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_new_run_has_a_name_that_says_what_it_is(configure, tmp_path):
    session = open_session(configure(), None, "", tmp_path / "runs")
    assert session.resume is None
    assert session.path.name.startswith("grpo-digits-tiny-")
    assert session.plan == "temporal: rollout, reward, actor share cpu:0"


@pytest.mark.parametrize(("reference", "step"), [
    ("runs/old", 4), ("old", 4), ("runs/old/checkpoints/step_000002", 2), ("runs/old/checkpoints/latest", 4),
    ("old@2", 2), ("old@best", 2), ("runs/old@latest", 4),
])
def test_a_run_goes_on_from_its_checkpoint_with_its_own_configuration(configure, trained, tmp_path, reference, step):
    session = open_session(configure(), reference, "", tmp_path / "runs")
    assert session.resume.step == step
    assert session.resume.state["tokens"] == step * 10
    assert (session.prepared.config.seed, session.prepared.config.steps) == (7, 5)


def test_arguments_of_the_resume_win(configure, trained, tmp_path):
    session = open_session(configure("steps=50"), "", "old", tmp_path / "runs")
    assert session.prepared.config.steps == 50
    assert session.notes == ("steps 5 → 50",)


def test_a_resume_as_it_was_has_nothing_to_say(configure, trained, tmp_path):
    assert open_session(configure(), "old", "", tmp_path / "runs").notes == ()


def test_other_steps_under_a_schedule_are_said_to_be_another_course(configure, trained, tmp_path):
    session = open_session(configure("steps=50", "trainer.schedule=cosine"), "old", "", tmp_path / "runs")
    assert session.notes == (
        "steps 5 → 50, trainer.schedule constant → cosine",
        "the cosine schedule of the learning rate ends at step 50, so the steps from here on are not those of a run without "
        "a stop")


@pytest.mark.parametrize("steps", [3, 4])
def test_a_resume_that_would_train_nothing_is_refused(configure, trained, tmp_path, steps):
    with pytest.raises(UsageError, match=rf"has trained 4 of {steps} steps already: ask for more with --steps N \(N above 4\)"):
        open_session(configure(f"steps={steps}"), "old", "", tmp_path / "runs")


def test_a_resume_needs_to_know_the_run(configure, tmp_path):
    with pytest.raises(UsageError, match="--resume needs to know which run"):
        open_session(configure(), "", "", tmp_path / "runs")


def test_a_run_without_a_checkpoint_cannot_go_on(configure, tmp_path):
    RunDirectory.create(tmp_path / "runs", "fresh", False, configure()([]).to_yaml(), {}).close()
    with pytest.raises(UsageError, match="fresh has no checkpoint yet: start it again with --overwrite"):
        open_session(configure(), "fresh", "", tmp_path / "runs")


def test_settings_of_what_a_fork_no_longer_uses_are_left_behind(configure, trained, tmp_path):
    (tmp_path / "other.jsonl").write_text('{"prompt": "d1=", "answer": "1"}\n')
    config = open_session(configure("data.name=other.jsonl", "name=new"), None, "new", tmp_path / "runs", "old").prepared.config
    assert (config.data.name, config.seed, config.settings("data")) == ("other.jsonl", 7, None)
    with pytest.raises(UsageError, match=r"'data.length' \(from the command line\) belongs to dataset digits"):
        open_session(configure("data.name=other.jsonl", "data.length=3"), None, "new", tmp_path / "runs", "old")


# --- what must not be gone on from


def other_data(run):
    state = run / "checkpoints/step_000004/state.json"
    known = json.loads(state.read_text())
    with Checkpoints(run / "checkpoints", 2).write(4, known | {"data": "another"}) as path:
        (path / "model").mkdir()


def altered(run):
    with open(run / "checkpoints/step_000004/model/weights", "r+b") as file:
        file.seek(1 << 20)
        file.write(b"x")


def cut_short(run):
    os.truncate(run / "checkpoints/step_000004/model/weights", 1 << 20)


class Harmful:
    def __reduce__(self):
        return os.mkdir, ("a-pickle-was-run",)


def pickled_optimizer(run):
    (run / "checkpoints/step_000004/optimizer.pt").write_bytes(pickle.dumps(Harmful()))


def pickled_weights(run):
    (run / "checkpoints/step_000004/model/weights").write_bytes(pickle.dumps(Harmful()))


@pytest.mark.parametrize(("damage", "said"), [
    (other_data, r"the data is not what .*old was trained on up to step 4 \(data.name=digits has another content, or was "
                 r"generated differently\): put it back, or .* rlinf train --fork .*old@4$"),
    (altered, r"step_000004 is damaged: model/weights has other content than was written; go on from .*step_000002, which is"),
    (cut_short, r"step_000004 is damaged: model/weights has 1048576 bytes instead of 2097152; go on from .*step_000002"),
    (pickled_optimizer, r"step_000004 is damaged: optimizer.pt does not belong to it; go on from"),
    (pickled_weights, r"step_000004 is damaged: model/weights has \d+ bytes instead of 2097152; go on from"),
])
def test_what_a_resume_is_refused_for(configure, trained, tmp_path, damage, said):
    damage(trained)
    before = contents(trained)
    with pytest.raises(UsageError, match=said):
        open_session(configure(), "old", "", tmp_path / "runs")
    assert contents(trained) == before
    assert not (tmp_path / "a-pickle-was-run").exists()


def test_a_run_that_has_vanished(configure, trained, tmp_path):
    session = open_session(configure(), "old", "", tmp_path / "runs")
    trained.rename(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="is not a run directory"):
        _open_directory(session, False)
    with pytest.raises(UsageError, match="no run 'old'"):
        open_session(configure(), "old", "", tmp_path / "runs")


# --- forks


def test_a_fork_is_a_new_run_that_begins_where_the_other_was(configure, trained, tmp_path):
    before = contents(trained)
    session = open_session(configure("name=new", "trainer.lr=0.5"), None, "", tmp_path / "runs", "old@2")
    directory, resume = _open_directory(session, False)
    assert (directory.path.name, resume.step, resume.path) == ("new", 2, directory.checkpoints / "step_000002")
    assert directory.info()["parent"] == {"run": str(trained.resolve()), "step": 2}
    assert [json.loads(line)["step"] for line in directory.metrics.read_text().splitlines()] == [1, 2]
    assert [json.loads(line)["step"] for line in directory.samples.read_text().splitlines()] == [1, 1, 1, 2, 2, 2]
    resume.verify(full=True)
    assert RunState.of(resume.state) == RunState(2, 20, 256, 2, 16, session.prepared.fingerprint, {"reward/mean": 0.5})
    assert (resume.model / "weights").read_bytes() == b"\2" * (2 << 20)
    assert session.notes[0].startswith("trainer.lr ")
    assert "name: new" in directory.config.read_text()
    assert contents(trained) == before
    directory.close()
    assert open_session(configure(), "new", "", tmp_path / "runs").resume.step == 2


def test_a_fork_gets_a_name_of_its_own(configure, trained, tmp_path):
    for name in ("old-fork", "old-fork-2"):
        directory, _ = _open_directory(open_session(configure(), None, "", tmp_path / "runs", "old"), False)
        assert directory.path.name == name
        directory.close()


def test_a_fork_cannot_replace_its_parent(configure, trained, tmp_path):
    with pytest.raises(UsageError, match=r"a fork is a run of its own, beside .*old: give it another --name"):
        open_session(configure("name=old"), None, "old", tmp_path / "runs", "old")


def test_a_fork_with_other_data_begins_it_anew(configure, trained, tmp_path):
    (tmp_path / "other.jsonl").write_text('{"prompt": "d1=", "answer": "1"}\n')
    session = open_session(configure("name=new", "data.name=other.jsonl"), None, "new", tmp_path / "runs", "old")
    directory, resume = _open_directory(session, False)
    directory.close()
    state = RunState.of(resume.state)
    assert (state.step, state.tokens, state.batches, state.data) == (4, 40, 0, session.prepared.fingerprint)
    (tmp_path / "other.jsonl").write_text('{"prompt": "d2=", "answer": "2"}\n')
    with pytest.raises(UsageError, match=r"the data is not what .*new was trained on up to step 4"):
        open_session(configure(), "new", "", tmp_path / "runs")


def test_a_fork_that_cannot_be_written_leaves_nothing(configure, trained, tmp_path, file_limit):
    session = open_session(configure("name=new"), None, "new", tmp_path / "runs", "old")
    with file_limit(1 << 20), pytest.raises(RunError, match="file too large"):
        _open_directory(session, False)
    assert not (tmp_path / "runs/new").exists()


def test_a_fork_must_have_steps_to_do(configure, trained, tmp_path):
    with pytest.raises(UsageError, match="has trained 4 of 3 steps already"):
        open_session(configure("steps=3", "name=new"), None, "new", tmp_path / "runs", "old")


def test_a_fork_of_a_damaged_checkpoint_is_refused(configure, trained, tmp_path):
    altered(trained)
    with pytest.raises(UsageError, match="step_000004 is damaged"):
        open_session(configure("name=new"), None, "new", tmp_path / "runs", "old")
    assert open_session(configure("name=new"), None, "new", tmp_path / "runs", "old@2").resume.step == 2


def test_resume_and_fork_contradict_each_other(configure, trained, tmp_path):
    with pytest.raises(UsageError, match="--resume and --fork contradict each other"):
        open_session(configure(), "old", "", tmp_path / "runs", "old")


def test_resume_and_overwrite_contradict_each_other(configure, trained, tmp_path):
    with pytest.raises(UsageError, match="--overwrite and --resume contradict each other"):
        _open_directory(open_session(configure(), "old", "", tmp_path / "runs"), True)


def test_the_outcome_is_that_of_the_last_tenth():
    rows = [{"step": n, "reward/mean": n / 20, "progress/tokens": 100.0 * n} for n in range(1, 21)]
    assert outcome([{"step": 1, "progress/tokens": 3.0}]) == {"tokens": 3.0}
    assert outcome(rows) == {"first_reward": 0.05, "reward": pytest.approx((0.95 + 1.0) / 2), "tokens": 2000.0}


def test_the_outcome_of_a_run_without_rewards_is_its_loss():
    rows = [{"step": n, "actor/loss": 1 / n, "progress/tokens": 100.0 * n} for n in range(1, 5)]
    assert outcome(rows) == {"first_loss": 1.0, "loss": 0.25, "tokens": 400.0}
