"""`docs/plugins.md` names every hook, check, field and variable, and no others; its examples work."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from rlinf_cli.api import CheckpointWritten, Extension, RunEnd, RunStart, StepEnd
from rlinf_cli.plugins import testing
from rlinf_cli.plugins.checks import HOOKS
from rlinf_cli.plugins.hookspecs import KINDS, REGISTERED
from rlinf_cli.plugins.loader import ENVIRONMENT, load_plugins
from rlinf_cli.plugins.scaffold import STARTS
from rlinf_cli.runs.plugin_check import check_plugin

PAGE = (Path(__file__).parents[3] / "docs" / "plugins.md").read_text()
SECTIONS = {"algorithm": "Algorithm", "engine": "Engine", "trainer": "Trainer", "reward": "Reward", "workflow": "Workflow",
            "model": "Model", "dataset": "Data set", "logger": "Logger", "environment": "Environment",
            "policy": "Policy", "agent": "Agent", "tool": "Tool"}
COMPLETE = sorted(SECTIONS.keys() - {"engine", "trainer"})
"""Kinds whose example has the implementation too."""


def section(title):
    return re.split(r"\n#{2,3} ", re.split(rf"\n#{{2,3}} {re.escape(title)}\n", PAGE)[1])[0]


def first_column(title):
    return re.findall(r"^\| `(\w+)", section(title), re.MULTILINE)


def example(title):
    return re.search(r"```python\n(.*?)```", section(title), re.DOTALL).group(1)


def test_every_hook_is_documented():
    assert first_column("Hooks") == list(HOOKS)


def test_every_variable_is_documented():
    assert set(first_column("Environment variables")) == {*ENVIRONMENT, "RLINF_TRACEBACK"}


def test_every_field_of_an_extension_is_documented():
    assert first_column("How a plugin is found") == [field.name for field in fields(Extension)]


def test_every_check_and_fixture_is_documented():
    names = [name for name in testing.__all__ if name.startswith("check_")]
    assert sorted(first_column("Checks")) == names == sorted(f"check_{kind}" for kind in KINDS)
    for name in {*testing.__all__} - {*names}:
        assert f"`{name}" in section("Checks")


def test_every_kind_has_a_section_with_its_hook():
    assert SECTIONS.keys() == KINDS.keys() == STARTS.keys()
    for kind, title in SECTIONS.items():
        assert f"def {KINDS[kind]}():" in example(title)


def test_the_first_example_is_a_plugin_that_loads(site):
    site.add("rlinf-politeness", {"politeness": "rlinf_politeness"}, rlinf_politeness=example("How a plugin is found"))
    info = load_plugins(["politeness"]).info("politeness")
    assert [str(offer) for offer in info.provides] == ["reward politeness"]
    assert (info.state, info.problem) == ("needs", "pip install 'rlinf-politeness[textblob]'")


def test_the_keys_of_the_example_work(site):
    site.add("rlinf-keys", {}, politeness_keys=example("Keys"))
    from politeness_keys import PolitenessConfig

    assert list(PolitenessConfig().problems()) == []
    assert "bad luck" in next(iter(PolitenessConfig(bonus=0.13).problems()))
    assert not PolitenessConfig.__dataclass_fields__["bonus"].metadata["rule"].allows(2.0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_of_a_kind_loads(kind, site):
    site.add("rlinf-example", {"example": "rlinf_example"}, rlinf_example=example(SECTIONS[kind]))
    info = load_plugins().info("example")
    assert [offer.kind for offer in info.provides] == [kind]
    assert info.state in ("ok", "needs")


@pytest.mark.parametrize("kind", COMPLETE)
def test_the_example_of_a_kind_keeps_its_contract(kind, site):
    site.add("rlinf-example", {"example": "rlinf_example"}, rlinf_example=example(SECTIONS[kind]))
    plugins = load_plugins()
    contracts = [one for one in check_plugin(plugins.info("example"), plugins) if one.check == "contract"]
    assert [(one.state, one.problem) for one in contracts] == [("ok", "")]


def test_the_lifecycle_hooks_of_the_example_work(site, tmp_path):
    site.add("rlinf-diary", {"diary": "rlinf_diary"}, rlinf_diary=example("Lifecycle hooks"))
    plugins, said = load_plugins(), []
    assert plugins.info("diary").state == "ok"

    class Sample:
        response = "7"

    contexts = {
        "on_run_start": RunStart("r", tmp_path, {"seed": 3}, 0, 10, tmp_path, [], said.append),
        "on_step_end": StepEnd(10, {"reward/mean": 0.5}, [Sample()]),
        "on_checkpoint": CheckpointWritten(10, tmp_path / "step_000010", True),
        "on_run_end": RunEnd("finished", 10, "finished"),
    }
    for hook, context in contexts.items():
        (call,) = [function for info, function in plugins.lifecycle(hook) if info.name == "diary"]
        call(context=context)
    assert said == [f"writing {tmp_path / 'diary.txt'}"]
    assert (tmp_path / "diary.txt").read_text().splitlines() == [
        "r: 0 of 10 steps, seed 3", "step 10: reward 0.50, e.g. '7'", "step 10: step_000010 is the best so far",
        "finished after 10 steps: finished"]


def test_the_lifecycle_hooks_are_those_of_this_version(site):
    source = example("Lifecycle hooks")
    assert re.findall(r"@hookimpl\ndef (\w+)", source) == [hook for hook in HOOKS if hook not in REGISTERED.values()]
