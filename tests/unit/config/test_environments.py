"""What naming an environment brings with it."""

import pytest

from rlinf_cli.config.errors import ConfigError
from rlinf_cli.config.load import check, resolve
from rlinf_cli.plugins.loader import load_plugins


@pytest.fixture(scope="module")
def installed():
    return load_plugins(None)


def resolved(installed, *arguments, **flags):
    return resolve([], list(arguments), flags, installed)


class TestName:
    def test_none_is_the_default_and_brings_nothing(self, installed):
        config = resolved(installed)
        assert config.env.name == ""
        assert config.extension("env") is None
        assert config.workflow == "reasoning"

    @pytest.mark.parametrize("name", ["CartPole-v1", "gymnasium:CartPole-v1"])
    def test_an_id_is_gymnasium_s(self, installed, name):
        config = resolved(installed, env=name)
        assert config.extension("env").name == "gymnasium"
        assert config.settings("env").task == "CartPole-v1"
        assert config.env.name == name

    def test_it_chooses_workflow_policy_and_algorithm(self, installed):
        config = resolved(installed, env="CartPole-v1")
        assert (config.workflow, config.model.name, config.algorithm.name) == ("embodied", "mlp", "ppo")
        assert config.extension("model").target.endswith("MLPPolicy")
        assert config.cluster.fused
        assert config.settings("algorithm").gamma == 0.99

    def test_what_is_said_otherwise_comes_first(self, installed):
        config = resolved(installed, "cluster.fused=false", env="CartPole-v1", model="cnn", algo="grpo")
        assert (config.model.name, config.algorithm.name, config.cluster.fused) == ("cnn", "grpo", False)

    def test_a_file_that_was_written_resolves_to_the_same(self, installed, tmp_path):
        config = resolved(installed, "rollout.steps=7", env="gymnasium:CartPole-v1")
        (tmp_path / "config.yaml").write_text(config.to_yaml())
        assert resolve([tmp_path / "config.yaml"], [], {}, installed) == config


class TestMistakes:
    @pytest.mark.parametrize("algorithm", ["ppo", "grpo"])
    def test_an_algorithm_of_rewards_on_demonstrations(self, installed, algorithm):
        config = resolved(installed, "workflow=cloning", env="CartPole-v1", algo=algorithm)
        with pytest.raises(ConfigError, match=rf"workflow=cloning .* which algorithm\.name={algorithm} does not learn from"):
            check(config)

    def test_an_environment_that_there_is_not(self, installed):
        with pytest.raises(ConfigError, match=r"env\.name=gymnasum.*unknown environment 'gymnasum'.*[Dd]id you mean 'gymnasium'"):
            resolved(installed, env="gymnasum")

    def test_two_tasks(self, installed):
        with pytest.raises(ConfigError, match=r"env\.task=Acrobot-v1 .*contradicts env\.name=CartPole-v1"):
            resolved(installed, "env.task=Acrobot-v1", env="CartPole-v1")

    def test_minibatches_need_not_divide_what_may_be_lost(self, installed):
        check(resolved(installed, "algorithm.minibatches=7", env="CartPole-v1"))
