"""docs/algorithms.md: its table has every built-in algorithm with its preset, and its text no key that is not there."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

import rlinf_grpo
import rlinf_ppo
import rlinf_sft
from rlinf_cli.config.fields import core_keys
from rlinf_cli.rl.kl import KL_ESTIMATORS
from rlinf_grpo.config import GRPOConfig
from rlinf_ppo.config import PPOConfig
from rlinf_torch.trainer_config import TorchTrainerConfig

PAGE = (Path(__file__).parents[3] / "docs" / "algorithms.md").read_text(encoding="utf-8")
EXTENSIONS = {one.name: one for plugin in (rlinf_grpo, rlinf_ppo, rlinf_sft) for one in plugin.register_algorithms()}
ROWS = dict(re.findall(r"^\| `([^`]+)` \|.*\| ([^|]*)\|$", PAGE.partition("## ")[0], re.MULTILINE))
SOURCES = dict(re.findall(r"^\| `([^`]+)` \|.*arXiv ([\d.]+)", PAGE.partition("## ")[0], re.MULTILINE))


def test_every_algorithm_has_a_row():
    assert list(ROWS) == list(EXTENSIONS)


@pytest.mark.parametrize("name", EXTENSIONS)
def test_the_row_has_the_preset(name):
    assert dict(re.findall(r"`([\w.]+)=([^`]+)`", ROWS[name])) == {
        key: str(value) for key, value in EXTENSIONS[name].preset.items()}


@pytest.mark.parametrize("name", SOURCES)
def test_the_row_has_the_source_that_the_code_names(name):
    code = "".join(path.read_text() for plugin in (rlinf_grpo, rlinf_ppo) for path in Path(plugin.__file__).parent.glob("*.py"))
    assert f"arXiv {SOURCES[name]}" in code


def test_every_key_is_explained():
    text, rest = PAGE.partition("## The keys")[2].split("## PPO")
    assert {field.name for field in fields(GRPOConfig)} <= set(re.findall(r"`(\w+)", text))
    ppo = rest.partition("## Supervised")[0]
    assert {field.name for field in fields(PPOConfig)} <= set(re.findall(r"`(\w+)", ppo))


def test_it_names_no_key_that_is_not_there():
    keys = {f"algorithm.{field.name}" for config in (GRPOConfig, PPOConfig) for field in fields(config)} | set(core_keys())
    keys |= {f"trainer.{field.name}" for field in fields(TorchTrainerConfig)}
    named = re.findall(r"`((?:algorithm|rollout|data|trainer)\.\w+)", PAGE)
    assert [key for key in named if key not in keys] == []


def test_every_estimator_has_a_row():
    assert re.findall(r"^\| `(k\d)` \|", PAGE, re.MULTILINE) == list(KL_ESTIMATORS)
