"""GRPO's hooks and configuration keys."""

import subprocess
import sys
from dataclasses import asdict, fields
from types import SimpleNamespace

import pytest

import rlinf_grpo
from rlinf_grpo.config import GRPOConfig


def with_group(size):
    return SimpleNamespace(rollout=SimpleNamespace(group_size=size))


def test_the_extension_names_what_can_be_loaded():
    (extension,) = rlinf_grpo.register_algorithms()
    assert extension.name == "grpo"
    assert extension.load_config() is GRPOConfig
    assert extension.load()(GRPOConfig()).config == GRPOConfig()


def test_defaults():
    assert asdict(GRPOConfig()) == {
        "clip_low": 0.2, "clip_high": 0.28, "normalize_std": True, "aggregation": "token-mean"}


def test_limits():
    rules = {field.name: field.metadata["rule"] for field in fields(GRPOConfig) if "rule" in field.metadata}
    assert not rules["clip_low"].allows(0.0)
    assert not rules["clip_low"].allows(1.1)
    assert not rules["clip_high"].allows(-0.1)
    assert not rules["aggregation"].allows("mean")
    assert rules["aggregation"].allows("sequence-mean")


@pytest.mark.parametrize("size", [2, 16])
def test_groups_of_several_are_fine(size):
    assert list(GRPOConfig().problems_with(with_group(size))) == []


def test_a_group_of_one_is_a_problem_that_says_why():
    (problem,) = GRPOConfig().problems_with(with_group(1))
    assert problem == ("rollout.group_size is 1, but GRPO compares the samples of a prompt with each other: "
                       "it must be at least 2")


def test_hooks_and_configuration_are_light():
    heavy = ("torch", "numpy", "transformers", "ray")
    code = (f"import sys, rlinf_grpo, rlinf_grpo.config, rlinf_torch, rlinf_torch.trainer_config; "
            f"rlinf_grpo.register_algorithms(); rlinf_torch.register_trainers(); "
            f"print([name for name in {heavy} if name in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
