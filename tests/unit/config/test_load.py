import pickle
import time

import pytest
from config_test_plugin import Grpo, Torch

from rlinf_cli.config.errors import ConfigError
from rlinf_cli.config.load import resolve
from rlinf_cli.errors import PluginError


def test_defaults_are_those_of_the_dataclasses_and_presets(config):
    found = config()
    assert (found.steps, found.seed, found.placement, found.name) == (100, 0, "auto", "")
    assert found.algorithm.name == "grpo"
    assert found.settings("algorithm") == Grpo()
    assert found.rollout.temperature == 1.0
    assert found.rollout.stop == []


def test_every_key_of_the_specification_has_its_default(config):
    assert config("data.name=sums", "model.name=./m").to_dict() == {
        "name": "", "seed": 0, "deterministic": False, "steps": 100,
        "workflow": "reasoning", "placement": "auto", "runs_dir": "runs",
        "cluster": {"devices": "auto", "address": "", "start_timeout_s": 300.0, "call_timeout_s": 3600.0,
                    "stall_timeout_s": 300.0, "restarts": 3, "fused": False, "weights_delta": False},
        "model": {"name": "./m"},
        "env": {"name": "", "count": 16, "processes": 1, "halves": 0, "group": 1, "episodes": "continue", "resident": True},
        "agent": {"name": "", "max_turns": 8, "max_tokens": 2048, "max_shown_tokens": 1024, "concurrency": 1024,
                  "max_failures": 0.2},
        "tools": {"name": "", "timeout_s": 30.0, "retries": 2, "concurrency": 64, "cache": 4096},
        "data": {"name": "sums", "prompt_key": "", "answer_key": "", "target_key": "", "split": "train", "system_prompt": "",
                 "overlong": "drop", "shuffle": True},
        "reward": {"name": "exact", "timeout_s": 10.0, "processes": 1},
        "algorithm": {"name": "grpo", "epochs": 1, "minibatches": 1, "clip_low": 0.2, "clip_high": 0.28,
                      "aggregation": "token-mean"},
        "rollout": {"prompts": 16, "group_size": 8, "steps": 128, "max_prompt_tokens": 1024, "max_new_tokens": 256,
                    "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "stop": [], "staleness": 0,
                    "in_flight": "continue", "overprovision": 0.0},
        "engine": {"name": "torch", "slots": 32},
        "trainer": {"name": "torch", "lr": 1e-6, "betas": [0.9, 0.999], "micro_batch_tokens": 4096,
                    "train_layers": None, "schedule": "constant", "frozen": []},
        "critic": {"model": "", "lr": 0.0},
        "checkpoint": {"every": 0, "keep_last": 2, "best": ""},
        "eval": {"every": 0, "data": "", "prompts": 128, "k": 1, "temperature": 0.0, "max_new_tokens": 0, "success": 1.0,
                 "episodes": 0, "parallel": 4, "record": 0},
        "log": {"samples": 4, "trace": 100, "events": False, "loggers": []},
    }


class TestPrecedence:
    def test_a_preset_is_above_the_default(self, config):
        assert config("model.name=./m").rollout.max_new_tokens == 3
        assert config("model.name=./m", "data.name=sums").rollout.max_new_tokens == 256

    def test_of_two_presets_the_models_wins_over_the_datas(self, config):
        assert config().rollout.prompts == 6
        assert config("model.name=./m").rollout.prompts == 4

    def test_a_preset_reaches_the_keys_of_other_extensions(self, config):
        found = config()
        assert found.settings("trainer").lr == 1e-3
        assert found.settings("engine").slots == 8

    def test_a_preset_for_an_extension_that_is_not_chosen_is_left_out(self, config):
        found = config("trainer.name=other", "engine.name=remote")
        assert found.settings("trainer") is None
        assert "trainer.lr" not in found.origins

    def test_a_file_is_above_a_preset(self, config, write):
        assert config(files=[write("rollout:\n  prompts: 9\n")]).rollout.prompts == 9

    def test_a_later_file_is_above_an_earlier_one(self, config, write):
        first = write("steps: 1\nseed: 1\n", "a.yaml")
        second = write("steps: 2\n", "b.yaml")
        found = config(files=[first, second])
        assert (found.steps, found.seed) == (2, 1)

    def test_an_argument_is_above_the_files_and_a_later_one_above_an_earlier_one(self, config, write):
        assert config("steps=3", "steps=4", files=[write("steps: 1\n")]).steps == 4

    def test_a_flag_is_above_the_files(self, config, write):
        found = config(files=[write("algorithm.name: grpo\nsteps: 5\n")], algo="sft", steps=7, seed=None)
        assert (found.algorithm.name, found.steps, found.seed) == ("sft", 7, 0)

    def test_the_preset_is_that_of_the_name_that_wins(self, config, write):
        found = config("data.name=sums", files=[write("data.name: digits\n")])
        assert found.rollout.max_new_tokens == 256

    def test_a_list_is_replaced_as_a_whole(self, config, write):
        assert config("rollout.stop=[c]", files=[write("rollout.stop: [a, b]\n")]).rollout.stop == ["c"]


class TestFlags:
    def test_each_sets_its_key(self, config, plugins):
        found = config(algo="sft", model="./m", engine="remote", trainer="other", data="sums", name="first", steps="3",
                       reward="my.rewards:score", seed="4", devices="cpu:2", placement="mine.yaml")
        assert (found.algorithm.name, found.model.name, found.engine.name) == ("sft", "./m", "remote")
        assert (found.trainer.name, found.data.name, found.reward.name) == ("other", "sums", "my.rewards:score")
        assert (found.name, found.steps, found.seed) == ("first", 3, 4)
        assert (found.cluster.devices, found.placement) == ("cpu:2", "mine.yaml")

    def test_one_that_contradicts_an_argument_is_an_error(self, problems):
        assert problems("steps=1", steps="2") == [
            "--steps 2 contradicts steps=1 on the command line: give one of them"]

    def test_one_that_repeats_an_argument_is_not(self, config):
        assert config("steps=2", "algorithm.name=sft", steps=2, algo="sft").steps == 2


class TestExtensions:
    def test_the_chosen_ones_are_there(self, config):
        found = config()
        assert found.extension("trainer").name == "torch"
        assert found.extension("data").name == "digits"
        assert found.extension("workflow").name == "reasoning"
        assert isinstance(found.settings("trainer"), Torch)
        assert found.settings("workflow") is None

    def test_a_model_may_have_a_variant(self, config):
        found = config("model.name=tiny:digits")
        assert found.extension("model").name == "tiny"
        assert found.model.variant == "digits"
        assert config("model.name=tiny").model.variant == ""

    @pytest.mark.parametrize("name", ["./here", "../there", "~/models/qwen", "/models/qwen", "Qwen/Qwen3-8B", ".",
                                      "model.gguf"])
    def test_a_path_or_a_hub_name_is_no_extension(self, config, name):
        found = config(f"model.name={name}")
        assert found.extension("model") is None
        assert found.model.name == name

    def test_a_directory_in_place_is_a_model(self, config, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "mine").mkdir()
        (tmp_path / "tiny").touch()
        assert config("model.name=mine").extension("model") is None
        assert config("model.name=tiny").extension("model").name == "tiny"

    @pytest.mark.parametrize("name", ["train.jsonl", "sets/train", "/data/x.jsonl", "train.parquet"])
    def test_a_file_is_no_extension(self, config, name):
        assert config(f"data.name={name}").extension("data") is None

    def test_a_function_is_a_reward(self, config):
        found = config("reward.name=my_rewards:polite")
        assert (found.extension("reward"), found.settings("reward")) == (None, None)

    def test_a_key_without_default_must_be_given(self, config, problems):
        assert problems("reward.name=judge") == [
            "reward.endpoint is not set and reward judge needs it: give reward.endpoint=VALUE"]
        assert config("reward.name=judge", "reward.endpoint=http://x:1").settings("reward").endpoint == "http://x:1"

    def test_a_preset_may_name_what_is_chosen_after_it(self, make_extension, plugins_with):
        polite = make_extension("polite", preset={"reward.name": "judge", "reward.endpoint": "http://y"})
        found = resolve([], ["data.name=polite"], {}, plugins_with(("dataset", polite)))
        assert found.reward.name == "judge"
        assert found.settings("reward").endpoint == "http://y"
        assert found.origin("reward.name") == "the preset of dataset polite"


class TestBrokenPlugins:
    @pytest.mark.parametrize(("config_class", "words"), [
        ("Colliding", "algorithm bad: its key 'algorithm.epochs' (config_test_plugin:Colliding) is a key of the core"),
        ("Unsupported", "algorithm bad: algorithm.table: a key cannot have the type"),
        ("NoDataclass", "algorithm bad: its configuration config_test_plugin:NoDataclass is no dataclass"),
        ("Missing", "has no attribute 'Missing'"),
    ])
    def test_a_bad_configuration_class_is_told(self, make_extension, plugins_with, config_class, words):
        plugins = plugins_with(("algorithm", make_extension("bad", config_class)))
        with pytest.raises(PluginError) as caught:
            resolve([], ["algorithm.name=bad"], {}, plugins)
        assert words in str(caught.value)

    @pytest.mark.parametrize(("preset", "words"), [
        ({"rollout.promts": 1}, "the preset of algorithm odd sets 'rollout.promts', which is no key."
                                " Did you mean 'rollout.prompts'?"),
        ({"algorithm.clip": 1}, "sets 'algorithm.clip', which is no key"),
        ({"algorithm.name": "x"}, "sets 'algorithm.name', which is chosen before it applies"),
        ({"rollout.prompts": 0}, "rollout.prompts=0 (from the preset of algorithm odd): must be at least 1"),
        ({"rollout.prompts": "many"}, "rollout.prompts=many (from the preset of algorithm odd): an integer is needed"),
    ])
    def test_a_bad_preset_is_told(self, make_extension, plugins_with, preset, words):
        plugins = plugins_with(("algorithm", make_extension("odd", preset=preset)))
        with pytest.raises(PluginError) as caught:
            resolve([], ["algorithm.name=odd", "model.name=./m", "data.name=sums"], {}, plugins)
        assert words in str(caught.value)

    def test_a_missing_requirement_is_told_before_anything_else(self, config):
        with pytest.raises(PluginError, match="surely-not-installed"):
            config("model.name=big", "steps=ten")


class TestValues:
    @pytest.mark.parametrize(("argument", "words"), [
        ("steps=ten", "steps=ten (from the command line): an integer is needed"),
        ("steps=1.5", "steps=1.5 (from the command line): an integer is needed"),
        ("steps=", "steps= (from the command line): an integer is needed"),
        ("steps=null", "steps=null (from the command line): null is not allowed, an integer is needed"),
        ("name=null", "name=null (from the command line): null is not allowed, text is needed"),
        ("name=[a]", "name=[a] (from the command line): text is needed"),
        ("name=a/b", "name=a/b (from the command line): must be letters, digits and . _ + - only"),
        ("trainer.lr=nan", "trainer.lr=nan (from the command line): a finite number is needed"),
        ("trainer.lr=inf", "trainer.lr=inf (from the command line): a finite number is needed"),
        ("trainer.lr=0", "trainer.lr=0 (from the command line): must be more than 0"),
        ("rollout.top_p=1.5", "rollout.top_p=1.5 (from the command line): must be more than 0 and at most 1"),
        ("data.shuffle=maybe", "data.shuffle=maybe (from the command line): true or false is needed"),
        ("rollout.stop=END", "rollout.stop=END (from the command line): a list of texts, as in [a, b], is needed"),
        ("rollout.stop=[END, '']", 'rollout.stop=[END, ""] (from the command line): must be texts that are not empty'),
        ("trainer.betas=[0.9]",
         "trainer.betas=[0.9] (from the command line): a list of 2 values (a number, a number) is needed, there are 1"),
        ("trainer.betas=[0.9, 1]",
         "trainer.betas=[0.9, 1] (from the command line): must be at least 0 and less than 1"),
        ("algorithm.aggregation=mean",
         "algorithm.aggregation=mean (from the command line): must be one of token-mean, sequence-mean"),
        ("trainer.schedule=step", "trainer.schedule=step (from the command line): must be one of constant, cosine"),
        ("cluster.devices=gpu:2", "cluster.devices=gpu:2 (from the command line): must be auto, cpu:N or cuda:N"),
        ("cluster.devices=cpu:0", "cluster.devices=cpu:0 (from the command line): must be auto, cpu:N or cuda:N"),
        ("placement=", "placement= (from the command line): must be auto, temporal, spatial, ROLES:DEVICES,... or a YAML file"),
    ])
    def test_a_wrong_one_is_one_clear_sentence(self, problems, argument, words):
        assert problems(argument) == [words]

    @pytest.mark.parametrize(("argument", "key", "value"), [
        ("steps=1e3", "steps", 1000),
        ("steps=010", "steps", 10),
        ("name=007", "name", "007"),
        ("name=1e3", "name", "1e3"),
        ("name=no", "name", "no"),
        ("name='null'", "name", "null"),
        ("runs_dir=a: b # c", "runs_dir", "a: b # c"),
        ("runs_dir=a=b", "runs_dir", "a=b"),
        ("cluster.address=", "cluster.address", ""),
        ("data.shuffle=off", "data.shuffle", False),
        ("rollout.stop=[\"\\n\", 5, no]", "rollout.stop", ["\n", "5", "no"]),
        ("rollout.temperature=1", "rollout.temperature", 1.0),
    ])
    def test_the_type_of_the_key_decides_how_a_text_is_read(self, config, argument, key, value):
        tree = config(argument).to_dict()
        for part in key.split("."):
            tree = tree[part]
        assert tree == value
        assert type(tree) is type(value)

    def test_an_optional_key_takes_null(self, config, write):
        assert config("trainer.train_layers=3").settings("trainer").train_layers == 3
        assert config("trainer.train_layers=null", files=[write("trainer.train_layers: 3")]).settings(
            "trainer").train_layers is None

    def test_a_mapping_as_argument_sets_several_keys(self, config):
        found = config("rollout={prompts: 2, group_size: 5}")
        assert (found.rollout.prompts, found.rollout.group_size) == (2, 5)


class TestInterpolation:
    def test_takes_the_value_of_another_key(self, config):
        assert config("steps=${rollout.prompts}").steps == 6
        assert config("rollout.group_size=${.prompts}", "rollout.prompts=12").rollout.group_size == 12

    def test_takes_environment_variables_as_text(self, config, monkeypatch):
        monkeypatch.setenv("WHERE", "somewhere")
        monkeypatch.setenv("STEPS", "12")
        found = config("runs_dir=${oc.env:WHERE}/runs", "steps=${oc.env:STEPS}")
        assert (found.runs_dir, found.steps) == ("somewhere/runs", 12)

    def test_works_in_names_and_lists(self, config, write):
        found = config("data.name=${name}", "rollout.stop=['${data.name}', x]", name="sums")
        assert found.extension("data").name == "sums"
        assert found.rollout.stop == ["sums", "x"]

    def test_an_escaped_one_is_text(self, config):
        assert config(r"runs_dir=\${steps}").runs_dir == "${steps}"

    @pytest.mark.parametrize(("argument", "words"), [
        ("steps=${rollout.promts}", "steps=${rollout.promts} (from the command line): there is no key 'rollout.promts' "
                                    "to take the value from. Did you mean 'rollout.prompts'?"),
        ("steps=${runs_dir}", "steps=${runs_dir} (from the command line) gives runs: an integer is needed"),
        ("steps=${steps}", "steps=${steps} (from the command line): cannot be interpolated: Recursive interpolation "
                           "detected"),
        ("steps=${nope:1}", "steps=${nope:1} (from the command line): cannot be interpolated: Unsupported "
                            "interpolation type nope"),
    ])
    def test_a_wrong_one_is_one_clear_sentence(self, problems, argument, words):
        assert problems(argument) == [words]

    def test_a_malformed_one_says_how_to_write_it(self, problems):
        (line,) = problems("steps=${seed")
        assert line.startswith("steps=${seed (from the command line): not a valid interpolation (")
        assert line.endswith("): write ${KEY}, or \\${ for the signs themselves")

    def test_a_missing_variable_is_named(self, problems):
        (line,) = problems("runs_dir=${oc.env:SURELY_NOT_SET}")
        assert "'SURELY_NOT_SET' not found" in line


class TestProblems:
    def test_all_are_told_at_once_the_most_basic_first(self, problems, write):
        file = write("rollout:\n  group_size: 0\n  promts: 3\n")
        assert problems("+seed=1", "algorithm.name=gpro", "steps=ten", files=[file]) == [
            "'+seed=1': hydra's '+' does not exist here, every known key can be set without it: write seed=1",
            "algorithm.name=gpro (from the command line): unknown algorithm 'gpro'. Did you mean 'grpo'? "
            "Available: grpo, sft. See: rlinf plugins",
            "unknown key 'rollout.promts' (from run.yaml:3). Did you mean 'rollout.prompts'? "
            "See: rlinf config keys rollout",
            "rollout.group_size=0 (from run.yaml:2): must be at least 1",
            "steps=ten (from the command line): an integer is needed",
        ]

    def test_of_many_eight_are_shown(self, config):
        with pytest.raises(ConfigError) as caught:
            config(*(f"nothing_{n}=1" for n in range(11)))
        lines = str(caught.value).splitlines()
        assert len(lines) == 9
        assert lines[-1] == "... and 3 more"
        assert len(caught.value.problems) == 11

    def test_an_unknown_name_says_what_else_it_can_be(self, problems):
        assert problems("model.name=qwen")[0].endswith("A directory is written with a '/', a hub name as ORG/NAME")
        assert problems("reward.name=polite")[0].endswith("A function is written module:function")
        assert problems("data.name=gsm8k")[0].endswith(
            "A file's name ends in .jsonl or .parquet, a hub name is written ORG/NAME")

    def test_keys_of_a_section_whose_name_is_unknown_are_not_judged(self, problems):
        (line,) = problems("algorithm.name=gpro", "algorithm.whatever=1")
        assert line.startswith("algorithm.name=gpro")


class TestUnknownKeys:
    @pytest.mark.parametrize(("key", "hint"), [
        ("algorithm.clip_lo", "Did you mean 'algorithm.clip_low'? See: rlinf config keys algorithm"),
        ("rolout.prompts", "Did you mean 'rollout.prompts'? See: rlinf config keys"),
        ("betas", "Did you mean 'trainer.betas'? See: rlinf config keys"),
        ("stps", "Did you mean 'steps'? See: rlinf config keys"),
        ("rollout.minibatches", "Did you mean 'algorithm.minibatches'? See: rlinf config keys rollout"),
        ("quux", "See: rlinf config keys"),
    ])
    def test_the_nearest_is_named(self, problems, key, hint):
        assert problems(f"{key}=1") == [f"unknown key '{key}' (from the command line). {hint}"]

    def test_one_of_another_extension_names_its_owner(self, problems):
        assert problems("algorithm.clip_low=0.1", "algorithm.name=sft") == [
            "'algorithm.clip_low' (from the command line) belongs to algorithm grpo, but algorithm.name is 'sft': "
            "set algorithm.name=grpo, or leave the key out"]

    def test_a_section_is_no_key(self, problems):
        assert problems("algorithm=ppo") == [
            "algorithm=ppo (from the command line): 'algorithm' is a section with keys of its own: "
            "write algorithm.name=ppo"]

    def test_nothing_is_below_a_value(self, problems):
        assert problems("steps.more=1") == [
            "unknown key 'steps.more' (from the command line): 'steps' is a single value, there is nothing below it"]

    def test_a_broken_plugin_beside_does_not_matter(self, make_extension, plugins_with):
        plugins = plugins_with(("algorithm", make_extension("bad", "Missing")))
        with pytest.raises(ConfigError, match=r"unknown key 'algorithm\.bonus'"):
            resolve([], ["algorithm.bonus=1"], {}, plugins)


class TestOrigins:
    def test_each_value_knows_where_it_came_from(self, config, write):
        found = config("steps=2", files=[write("rollout:\n  group_size: 4\nseed: 3\n")], algo="sft")
        assert found.origin("steps") == "the command line"
        assert found.origin("rollout.group_size") == "run.yaml:2"
        assert found.origin("seed") == "run.yaml:3"
        assert found.origin("algorithm.name") == "--algo"
        assert found.origin("rollout.prompts") == "the preset of model tiny"
        assert found.origin("log.samples") == "the default"


def test_it_travels_to_workers(config):
    found = config("trainer.betas=[0.5, 0.6]")
    copy = pickle.loads(pickle.dumps(found))
    assert copy == found
    assert copy.settings("trainer").betas == (0.5, 0.6)
    assert copy.origin("trainer.betas") == "the command line"


def test_it_takes_little_time(config, write):
    file = write("steps: ${rollout.prompts}\nrollout: {prompts: 3, stop: [a, b]}\n")
    config(files=[file])
    start = time.process_time()
    config("trainer.lr=1e-4", files=[file])
    assert time.process_time() - start < 0.2
