from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys

import pytest

from rlinf_cli.errors import UsageError
from rlinf_cli.plugins.discovery import discover
from rlinf_cli.plugins.loader import load_plugins, plugins

COUNTING = """
from rlinf_cli.api import Extension, hookimpl
calls = []

@hookimpl
def register_rewards():
    calls.append(1)
    return [Extension("polite", target="polite_reward:Polite", config="polite_reward:Config", summary="says please")]
"""
REWARD = """
from dataclasses import dataclass

@dataclass
class Config:
    weight: float = 1.0

class Polite:
    imported_as = __name__
"""


@pytest.fixture
def polite(site):
    site.add("rlinf-polite", {"polite": "polite_hooks"}, "0.4", polite_hooks=COUNTING, polite_reward=REWARD)
    return site


def test_a_plugin_is_described_with_its_distribution_and_what_it_provides(polite):
    info = load_plugins(["polite"]).info("polite")
    assert (info.name, info.module) == ("polite", "polite_hooks")
    assert (info.distribution, info.version) == ("rlinf-polite", "0.4")
    assert (info.state, info.problem, info.traceback) == ("ok", "", "")
    assert info.hooks == ("register_rewards",)
    assert [str(offer) for offer in info.provides] == ["reward polite"]


def test_loading_imports_no_target(polite):
    extension = load_plugins(["polite"]).get("reward", "polite")
    assert "polite_reward" not in sys.modules
    assert extension.load().imported_as == "polite_reward"
    assert extension.load_config()().weight == 1.0


def test_each_hook_is_called_once(polite):
    found = load_plugins(["polite"])
    for _ in range(3):
        assert found.get("reward", "polite")
        assert found.extensions("reward")
    assert len(sys.modules["polite_hooks"].calls) == 1


def test_names_and_extensions_are_sorted(site):
    site.add_reward("rlinf-b", "b", "zebra", "ant")
    site.add_reward("rlinf-a", "a", "monkey")
    found = load_plugins(["a", "b"])
    assert found.names("reward") == ["ant", "monkey", "zebra"]
    assert {name: extension.name for name, extension in found.extensions("reward").items()} == {
        name: name for name in found.names("reward")
    }
    assert found.names("engine") == []


def test_a_hook_may_have_another_function_name_and_optional_arguments(site):
    source = """
        from rlinf_cli.api import Extension, hookimpl

        @hookimpl(specname="register_rewards")
        def first(note=None, *more, **others): return [Extension("one", target="m:A")]

        @hookimpl(specname="register_rewards")
        def second(): return (Extension("two", target="m:A"),)

        @hookimpl(optionalhook=True)
        def hook_of_the_future(): return 1
    """
    site.add("rlinf-two", {"two": "two_hooks"}, two_hooks=source)
    found = load_plugins(["two"])
    assert (found.info("two").state, found.names("reward")) == ("ok", ["one", "two"])


def test_an_entry_point_can_name_an_object(site):
    source = """
        from rlinf_cli.api import Extension, hookimpl

        class Hooks:
            @hookimpl
            def register_rewards(self): return [Extension("one", target="m:A")]

        hooks = Hooks()
    """
    site.add("rlinf-object", {"object": "object_hooks:hooks [extra]"}, object_hooks=source)
    assert load_plugins(["object"]).names("reward") == ["one"]


def test_what_a_plugin_prints_goes_to_stderr(site, capsys):
    site.add("rlinf-loud", {"loud": "loud_hooks"}, loud_hooks="print('hello')")
    load_plugins(["loud"])
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "hello\n")


def test_the_built_in_plugins_are_found_first(polite):
    entries = discover()
    assert [entry.third_party for entry in entries] == sorted(entry.third_party for entry in entries)
    assert {"grpo", "torch", "models", "tasks", "rewards"} <= {e.name for e in entries if not e.third_party}
    assert [entry.name for entry in entries if entry.third_party] == ["polite"]


def test_without_third_party_plugins_only_those_of_rlinf_cli_load(polite):
    polite.add_reward("rlinf-cli", "core", "plain", version="9")
    found = load_plugins(third_party=False)
    assert [(info.name, info.distribution) for info in found.plugins] == [("core", "rlinf-cli")]
    assert "polite_hooks" not in sys.modules


def test_a_distribution_further_down_the_path_is_hidden_by_the_first(polite, tmp_path, monkeypatch):
    hidden = type(polite)(tmp_path / "hidden")
    hidden.folder.mkdir()
    hidden.add("rlinf-polite", {"polite": "older_hooks", "older": "older_hooks"}, "0.1", older_hooks="")
    monkeypatch.setattr(sys, "path", [*sys.path, str(hidden.folder)])
    entries = [entry for entry in discover() if entry.distribution == "rlinf-polite"]
    assert [(entry.name, entry.version) for entry in entries] == [("polite", "0.4")]


def test_a_distribution_of_other_groups_is_no_plugin(site):
    site.add("other", "[console_scripts]\nother = other:main\n[rlinf.something]\nx = y\n")
    assert "other" not in {entry.distribution for entry in discover()}


def test_the_environment_says_which_plugins_load(polite, monkeypatch):
    polite.add_reward("rlinf-fine", "fine", "kind")
    monkeypatch.setenv("RLINF_PLUGINS", "polite, fine")
    assert [info.name for info in plugins().plugins] == ["fine", "polite"]
    monkeypatch.setenv("RLINF_PLUGINS", "fine")
    assert [info.name for info in plugins().plugins] == ["fine"]
    monkeypatch.setenv("RLINF_NO_PLUGINS", "1")
    assert plugins().plugins == ()
    monkeypatch.setenv("RLINF_NO_PLUGINS", "0")
    assert [info.name for info in plugins().plugins] == ["fine"]


def test_the_plugins_of_a_process_are_loaded_once(polite, monkeypatch):
    monkeypatch.setenv("RLINF_PLUGINS", "polite")
    assert plugins() is plugins()


def test_an_unknown_name_in_the_environment_is_a_usage_error(polite, monkeypatch):
    monkeypatch.setenv("RLINF_PLUGINS", "polit")
    with pytest.raises(UsageError, match=r"names 'polit', which is not installed. Did you mean 'polite'\?"):
        plugins()


def test_an_unknown_plugin_is_a_usage_error(polite):
    with pytest.raises(UsageError, match=r"there is no plugin 'polit'. Did you mean 'polite'\?"):
        load_plugins(["polite"]).info("polit")


def test_the_trace_tells_what_was_found_loaded_and_called(polite, monkeypatch, capsys):
    load_plugins(["polite"])
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("RLINF_TRACE_PLUGINS", "1")
    load_plugins(["polite"])
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert printed.out == ""
    assert lines[0] == "plugins: discovered 'polite' of rlinf-polite 0.4 (polite_hooks)"
    assert lines[1].startswith("plugins: loaded polite in ")
    assert lines[2].startswith("plugins: called register_rewards of polite in ")
    assert lines[2].endswith(" ms: polite")
    assert len(lines) == 3


def test_another_process_gets_the_same_extension(polite, monkeypatch):
    program = (
        "import json; from rlinf_cli.plugins.loader import plugins; e = plugins().get('reward', 'polite');"
        "print(json.dumps([e.load().imported_as, e.load_config().__name__, e.summary, plugins().names('reward')]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(polite.folder), "RLINF_PLUGINS": "polite"}
    printed = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True).stdout
    assert json.loads(printed) == ["polite_reward", "Config", "says please", ["polite"]]


def test_an_extension_and_the_plugins_travel_between_processes(polite):
    found = load_plugins(["polite"])
    copy = pickle.loads(pickle.dumps(found))
    assert copy.plugins == found.plugins
    assert copy.get("reward", "polite") == found.get("reward", "polite")
