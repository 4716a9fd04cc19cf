"""What a user may point at, to evaluate it or to generate with it."""

import shutil

import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.errors import UsageError
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.runs.checkpoints import Checkpoints
from rlinf_cli.runs.directory import RunDirectory
from rlinf_cli.runs.reference import find_policy
from rlinf_models.tiny import TinyModel


@pytest.fixture(scope="session")
def plugins():
    return load_plugins(third_party=False)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tiny")
    TinyModel("digits", 0).build(directory)
    return directory


@pytest.fixture
def find(tmp_path, monkeypatch, plugins, tiny):
    """In a directory with the runs `a` (checkpoints of steps 10 and 20) and `fresh`, and a model in `models/mine`."""
    monkeypatch.chdir(tmp_path)
    RunDirectory.create(tmp_path / "runs", "fresh", False, "", {}).close()
    run = RunDirectory.create(tmp_path / "runs", "a", False, "steps: 30\n", {})
    for step in (10, 20):
        with Checkpoints(run.checkpoints, keep_last=2).write(step, {}) as path:
            shutil.copytree(tiny, path / "model")
    run.close()
    shutil.copytree(tiny, tmp_path / "models" / "mine")
    return lambda name: find_policy(name, plugins)


@pytest.mark.parametrize(("name", "step", "label"), [
    ("a", 20, "runs/a, step 20"), ("runs/a", 20, "runs/a, step 20"), ("a@10", 10, "runs/a, step 10"),
    ("runs/a/checkpoints/step_000010", 10, "runs/a, step 10")])
def test_a_checkpoint_of_a_run(find, plugins, name, step, label):
    found = find(name)
    assert (found.checkpoint.step, found.label) == (step, label)
    assert [str(file) for file in found.files] == ["runs/a/config.yaml"]
    config = found.told(resolve(found.files, [], {}, plugins), plugins)
    assert config.steps == 30
    assert config.model.name.endswith(f"runs/a/checkpoints/step_{step:06d}/model")
    assert str(found.directory(config, plugins).resolve()) == config.model.name


@pytest.mark.parametrize("name", ["tiny:digits", "models/mine", "./models/mine", "HuggingFaceTB/SmolLM2-135M"])
def test_a_model(find, name):
    found = find(name)
    assert (found.run, found.checkpoint, found.files, found.label) == (None, None, [], name)


def test_the_model_of_a_checkpoint_is_a_model(find):
    assert find("runs/a/checkpoints/step_000010/model").checkpoint is None


def test_a_model_of_a_plugin_comes_before_a_run_of_its_name(find, tmp_path):
    RunDirectory.create(tmp_path / "runs", "tiny", False, "", {}).close()
    assert find("tiny:digits").run is None
    with pytest.raises(UsageError, match="run runs/tiny has no checkpoint yet"):
        find("runs/tiny")


@pytest.mark.parametrize(("name", "words"), [
    ("fresh", "run runs/fresh has no checkpoint yet"),
    ("a@15", "no checkpoint of step 15 in runs/a/checkpoints: there are steps 10, 20"),
    ("a@best", "runs/a has no best checkpoint"),
    ("b@10", "no run 'b'"),
    ("runs/b", "no run 'runs/b'"),
    ("frseh", "no run 'frseh': it is neither a run directory nor the name of a run in runs/. Did you mean fresh?; and model"),
    ("tiny:digit", "digits"),
    ("models/mime", "did you mean 'models/mine'"),
])
def test_what_is_neither_is_one_sentence(find, name, words):
    with pytest.raises(UsageError) as told:
        find(name)
    assert words in str(told.value)


def test_a_damaged_checkpoint_is_not_used(find, tmp_path):
    (tmp_path / "runs/a/checkpoints/step_000020/model/config.json").write_text("{}")
    with pytest.raises(UsageError, match=r"step_000020 is damaged: model/config.json"):
        find("a")
