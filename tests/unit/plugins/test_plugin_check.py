"""`rlinf plugins check`: what is found in third-party plugins, each good but for one thing."""

import sys

import pytest

from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.runs.plugin_check import check_plugin, third_party

HOOKS = """
from rlinf_cli.api import Extension, hookimpl

@hookimpl
def register_rewards():
    return [Extension("polite", **{settings})]
"""
CONFIG = """
from dataclasses import dataclass
from rlinf_cli.api import key

@dataclass(frozen=True)
class Polite:
    bonus: float = key(0.5, ge=0)
    \"\"\"Added for each polite word.\"\"\"
"""
REWARD = """
class Polite:
    def __init__(self, config): self.config = config
    def score(self, sample): return self.config.bonus * sample.response.count("please")
"""
METADATA = "Metadata-Version: 2.1\nName: rlinf-polite\nVersion: 1.0\nSummary: politeness\n{more}\n{readme}"


@pytest.fixture
def checked(site, monkeypatch):
    """Findings of the plugin `polite`, by check, with something of it changed."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # it would not be made anew for what is written in the same second

    def check(hooks="", config=CONFIG, reward=REWARD, more="", readme="# Polite\n", **settings):
        for module in ("polite_hooks", "polite_config", "polite_reward"):
            sys.modules.pop(module, None)
        settings = {"target": "polite_reward:Polite", "config": "polite_config:Polite", "summary": "counts please", **settings}
        site.add("rlinf-polite", {"polite": "polite_hooks"}, polite_hooks=hooks + HOOKS.replace("{settings}", repr(settings)),
                 polite_config=config, polite_reward=reward)
        site.metadata("rlinf-polite", METADATA.format(more=more, readme=readme))
        plugins = load_plugins()
        findings = list(check_plugin(plugins.info("polite"), plugins))
        assert len({(one.extension, one.check) for one in findings}) == len(findings)
        return {one.check: (one.state, one.problem) for one in findings}

    return check


def failed(findings):
    return {check: problem for check, (state, problem) in findings.items() if state == "failed"}


def test_a_good_plugin_has_no_problem(checked):
    checks = ("loads", "light", "description", "summary", "requires", "config", "target", "contract")
    assert checked() == dict.fromkeys(checks, ("ok", ""))


def test_a_plugin_that_fails_to_load_is_told_with_its_problem(site):
    site.add("rlinf-broken", {"broken": "broken_hooks"}, broken_hooks="import numpi")
    plugins = load_plugins()
    (finding,) = check_plugin(plugins.info("broken"), plugins)
    assert (finding.check, finding.state, finding.problem) == ("loads", "failed", "failed: No module named 'numpi'")


def test_a_missing_requirement_is_told_and_its_extension_not_checked(checked):
    findings = checked(requires=("no-such-parser",))
    assert failed(findings) == {"loads": "needs: run: pip install no-such-parser"}
    assert "contract" not in findings


def test_two_plugins_of_one_name_for_something_are_told(site):
    site.add_reward("rlinf-one", "one", "same", summary="x")
    site.add_reward("rlinf-two", "two", "same", "other", summary="x")
    plugins = load_plugins()
    findings = list(check_plugin(plugins.info("two"), plugins))
    assert findings[0].problem.startswith("conflict: reward same: registered by 'one' (rlinf-one 1.0) and 'two' (rlinf-two 1.0)")
    assert {one.extension for one in findings[1:]} == {"", "reward other"}


def test_heavy_imports_are_told_of_the_module_that_has_them(checked):
    told = failed(checked(hooks="import numpy\n"))
    assert told == {"light": "the entry-point module polite_hooks imports numpy, which makes every command slow: import it in "
                             "functions, or in the module of the target"}
    told = failed(checked(config="import numpy\n" + CONFIG))
    assert told["config"].startswith("the module of its configuration polite_config imports numpy")


def test_a_description_and_a_readme_are_asked_for(checked):
    assert failed(checked(readme="")) == {"description": "rlinf-polite has no readme in its pyproject.toml"}


def test_a_summary_is_asked_for(checked):
    assert failed(checked(summary="")) == {"summary": "it has no summary, which rlinf plugins shows"}


def test_an_extra_must_exist(checked):
    assert "its extra 'nlp' is none of rlinf-polite (it has none)" in failed(checked(extra="nlp"))["requires"]
    assert failed(checked(extra="nlp", more="Provides-Extra: NLP\n")) == {}


@pytest.mark.parametrize(("config", "told"), [
    (CONFIG.replace('"""Added for each polite word."""', ""), "reward.bonus has no docstring under it in polite_config:Polite"),
    (CONFIG.replace("key(0.5, ge=0)", "key(-0.5, ge=0)"),
     "the default of reward.bonus, -0.5, breaks its own rule: it must be at least 0"),
    (CONFIG.replace("bonus", "timeout_s"), "its key 'reward.timeout_s' (polite_config:Polite) is a key of the core"),
    (CONFIG.replace("bonus: float = key(0.5, ge=0)", "bonus: dict = None"), "allowed are int, float, bool, str"),
    (CONFIG.replace("@dataclass(frozen=True)", ""), "its configuration polite_config:Polite is no dataclass"),
    ("1 / 0", "did not load: ZeroDivisionError"),
])
def test_configuration_keys_are_checked(checked, config, told):
    assert told in failed(checked(config=config))["config"]


def test_a_target_must_import(checked):
    findings = checked(reward="")
    assert "the target 'polite_reward:Polite' of extension 'polite' did not load: AttributeError" in failed(findings)["target"]
    assert "contract" not in findings


@pytest.mark.parametrize(("preset", "told"), [
    ({"reward.bonos": 1}, "the preset of reward polite sets 'reward.bonos', which is no key. Did you mean 'reward.bonus'"),
    ({"reward.bonus": -1.0}, "the preset of reward polite: reward.bonus=-1.0: must be at least 0"),
    ({"data.name": "digits"}, "sets 'data.name', which is chosen before it applies"),
])
def test_a_preset_must_fit(checked, preset, told):
    problem = failed(checked(preset=preset))["contract"]
    assert problem.startswith("its defaults or its preset are refused: ")
    assert told.partition(":")[0] in problem


def test_the_preset_decides_what_is_checked(checked):
    broken_without = REWARD.replace("self.config.bonus *", "1 / self.config.bonus *")
    zero = CONFIG.replace("0.5", "0.0")
    assert "ZeroDivisionError" in failed(checked(config=zero, reward=broken_without))["contract"]
    assert failed(checked(config=zero, reward=broken_without, preset={"reward.bonus": 2.0})) == {}


def test_the_contract_is_checked(checked):
    assert failed(checked(reward=REWARD.replace("self.config.bonus", "float('nan')"))) == {
        "contract": "score() gave reward=nan: raise an exception where there is no reward"}


def test_a_plugin_that_exits_or_prints_stops_nothing(checked, capsys):
    assert failed(checked(reward=REWARD.replace("self.config = config", "print('hello'); raise SystemExit(4)")))["contract"] == (
        "sys.exit(4) was called")
    assert capsys.readouterr().out == ""


def test_what_cannot_be_checked_without_data_is_said(checked):
    must_be_set = CONFIG.replace("key(0.5, ge=0)", "key(ge=0)")
    assert checked(config=must_be_set)["contract"] == (
        "left out", "reward.bonus must be set: only its author's tests can check it")
    reads = CONFIG + "    needs_columns = ('tone',)\n"
    assert checked(config=reads)["contract"] == (
        "left out", "it reads column 'tone' of the data: only its author's tests can check it")


def test_a_command_must_be_one_of_click(site):
    site.add("rlinf-speaks", {"speaks": "speaks_hooks"}, speaks_hooks="""
        import click
        from rlinf_cli.api import Extension, hookimpl

        @hookimpl
        def register_commands():
            return [Extension(name, target=f"{__name__}:{name}", summary="says please") for name in ("good", "bare")]

        def bare(): pass
        good = click.command(bare)
    """)
    plugins = load_plugins()
    found = {one.extension: one for one in check_plugin(plugins.info("speaks"), plugins) if one.check == "contract"}
    assert found["command good"].state == "ok"
    assert found["command bare"].problem == "a command must be one of click, or a group, not a function"


def test_third_party_are_those_of_other_distributions(site):
    site.add_reward("rlinf-fine", "fine", "kind")
    assert [info.name for info in third_party(load_plugins())] == ["fine"]


@pytest.mark.parametrize("name", ["rewards", "tasks", "sft", "workflows", "agents", "search"])
def test_the_built_in_plugins_pass(name, site):
    plugins = load_plugins()
    assert [one for one in check_plugin(plugins.info(name), plugins) if one.state == "failed"] == []
