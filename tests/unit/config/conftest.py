import sys
from pathlib import Path

import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.errors import RlinfError
from rlinf_cli.plugins.extension import Extension
from rlinf_cli.plugins.registry import Offer, PluginInfo, Plugins

sys.path.append(str(Path(__file__).parent))  # where `config_test_plugin` is, which the extensions name


def extension(name, config="", preset=None, requires=()):
    reference = f"config_test_plugin:{config}" if config else ""
    return Extension(name, target="nowhere:Nothing", config=reference, preset=preset or {}, requires=requires)


BUILT_IN = {
    "workflow": [extension("reasoning")],
    "algorithm": [extension("grpo", "Grpo"), extension("sft")],
    "engine": [extension("torch", "Slots"), extension("remote")],
    "trainer": [extension("torch", "Torch"), extension("other")],
    "dataset": [extension("digits", preset={"rollout.max_new_tokens": 3, "rollout.prompts": 4}), extension("sums")],
    "model": [
        extension("tiny", preset={"trainer.lr": 1e-3, "rollout.prompts": 6, "engine.slots": 8}),
        extension("big", requires=("surely-not-installed",)),
    ],
    "reward": [extension("exact"), extension("judge", "Judge")],
}


def registry(more=()):
    """The extensions above and `more` (kind, extension) pairs of another distribution."""
    offers = tuple(Offer(kind, one) for kind, extensions in BUILT_IN.items() for one in extensions)
    others = tuple(Offer(kind, one) for kind, one in more)
    return Plugins([
        PluginInfo("core", "rlinf-cli", "0.1.0", "core", provides=offers),
        PluginInfo("other", "rlinf-other", "2.0", "other", provides=others),
    ])


@pytest.fixture
def make_extension():
    return extension


@pytest.fixture
def plugins():
    return registry()


@pytest.fixture
def plugins_with():
    return lambda *more: registry(more)


@pytest.fixture
def config(plugins):
    """Resolve KEY=VALUE arguments, CONFIG files and flags."""
    def call(*overrides, files=(), **flags):
        return resolve([Path(file) for file in files], overrides, flags, plugins)
    return call


@pytest.fixture
def problems(config):
    """The lines of the error that resolving ends with."""
    def call(*overrides, files=(), **flags):
        with pytest.raises(RlinfError) as caught:
            config(*overrides, files=files, **flags)
        assert caught.value.exit_code == 2
        return str(caught.value).splitlines()
    return call


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a CONFIG file into the current directory, a fresh one, and return its name."""
    monkeypatch.chdir(tmp_path)

    def call(text, name="run.yaml"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")
        return name
    return call


@pytest.fixture(scope="session")
def plugins_once():
    return registry()
