"""Several extensions in one section: `reward.name=judge + 0.2*format`, `log.loggers=[board]`, `eval.data`."""

import json
import pickle
from pathlib import Path

import jsonschema
import pytest
import yaml
from config_test_plugin import Board, Format, Judge, Slots

from rlinf_cli.config.catalogue import catalogue, matching
from rlinf_cli.config.errors import ConfigError
from rlinf_cli.config.json_schema import json_schema
from rlinf_cli.config.load import check, resolve
from rlinf_cli.config.schema import Part
from rlinf_cli.errors import PluginError


@pytest.fixture
def several(make_extension, plugins_with):
    """Resolve with more rewards, data sets with keys, and loggers."""
    plugins = plugins_with(
        ("reward", make_extension("format", "Format")), ("reward", make_extension("length", "Format")),
        ("dataset", make_extension("rows", "Slots", preset={"reward.pattern": "x+", "rollout.prompts": 5})),
        ("dataset", make_extension("asked", "Judge")),
        ("logger", make_extension("board", "Board")), ("logger", make_extension("plain")),
        ("logger", make_extension("samples", "Board")))

    def call(*overrides, files=()):
        return resolve([Path(file) for file in files], overrides, {}, plugins)
    call.plugins = plugins
    return call


@pytest.fixture
def said(several):
    def call(*overrides):
        with pytest.raises(ConfigError) as caught:
            several(*overrides)
        return str(caught.value).splitlines()
    return call


BOTH = "reward.name=exact + 0.2*format"
MANY = ("reward.name=format + 0.5*judge + my.py:score", "reward.judge.endpoint=http://j", "reward.format.pattern=a+",
        "data.name=rows + 2*more.jsonl", "data.rows.slots=3", "log.loggers=[board, plain]", "log.board.project=p",
        "eval.data=rows + other.jsonl")


class TestOneName:
    def test_is_one_part_with_its_keys_in_the_section(self, several):
        found = several("reward.name=format", "reward.pattern=b")
        (part,) = found.parts("reward")
        assert part == Part("format", 1.0, several.plugins.get("reward", "format"), Format("b"), "reward")
        assert (found.extension("reward"), found.settings("reward")) == (part.extension, part.settings)
        assert found.to_dict()["reward"]["pattern"] == "b"

    def test_may_have_a_weight(self, several):
        found = several("reward.name=0.5*format", "reward.pattern=b")
        assert [(part.name, part.weight, part.key) for part in found.parts("reward")] == [("format", 0.5, "reward")]
        assert found.settings("reward") == Format("b")

    def test_every_section_has_its_part(self, several):
        found = several("model.name=tiny:digits")
        assert [part.name for part in found.parts("model")] == ["tiny:digits"]
        assert found.parts("model")[0].extension.name == "tiny"
        assert [part.name for part in found.parts("workflow")] == ["reasoning"]
        assert (found.parts("log"), found.parts("eval")) == ((), ())

    def test_a_plus_in_an_algorithm_is_part_of_its_name(self, said):
        assert said("algorithm.name=grpo + sft")[0].startswith(
            "algorithm.name=grpo + sft (from the command line): unknown algorithm 'grpo + sft'.")


class TestSeveral:
    def test_each_has_its_keys_below_its_name(self, several):
        found = several(*MANY)
        assert [(part.name, part.weight, part.key, part.settings) for part in found.parts("reward")] == [
            ("format", 1.0, "reward.format", Format("a+")), ("judge", 0.5, "reward.judge", Judge("http://j")),
            ("my.py:score", 1.0, "reward.my.py:score", None)]
        assert [part.extension and part.extension.name for part in found.parts("data")] == ["rows", None]
        assert found.parts("data")[0].settings == Slots(3)
        assert (found.extension("reward"), found.settings("reward")) == (None, None)
        assert found.reward.name == "format + 0.5*judge + my.py:score"

    def test_loggers_keep_their_keys_below_their_names_even_alone(self, several):
        found = several("log.loggers=[board]", "log.board.project=p")
        assert [(part.name, part.key, part.settings) for part in found.parts("log")] == [
            ("board", "log.board", Board("p"))]
        assert found.settings("log") is None

    def test_a_file_may_say_it_as_mappings(self, several, write):
        file = write("reward:\n  name: exact + format\n  format:\n    pattern: z\nlog:\n  loggers: [board]\n  board:\n"
                     "data:\n  name: rows + sums\n  rows: {slots: 9}\n")
        found = several(files=[file])
        assert found.parts("reward")[1].settings == Format("z")
        assert found.parts("data")[0].settings == Slots(9)
        assert (found.origin("reward.format.pattern"), found.origin("data.rows.slots")) == ("run.yaml:4", "run.yaml:10")
        assert found.parts("log")[0].settings == Board("")

    def test_an_argument_may_be_a_mapping(self, several):
        assert several(BOTH, "reward.format={pattern: q}").parts("reward")[1].settings == Format("q")

    def test_interpolation_reaches_them(self, several):
        found = several("reward.name=${name} + format", "name=exact", "reward.format.pattern=${runs_dir}",
                        "placement=${reward.format.again}.yaml")
        assert [part.name for part in found.parts("reward")] == ["exact", "format"]
        assert found.parts("reward")[1].settings.pattern == "runs"
        assert found.placement == "0.yaml"

    def test_a_key_without_default_must_be_given(self, said):
        assert said("reward.name=judge + exact") == [
            "reward.judge.endpoint is not set and reward judge needs it: give reward.judge.endpoint=VALUE"]

    @pytest.mark.parametrize(("argument", "words"), [
        ("reward.name=exact + exact", "'exact' is there twice: name it once"),
        ("reward.name=exact + 0*format", "'format' has the weight 0: a weight is a finite number above 0"),
        ("data.name=sums +", "a name is missing"),
        ("eval.data=sums + sums", "'sums' is there twice"),
        ("log.loggers=[plain, plain]", "'plain' is there twice"),
        ("log.loggers=[bord]", "unknown logger 'bord'. Did you mean 'board'?"),
        ("log.loggers=board", "a list of texts, as in [a, b], is needed"),
        ("eval.data=summs", "unknown dataset 'summs'. Did you mean 'sums'?"),
        ("reward.name=exact+format", "Several are written NAME + WEIGHT*NAME, with blanks around the '+'"),
        ("reward.name=format*0.2", "Several are written NAME + WEIGHT*NAME"),
    ])
    def test_a_wrong_name_is_one_clear_sentence(self, said, argument, words):
        (line,) = said(argument)
        assert line.startswith(f"{argument} (from the command line): ")
        assert words in line

    def test_a_name_that_is_a_key_of_the_core_is_the_plugins_fault(self, several):
        with pytest.raises(PluginError, match=r"logger samples: its name 'log\.samples' \(config_test_plugin:Board\) is a "
                                              r"key of the core: its author must rename it"):
            several("log.loggers=[samples]")


class TestEvaluationData:
    def test_has_the_settings_of_the_training_data_of_the_same_name(self, several):
        found = several(*MANY)
        assert [(part.name, part.key, part.settings) for part in found.parts("eval")] == [
            ("rows", "data.rows", Slots(3)), ("other.jsonl", "eval.data", None)]
        assert several("data.name=rows", "data.slots=7", "eval.data=rows").parts("eval")[0].settings == Slots(7)

    def test_has_the_defaults_otherwise_and_no_keys(self, several):
        found = several("eval.data=0.5*rows", "data.name=sums")
        assert [(part.name, part.weight, part.settings) for part in found.parts("eval")] == [("rows", 0.5, Slots())]
        assert "slots" not in found.to_yaml().partition("eval:")[2]

    def test_cannot_be_what_needs_a_key(self, said, several):
        assert said("eval.data=asked", "data.name=sums") == [
            "eval.data names asked, which needs data.endpoint to be set: name it in data.name too"]
        found = several("eval.data=asked", "data.name=asked", "data.endpoint=e")
        assert found.parts("eval")[0].settings == Judge("e")


class TestPresets:
    def test_one_for_a_reward_reaches_the_only_one_of_several_that_has_the_key(self, several):
        found = several("data.name=rows", "reward.name=exact + format")
        assert found.parts("reward")[1].settings == Format("x+")
        assert found.origin("reward.format.pattern") == "the preset of dataset rows"

    def test_it_does_not_when_two_have_it(self, several):
        found = several("data.name=rows", "reward.name=length + format")
        assert [part.settings for part in found.parts("reward")] == [Format(), Format()]

    def test_it_reaches_the_single_reward(self, several):
        assert several("data.name=rows", "reward.name=format").settings("reward") == Format("x+")

    def test_an_extension_presets_its_own_keys_where_they_stand(self, make_extension, plugins_with):
        own = make_extension("own", "Format", preset={"reward.pattern": "mine", "reward.processes": 3})
        plugins = plugins_with(("reward", own), ("reward", make_extension("format", "Format")))
        found = resolve([], ["reward.name=own + format"], {}, plugins)
        assert [part.settings.pattern for part in found.parts("reward")] == ["mine", ".*"]
        assert found.reward.processes == 3
        assert found.origin("reward.own.pattern") == "the preset of reward own"


class TestUnknownKeys:
    @pytest.mark.parametrize(("arguments", "words"), [
        ((BOTH, "reward.format.patern=x"),
         "unknown key 'reward.format.patern' (from the command line). Did you mean 'reward.format.pattern'? "
         "See: rlinf config keys reward"),
        ((BOTH, "reward.pattern=x"),
         "'reward.pattern' (from the command line): with reward.name=exact + 0.2*format it is written "
         "reward.format.pattern"),
        (("reward.name=format + length", "reward.pattern=x"),
         "'reward.pattern' (from the command line): with reward.name=format + length it is written "
         "reward.format.pattern or reward.length.pattern"),
        (("reward.name=format", "reward.format.pattern=x"),
         "'reward.format.pattern' (from the command line): with reward.name=format it is written reward.pattern"),
        ((BOTH, "reward.judge.endpoint=x"),
         "'reward.judge.endpoint' (from the command line) belongs to reward judge, but reward.name is "
         "'exact + 0.2*format': set reward.name='exact + 0.2*format + judge', or leave the key out"),
        (("log.board.project=x",),
         "'log.board.project' (from the command line) belongs to logger board, but log.loggers is []: "
         "set log.loggers=[board], or leave the key out"),
        (("log.loggers=[plain]", "log.board.project=x"),
         "'log.board.project' (from the command line) belongs to logger board, but log.loggers is [plain]: "
         "set log.loggers=[plain, board], or leave the key out"),
        ((BOTH, "reward.format=x"),
         "reward.format=x (from the command line): 'reward.format' has keys of its own: write reward.format.pattern=x"),
        ((BOTH, "reward.format.pattern.more=x"),
         "unknown key 'reward.format.pattern.more' (from the command line): 'reward.format.pattern' is a single value, "
         "there is nothing below it"),
        (("log.loggers=[plain]", "log.plain=x"), "log.plain=x (from the command line): 'log.plain' has no keys: leave it out"),
    ])
    def test_tells_whose_it_is_or_the_nearest(self, said, arguments, words):
        assert said(*arguments) == [words]

    def test_keys_of_a_logger_that_is_unknown_are_not_judged(self, said):
        (line,) = said("log.loggers=[bord]", "log.bord.project=x")
        assert "unknown logger" in line


class TestWritten:
    def test_resolves_to_the_same_again(self, several, write):
        first = several(*MANY)
        second = several(files=[write(first.to_yaml())])
        assert second == first
        assert yaml.safe_load(first.to_yaml()) == first.to_dict()
        assert second.origin("reward.judge.endpoint").startswith("run.yaml:")

    def test_reads_well(self, several):
        text = several(*MANY).to_yaml(origins=True)
        assert ("reward:\n  name: format + 0.5*judge + my.py:score  # the command line\n  timeout_s: 10.0  # the default\n"
                "  processes: 1  # the default\n  format:\n    pattern: a+  # the command line\n"
                "    again: 0  # the default\n  judge:\n    endpoint: http://j  # the command line\n") in text
        assert text.endswith("  loggers: [board, plain]  # the command line\n  board:\n    project: p  # the command line\n")

    def test_a_name_that_yaml_would_take_for_something_else_is_quoted(self, make_extension, plugins_with, write):
        plugins = plugins_with(("logger", make_extension("on", "Board")))
        found = resolve([], ["log.loggers=[on]"], {}, plugins)
        assert yaml.safe_load(found.to_yaml())["log"]["on"] == {"project": ""}
        assert resolve([Path(write(found.to_yaml()))], [], {}, plugins) == found

    def test_as_json(self, several):
        assert json.loads(json.dumps(several(*MANY).to_dict()))["log"]["board"] == {"project": "p"}

    def test_travels_to_workers(self, several):
        found = several(*MANY)
        copy = pickle.loads(pickle.dumps(found))
        assert copy == found
        assert copy.parts("reward") == found.parts("reward")
        assert copy.origin("reward.format.pattern") == "the command line"


class TestRules:
    def test_are_asked_of_every_part_and_speak_of_the_keys_as_they_are_written(self, several):
        found = several("reward.name=length + format", "reward.format.pattern=(", "reward.length.again=9")
        with pytest.raises(ConfigError) as caught:
            check(found)
        assert str(caught.value).splitlines() == [
            "reward.length.again=9 with rollout.group_size 8 is too often",
            "reward.format.pattern=( is no regular expression: reward.timeout_s does not matter"]
        with pytest.raises(ConfigError, match=r"^reward\.pattern=\( is no"):
            check(several("reward.name=format", "reward.pattern=("))


class TestCatalogue:
    @pytest.fixture
    def entries(self, several):
        return [entry for entry in catalogue(several.plugins) if "samples" not in entry.owner]

    def test_a_loggers_keys_are_in_the_section_log(self, entries):
        logged = [(entry.key, entry.section, entry.owner) for entry in entries if entry.section == "log"]
        assert logged[-1] == ("log.board.project", "log", "logger board (rlinf-other)")

    @pytest.mark.parametrize(("prefix", "keys"), [
        ("reward.format", ["reward.format.pattern", "reward.format.again"]),
        ("reward.format.a", ["reward.format.again"]),
        ("log.board", ["log.board.project"]),
        ("data.rows", ["data.rows.slots"]),
    ])
    def test_keys_are_found_as_they_are_written_among_several(self, entries, prefix, keys):
        assert [entry.key for entry in matching(prefix, entries)] == keys

    def test_the_schema_takes_both_spellings(self, entries, several):
        schema = json_schema(entries)
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = jsonschema.Draft202012Validator(schema)
        validator.validate(several(*MANY).to_dict())
        validator.validate({"reward": {"pattern": "x"}, "log": {"board": None}})
        for wrong in ({"reward": {"format": {"patern": "x"}}}, {"log": {"project": "x"}}, {"log": {"board": {"projct": 1}}},
                      {"eval": {"rows": {"slots": 1}}}, {"data": {"rows": {"slots": 0}}}):
            assert not validator.is_valid(wrong), wrong
