"""The hooks, the configuration keys, and what does not go together."""

import subprocess
import sys
from dataclasses import asdict, fields
from types import SimpleNamespace

import pytest

import rlinf_grpo
from rlinf_cli.config.errors import ConfigError
from rlinf_cli.config.load import check, resolve
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.rl.aggregation import MODES
from rlinf_cli.rl.kl import KL_ESTIMATORS
from rlinf_grpo import VARIANTS
from rlinf_grpo.config import GRPOConfig

RULES = {field.name: field.metadata["rule"] for field in fields(GRPOConfig) if "rule" in field.metadata}
CLAUSE = "compares the samples of a prompt with each other: it must be at least 2"


def run_config(workflow="reasoning", **rollout):
    chosen = {"group_size": 8, "top_k": 0, "top_p": 1.0, "min_p": 0.0, **rollout}
    return SimpleNamespace(workflow=workflow, algorithm=SimpleNamespace(name="grpo"), rollout=SimpleNamespace(**chosen))


def problems(config=None, **keys):
    return list(GRPOConfig(**keys).problems_with(config or run_config()))


def test_the_extensions_name_what_can_be_loaded():
    extensions = rlinf_grpo.register_algorithms()
    assert [extension.name for extension in extensions] == list(VARIANTS)
    for extension in extensions:
        assert extension.load_config() is GRPOConfig
        assert extension.load()(GRPOConfig()).config == GRPOConfig()
        assert all(key.startswith("algorithm.") for key in extension.preset)


def test_defaults_are_grpo_without_anything_else():
    assert asdict(GRPOConfig()) == {
        "baseline": "group", "normalize": "group", "aggregation": "token-mean", "ratio_level": "token",
        "clip_low": 0.2, "clip_high": 0.28, "dual_clip": 0.0,
        "kl_coef": 0.0, "kl_in": "loss", "kl_estimator": "auto", "entropy_coef": 0.0,
        "importance_cap": 0.0, "importance_level": "token", "importance_mode": "truncate",
        "zero_variance": "keep", "rounds": 1,
        "overlong_buffer": 0.0, "overlong_penalty": 1.0, "overlong_filter": False}


@pytest.mark.parametrize(("key", "value"), [
    ("clip_low", 0.0), ("clip_low", 1.1), ("clip_high", -0.1), ("dual_clip", -1.0), ("kl_coef", -0.1),
    ("entropy_coef", -0.1), ("importance_cap", -1.0), ("rounds", 0), ("overlong_buffer", 1.1), ("overlong_penalty", 0.0),
    ("aggregation", "mean"), ("baseline", "mean"), ("normalize", "std"), ("ratio_level", "sample"), ("kl_in", "both"),
    ("kl_estimator", "k4"), ("importance_level", "sample"), ("importance_mode", "clip"), ("zero_variance", "skip")])
def test_what_breaks_a_limit(key, value):
    assert not RULES[key].allows(value)


def test_choices_are_those_that_there_are():
    assert RULES["aggregation"].choices == MODES
    assert RULES["kl_estimator"].choices == ("auto", *KL_ESTIMATORS)


def test_the_estimator_follows_where_it_counts():
    assert GRPOConfig().estimator == "k3"
    assert GRPOConfig(kl_in="reward").estimator == "k1"
    assert GRPOConfig(kl_in="reward", kl_estimator="k2").estimator == "k2"


class TestGroups:
    @pytest.mark.parametrize("size", [2, 16])
    @pytest.mark.parametrize("name", VARIANTS)
    def test_of_several_are_fine(self, name, size):
        assert problems(run_config(group_size=size), **VARIANTS[name][1]) == []

    @pytest.mark.parametrize(("keys", "named"), [
        ({}, "baseline=group"),
        ({"baseline": "leave-one-out", "normalize": "none"}, "baseline=leave-one-out"),
        ({"baseline": "none", "normalize": "batch", "rounds": 3}, "rounds=3"),
        ({"baseline": "none", "normalize": "batch", "zero_variance": "drop"}, "zero_variance=drop"),
    ])
    def test_of_one_are_a_problem_that_says_why(self, keys, named):
        assert problems(run_config(group_size=1), **keys) == [f"rollout.group_size is 1, but algorithm.{named} {CLAUSE}"]

    def test_of_one_are_fine_when_nothing_is_compared(self):
        assert problems(run_config(group_size=1), **VARIANTS["reinforce++"][1]) == []


class TestProblems:
    @pytest.mark.parametrize("normalize", ["group", "none"])
    def test_nothing_to_compare_with(self, normalize):
        assert problems(baseline="none", normalize=normalize) == [
            f"algorithm.baseline=none with algorithm.normalize={normalize} compares rewards with nothing: "
            "use algorithm.normalize=batch, or another baseline"]

    @pytest.mark.parametrize("value", [0.5, 1.0])
    def test_bounds_that_would_hold_everything(self, value):
        assert problems(dual_clip=value) == [
            f"algorithm.dual_clip is {value}, but it bounds a ratio that begins at 1: it must be more than 1, or 0 for none"]
        assert problems(importance_cap=value) == [
            f"algorithm.importance_cap is {value}, but it bounds weights that are 1 where engine and trainer agree: "
            "it must be more than 1, or 0 for none"]
        assert problems(dual_clip=3.0, importance_cap=2.0) == []

    def test_an_estimator_without_a_gradient(self):
        (problem,) = problems(kl_coef=0.1, kl_estimator="k1")
        assert problem == ("algorithm.kl_estimator=k1 as a term of the loss has a gradient of 0 on average: use k2 or k3, "
                           "or algorithm.kl_in=reward")
        assert problems(kl_coef=0.1, kl_estimator="k1", kl_in="reward", normalize="none") == []
        assert problems(kl_estimator="k1") == []

    def test_a_divergence_that_would_be_blown_up(self):
        (problem,) = problems(kl_coef=0.1, kl_in="reward")
        assert problem.startswith("algorithm.kl_in=reward with algorithm.normalize=group divides differences in divergence")
        for normalize in ("batch", "none"):
            assert problems(kl_coef=0.1, kl_in="reward", normalize=normalize) == []
        assert problems(kl_in="reward") == []

    @pytest.mark.parametrize(("name", "value"), [("top_k", 5), ("top_p", 0.9), ("min_p", 0.1)])
    def test_probabilities_that_cannot_be_compared(self, name, value):
        config = run_config(**{name: value})
        (problem,) = problems(config, importance_cap=2.0)
        assert problem == (f"algorithm.importance_cap has nothing to go by with rollout.{name}={value}: the engine's "
                           f"probabilities are then of a truncated distribution; leave rollout.{name} out, or the correction")
        assert problems(config) == []

    def test_a_workflow_without_rewards(self):
        assert problems(run_config("supervised")) == [
            "workflow=supervised has no rewards, which algorithm.name=grpo learns from: use algorithm.name=sft or "
            "workflow=reasoning"]

    def test_they_reach_the_user(self):
        words = ["algorithm.name=rloo", "algorithm.dual_clip=0.5", "rollout.group_size=1"]
        with pytest.raises(ConfigError) as caught:
            check(resolve([], words, {}, load_plugins(third_party=False)))
        assert "rollout.group_size is 1, but algorithm.baseline=leave-one-out" in str(caught.value)
        assert "algorithm.dual_clip is 0.5" in str(caught.value)


def test_hooks_and_configuration_are_light():
    heavy = ("torch", "numpy", "transformers", "ray")
    code = (f"import sys, rlinf_grpo, rlinf_grpo.config, rlinf_grpo.problems, rlinf_sft, rlinf_sft.config, rlinf_torch, "
            f"rlinf_torch.trainer_config; rlinf_grpo.register_algorithms(); rlinf_sft.register_algorithms(); "
            f"rlinf_torch.register_trainers(); print([name for name in {heavy} if name in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
