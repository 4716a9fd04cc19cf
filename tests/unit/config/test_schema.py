import json
import subprocess
import sys
from dataclasses import FrozenInstanceError, dataclass, fields

import pytest

from rlinf_cli import api
from rlinf_cli.config.kinds import KINDS, kinds
from rlinf_cli.config.rules import Rule, key
from rlinf_cli.config.schema import SECTIONS, TOP_LEVEL, RunConfig
from rlinf_cli.plugins.hookspecs import KINDS as HOOK_KINDS


class TestRule:
    @pytest.mark.parametrize(("rule", "allowed", "refused"), [
        (Rule(ge=1), [1, 2.5, None], [0, 0.99, -1]),
        (Rule(gt=0, le=1), [0.1, 1], [0, 1.1]),
        (Rule(lt=1), [0, -5], [1, 2]),
        (Rule(choices=("a", "b")), ["a", "b"], ["c", ""]),
        (Rule(pattern=r"cpu:\d+"), ["cpu:2"], ["cpu:", "xcpu:2", "cpu:2x"]),
        (Rule(ge=0, lt=1), [[0, 0.5], (0.1,), []], [[0, 1], (-1,)]),
        (Rule(), [0, "anything", None], []),
    ])
    def test_allows(self, rule, allowed, refused):
        assert [value for value in allowed if not rule.allows(value)] == []
        assert [value for value in refused if rule.allows(value)] == []

    @pytest.mark.parametrize(("rule", "words"), [
        (Rule(ge=1), "at least 1"), (Rule(gt=0, le=1), "more than 0 and at most 1"), (Rule(lt=2.5), "less than 2.5"),
        (Rule(choices=(1, 2)), "one of 1, 2"), (Rule(pattern="x+", form="some x"), "some x"), (Rule(), ""),
    ])
    def test_says_what_it_wants(self, rule, words):
        assert str(rule) == words


class TestKey:
    def test_a_list_is_not_shared_between_instances(self):
        @dataclass
        class Settings:
            names: list[str] = key(["a"])  # noqa: RUF009

        Settings().names.append("b")
        assert Settings().names == ["a"]

    def test_one_without_default_must_be_given(self):
        @dataclass
        class Settings:
            path: str = key()

        with pytest.raises(TypeError, match="path"):
            Settings()

    def test_plugins_get_it_from_the_public_names(self):
        assert api.key is key


class TestRunConfig:
    def test_is_frozen_in_every_section(self):
        config = RunConfig()
        with pytest.raises(FrozenInstanceError):
            config.steps = 5
        for section in SECTIONS:
            part = getattr(config, section)
            with pytest.raises(FrozenInstanceError):
                setattr(part, fields(part)[0].name, None)

    def test_what_is_chosen_by_name_is_a_kind_of_extension_and_a_section(self):
        assert {kind for section in KINDS for kind in kinds(section)} == set(HOOK_KINDS)
        assert set(KINDS) - {"workflow"} <= set(SECTIONS)

    def test_items_are_every_key_once(self):
        seen = [f"{section}.{name}" for section, name, _ in RunConfig().items()]
        assert len(seen) == len(set(seen)) == len(TOP_LEVEL) + sum(len(fields(home)) for home in SECTIONS.values())

    def test_sections_of_the_class_are_those_of_the_table(self):
        assert set(SECTIONS) | set(TOP_LEVEL) | {"chosen", "origins"} == {
            f.name for f in fields(RunConfig)}
        assert all(isinstance(getattr(RunConfig(), section), home) for section, home in SECTIONS.items())


PROGRAM = """
import importlib, json, sys
for module in sys.argv[1:]:
    importlib.import_module(module)
print(json.dumps(sorted(sys.modules)))
"""
HEAVY = {"torch", "ray", "transformers", "numpy"}


def imported(*modules):
    ended = subprocess.run([sys.executable, "-c", PROGRAM, *modules], capture_output=True, text=True, check=True)
    return set(json.loads(ended.stdout))


def test_nothing_heavy_is_imported_for_the_configuration():
    modules = [f"rlinf_cli.config.{name}" for name in ("load", "catalogue", "json_schema", "write")]
    found = imported(*modules, "rlinf_cli.commands.config")
    assert not found & (HEAVY | {"omegaconf"})


def test_a_plugin_that_declares_keys_imports_no_yaml():
    assert not imported("rlinf_cli.config.schema") & (HEAVY | {"omegaconf", "yaml", "click", "pluggy"})
