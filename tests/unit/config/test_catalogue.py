from dataclasses import dataclass

import jsonschema
import pytest
import yaml
from config_test_plugin import Judge, Torch

from rlinf_cli.config.catalogue import catalogue, markdown_tables, matching, meanings
from rlinf_cli.config.json_schema import json_schema
from rlinf_cli.errors import UsageError


@pytest.fixture
def entries(plugins):
    return catalogue(plugins)


@pytest.fixture
def by_key(entries):
    return {entry.key: entry for entry in entries}


class TestCatalogue:
    def test_holds_every_key_of_a_configuration(self, config, by_key):
        keys = {f"{section}.{name}" if section else name for section, name, _ in config().items()}
        assert keys <= set(by_key)
        assert set(by_key) - keys == {"reward.endpoint"}

    def test_tells_what_a_key_is(self, by_key):
        entry = by_key["trainer.betas"]
        assert (entry.type, entry.default, entry.limits) == (
            "list[float, float]", "[0.9, 0.999]", "at least 0 and less than 1")
        assert entry.meaning == "Decay of the running means."
        assert entry.meaning_with_limits == "Decay of the running means. (at least 0 and less than 1)"
        assert entry.owner == "trainer torch (rlinf-cli)"
        assert by_key["steps"].owner == "core"

    def test_tells_empty_texts_from_keys_that_must_be_set(self, by_key):
        assert by_key["name"].default == '""'
        assert by_key["reward.endpoint"].default == ""
        assert by_key["data.shuffle"].default == "true"
        assert by_key["trainer.train_layers"].default == "null"

    def test_keys_of_a_section_stand_together(self, entries):
        sections = [entry.section for entry in entries]
        blocks = [section for place, section in enumerate(sections) if section != sections[place - 1]]
        assert len(blocks) == len(set(blocks))
        assert sections[0] == ""

    def test_every_key_of_the_core_has_a_meaning(self, entries):
        assert [entry.key for entry in entries if entry.owner == "core" and not entry.meaning] == []

    def test_two_extensions_may_have_one_key(self, plugins_with, make_extension):
        found = catalogue(plugins_with(("trainer", make_extension("mine", "Torch"))))
        assert [entry.owner for entry in found if entry.key == "trainer.lr"] == [
            "trainer mine (rlinf-other)", "trainer torch (rlinf-cli)"]

    def test_a_broken_extension_is_left_out(self, plugins_with, make_extension, entries):
        more = ("algorithm", make_extension("bad", "Missing")), ("algorithm", make_extension("worse", "Colliding"))
        assert catalogue(plugins_with(*more)) == entries


class TestMatching:
    @pytest.mark.parametrize(("prefix", "count"), [("rollout", 13), ("rollout.top", 2), ("steps", 1)])
    def test_what_starts_with_the_prefix(self, entries, prefix, count):
        found = matching(prefix, entries)
        assert all(entry.key.startswith(prefix) for entry in found)
        assert len(found) == count

    def test_everything_without_a_prefix(self, entries):
        assert matching("", entries) == entries

    def test_nothing_is_an_error_with_the_nearest(self, entries):
        with pytest.raises(UsageError, match=r"no key starts with 'rolout'\. Did you mean 'rollout'\?"):
            matching("rolout", entries)


def test_meanings_of_inherited_fields_are_found():
    assert meanings(Torch)["lr"] == "Peak learning rate."
    assert "frozen" not in meanings(Torch)

    @dataclass(frozen=True)
    class Child(Judge):
        """A class docstring is no meaning."""

        retries: int = 3
        """How often
        it is asked again."""

    assert meanings(Child) == {"endpoint": "Address of the judge.", "retries": "How often it is asked again."}


def test_markdown_has_a_table_a_section(entries):
    text = markdown_tables(matching("trainer", entries))
    assert text.startswith("### trainer\n\nWhat holds the parameters and the optimiser.\n\n| key | type |")
    assert "| `trainer.schedule` | `constant \\| cosine` | `constant` |  | trainer torch (rlinf-cli) |" in text
    assert "| `reward.endpoint` | `str` | must be set |" in markdown_tables(entries)


class TestJsonSchema:
    @pytest.fixture
    def validator(self, entries):
        schema = json_schema(entries)
        jsonschema.Draft202012Validator.check_schema(schema)
        return jsonschema.Draft202012Validator(schema)

    def test_takes_what_resolves(self, validator, config):
        found = config("trainer.train_layers=3", "rollout.stop=[a]", "reward.name=judge", "reward.endpoint=x")
        validator.validate(found.to_dict())
        validator.validate(yaml.safe_load(found.to_yaml()))
        validator.validate({"steps": "${rollout.prompts}", "rollout": None, "algorithm.clip_low": 0.1})

    @pytest.mark.parametrize("document", [
        {"steps": 0}, {"steps": "ten"}, {"stepz": 1}, {"rollout": {"promts": 1}}, {"rollout": {"top_p": 1.5}},
        {"cluster": {"devices": "gpu"}}, {"trainer": {"betas": [0.9]}}, {"trainer": {"betas": [0.9, 1]}},
        {"trainer": {"schedule": "step"}}, {"algorithm": {"aggregation": "mean"}}, {"name": None}, [],
    ])
    def test_refuses_what_does_not(self, validator, document):
        assert not validator.is_valid(document)

    def test_knows_all_meanings_of_a_shared_key(self, plugins_with, make_extension):
        schema = json_schema(catalogue(plugins_with(("trainer", make_extension("mine", "Torch")))))
        both = schema["properties"]["trainer"]["properties"]["lr"]["anyOf"]
        assert [one["description"].rpartition(" [")[2] for one in both] == [
            "trainer mine (rlinf-other)]", "trainer torch (rlinf-cli)]"]
