"""What a workflow knows of the algorithm, and which roles follow from it."""

import subprocess
import sys

import pytest

from rlinf_cli.contracts.algorithm import Algorithm
from rlinf_cli.workers.algorithm import build_algorithm, trait
from rlinf_cli.workflows.reasoning import Reasoning
from rlinf_cli.workflows.supervised import Supervised


def roles(workflow, config):
    return {role.name: role for role in workflow.roles(config)}


@pytest.mark.parametrize("name", ["needs_reference", "needs_critic", "rounds", "per_group", "supervised"])
@pytest.mark.parametrize("settings", [
    (), ("algorithm.name=dapo", "algorithm.kl_coef=0.1"), ("algorithm.name=sft",), ("algorithm.name=ppo",),
    ("algorithm.name=ppo", "algorithm.kl_coef=0.1", "algorithm.normalize_advantages=false")])
def test_the_configuration_says_what_the_algorithm_would(configure, name, settings):
    config = configure(*settings)
    assert trait(config, name) == getattr(build_algorithm(config), name)


def test_an_algorithm_without_such_keys_is_asked_itself(configure, monkeypatch):
    class Odd(Algorithm):
        needs_reference = True

    config = configure()
    extension = config.extension("algorithm")
    monkeypatch.setattr(type(config), "settings", lambda self, section: None)
    monkeypatch.setattr(type(extension), "load", lambda self: Odd)
    assert trait(config, "needs_reference") is True
    assert trait(config, "rounds") == 1


def test_a_reference_is_there_only_when_it_is_needed(configure):
    assert list(roles(Reasoning(), configure())) == ["rollout", "reward", "actor"]
    found = roles(Reasoning(), configure("algorithm.kl_coef=0.1"))
    assert list(found) == ["rollout", "reward", "reference", "actor"]
    assert found["reference"].ranks == "all"
    assert [role.name for role in found.values() if role.stateful] == ["actor"]


def test_a_critic_is_there_for_ppo_and_keeps_a_state_like_the_actor(configure):
    found = roles(Reasoning(), configure("algorithm.name=ppo", "algorithm.kl_coef=0.1"))
    assert list(found) == ["rollout", "reward", "reference", "critic", "actor"]
    assert [role.name for role in found.values() if role.stateful] == ["critic", "actor"]
    assert [role.name for role in found.values() if role.scores] == ["reference", "critic"]
    assert list(roles(Reasoning(), configure("algorithm.name=ppo"))) == ["rollout", "reward", "critic", "actor"]


def test_a_reward_with_a_model_of_its_own_scores_on_devices(configure, tiny, monkeypatch):
    plain, config = roles(Reasoning(), configure())["reward"], configure()
    assert (plain.ranks, plain.scores) == ("one", False)
    monkeypatch.setattr("rlinf_cli.workflows.reasoning.is_on_device", lambda part: True)
    judge = roles(Reasoning(), config)["reward"]
    assert (judge.ranks, judge.scores) == ("all", True)
    assert judge.worker.endswith(":RewardModelWorker")


def test_supervised_training_has_a_rollout_only_to_evaluate(configure):
    assert list(roles(Supervised(), configure("algorithm.name=sft"))) == ["examples", "actor"]
    assert list(roles(Supervised(), configure("algorithm.name=sft", "eval.every=5"))) == [
        "examples", "rollout", "reward", "actor"]


def test_planning_does_not_import_torch():
    """It would take longer than all else that is checked before a run starts."""
    code = ("import sys; from rlinf_cli.config.load import resolve; from rlinf_cli.plugins.loader import load_plugins\n"
            "from rlinf_cli.runs.preflight import prepare\n"
            "for algorithm in ('dapo', 'sft', 'ppo'):\n"
            "    installed = load_plugins(None)\n"
            "    prepare(resolve([], [f'algorithm.name={algorithm}', 'cluster.devices=cpu:1'], {}, installed), installed)\n"
            "assert not {'torch', 'transformers', 'ray'} & set(sys.modules)")
    subprocess.run([sys.executable, "-c", code], check=True)
