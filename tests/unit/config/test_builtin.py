"""The recipes, the documentation and the commonest mistakes, with the plugins that are really there."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from rlinf_cli.commands._options import split
from rlinf_cli.config.catalogue import catalogue, markdown_tables
from rlinf_cli.config.errors import ConfigError
from rlinf_cli.config.load import check, resolve
from rlinf_cli.config.source import FLAGS, read_file
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.plugins.registry import Plugins

ROOT = Path(__file__).parents[3]
RECIPES = sorted((ROOT / "configs").glob("*.yaml"))
DOCUMENT = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def built_in():
    return load_plugins(third_party=False)


@pytest.fixture(scope="module")
def installed(built_in):
    """The built-in plugins as if all that they require were installed."""
    def free(offer):
        return replace(offer, state="ok", problem="", extension=replace(offer.extension, requires=()))
    return Plugins([replace(info, state="ok", provides=tuple(map(free, info.provides))) for info in built_in.plugins])


class TestRecipes:
    @pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
    def test_has_twenty_keys_or_fewer(self, path):
        assert 1 <= len(read_file(path)) <= 20

    @pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
    def test_resolves_and_fits_together(self, path, installed):
        config = resolve([path], [], {}, installed)
        check(config)
        assert {config.origin(one.key) for one in read_file(path)} == {one.origin for one in read_file(path)}

    def test_digits_has_the_numbers_that_are_known_to_learn(self, installed):
        config = resolve([ROOT / "configs" / "grpo-digits.yaml"], [], {}, installed)
        assert (config.rollout.prompts, config.rollout.group_size, config.rollout.max_new_tokens) == (32, 16, 3)
        assert (config.algorithm.minibatches, config.rollout.temperature) == (2, 1.0)
        assert (config.settings("algorithm").clip_low, config.settings("algorithm").clip_high) == (0.2, 0.28)
        assert config.settings("trainer").lr == 5e-4

    def test_digits_is_what_there_is_without_a_recipe(self, installed):
        recipe = resolve([ROOT / "configs" / "grpo-digits.yaml"], [], {}, installed)
        assert resolve([], [], {"algo": "grpo"}, installed) == recipe

    def test_smollm2_has_the_numbers_that_are_known_to_learn(self, installed):
        config = resolve([ROOT / "configs" / "grpo-smollm2.yaml"], [], {}, installed)
        assert (config.rollout.prompts, config.rollout.group_size, config.rollout.max_new_tokens) == (4, 8, 10)
        assert (config.settings("trainer").lr, config.settings("trainer").train_layers) == (2e-5, 10)
        assert (config.settings("reward").ended, config.settings("reward").extract) == (0.2, "auto")


class TestMistakes:
    """Scenario C1: one sentence that names key, value and rule."""

    @pytest.mark.parametrize(("arguments", "sentence"), [
        (["rollout.group_size=0"], "rollout.group_size=0 (from the command line): must be at least 1"),
        (["trainer.micro_batch_tokens=0"], "trainer.micro_batch_tokens=0 (from the command line): must be at least 1"),
        (["algorithm.minibatches=3"],
         "algorithm.minibatches=3 (from the command line): the 512 samples of a step (rollout.prompts 32 x "
         "rollout.group_size 16) cannot be split into 3 equal parts: 2 or 4 would do"),
        (["algorithm.clip_lo=0.1"], "unknown key 'algorithm.clip_lo' (from the command line). Did you mean "
                                    "'algorithm.clip_low'? See: rlinf config keys algorithm"),
        (["trainer.learning_rate=0.1"],
         "unknown key 'trainer.learning_rate' (from the command line). See: rlinf config keys trainer"),
        (["algorithm.name=gpro"], "algorithm.name=gpro (from the command line): unknown algorithm 'gpro'. Did you mean "
                                  "'grpo'? Available: bc, dapo, dr-grpo, grpo, gspo, ppo, reinforce++, rloo, "
                                  "sft. See: rlinf plugins"),
    ])
    def test_one_clear_sentence(self, built_in, arguments, sentence):
        with pytest.raises(ConfigError) as caught:
            check(resolve([], arguments, {}, built_in))
        assert str(caught.value) == sentence

    def test_a_group_of_one_says_why_it_is_too_small(self, built_in):
        with pytest.raises(ConfigError, match=r"rollout\.group_size"):
            check(resolve([], ["rollout.group_size=1"], {}, built_in))


class TestDocumentation:
    def test_the_key_tables_are_those_of_the_code(self, built_in):
        table = DOCUMENT.partition("<!-- keys -->\n\n")[2].partition("\n<!-- /keys -->")[0]
        assert table == markdown_tables(catalogue(built_in)), "rlinf --no-plugins config keys --markdown"

    def test_the_flags_are_those_of_the_code(self):
        assert dict(re.findall(r"^\| `--(\w+)` \| `([\w.]+)` \|$", DOCUMENT, re.MULTILINE)) == dict(FLAGS)

    def test_every_error_shown_is_what_is_said(self, built_in):
        examples = re.findall(r"^\$ rlinf train (.*)\nError: ((?:.+\n)+?)```", DOCUMENT, re.MULTILINE)
        assert len(examples) == 2
        for command, said in examples:
            files, overrides = split(shlex.split(command))
            with pytest.raises(ConfigError) as caught:
                resolve(files, overrides, {}, built_in)
            assert f"{caught.value}\n" == said

    def test_the_yaml_examples_resolve(self, built_in, tmp_path):
        examples = re.findall(r"^```yaml\n(.*?)```", DOCUMENT, re.MULTILINE | re.DOTALL)
        assert len(examples) == 3
        for text in examples:
            (tmp_path / "run.yaml").write_text(text, encoding="utf-8")
            resolve([tmp_path / "run.yaml"], [], {}, built_in)
