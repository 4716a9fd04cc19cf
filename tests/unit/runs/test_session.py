"""What `rlinf train` decides before it starts: which run, from where."""

import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.errors import UsageError
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.runs.checkpoints import Checkpoints
from rlinf_cli.runs.directory import RunDirectory
from rlinf_cli.runs.session import open_session, outcome

INSTALLED = load_plugins(None)


@pytest.fixture
def configure(tmp_path, monkeypatch):
    """A `Configure` of these arguments, in an empty directory."""
    monkeypatch.chdir(tmp_path)

    def made(*arguments):
        return lambda before: resolve(list(before), ["cluster.devices=cpu:1", *arguments], {}, INSTALLED)

    return made


@pytest.fixture
def trained(tmp_path, configure):
    """A run of 5 steps with checkpoints of steps 2 and 4."""
    config = configure("steps=5", "seed=7")([])
    directory = RunDirectory.create(tmp_path / "runs", "old", False, config.to_yaml(), {})
    checkpoints = Checkpoints(directory.checkpoints, 2)
    for step in (2, 4):
        with checkpoints.write(step, {"step": step, "tokens": step * 10}) as path:
            (path / "weights").write_text(str(step))
    directory.close()
    return directory.path


def test_a_new_run_has_a_name_that_says_what_it_is(configure, tmp_path):
    session = open_session(configure(), None, "", tmp_path / "runs")
    assert session.resume is None
    assert session.path.name.startswith("grpo-digits-tiny-")
    assert session.plan == "temporal: rollout, reward, actor share cpu:0"


@pytest.mark.parametrize(("reference", "step"), [
    ("runs/old", 4), ("old", 4), ("runs/old/checkpoints/step_000002", 2), ("runs/old/checkpoints/latest", 4),
])
def test_a_run_goes_on_from_its_checkpoint_with_its_own_configuration(configure, trained, tmp_path, reference, step):
    session = open_session(configure(), reference, "", tmp_path / "runs")
    assert session.resume.step == step
    assert session.resume.state["tokens"] == step * 10
    assert (session.prepared.config.seed, session.prepared.config.steps) == (7, 5)


def test_arguments_of_the_resume_win(configure, trained, tmp_path):
    session = open_session(configure("steps=50"), "", "old", tmp_path / "runs")
    assert session.prepared.config.steps == 50


@pytest.mark.parametrize("steps", [3, 4])
def test_a_resume_that_would_train_nothing_is_refused(configure, trained, tmp_path, steps):
    with pytest.raises(UsageError, match=rf"has trained 4 of {steps} steps already: ask for more with --steps N \(N above 4\)"):
        open_session(configure(f"steps={steps}"), "old", "", tmp_path / "runs")


def test_a_resume_needs_to_know_the_run(configure, tmp_path):
    with pytest.raises(UsageError, match="--resume needs to know which run"):
        open_session(configure(), "", "", tmp_path / "runs")


def test_a_run_without_a_checkpoint_cannot_go_on(configure, tmp_path):
    RunDirectory.create(tmp_path / "runs", "fresh", False, configure()([]).to_yaml(), {}).close()
    with pytest.raises(UsageError, match="fresh has no checkpoint to go on from: start it again with --overwrite"):
        open_session(configure(), "fresh", "", tmp_path / "runs")


def test_the_outcome_is_that_of_the_last_tenth():
    rows = [{"step": n, "reward/mean": n / 20, "progress/tokens": 100.0 * n} for n in range(1, 21)]
    assert outcome(rows) == {"first_reward": 0.05, "reward": pytest.approx((0.95 + 1.0) / 2), "tokens": 2000.0}
