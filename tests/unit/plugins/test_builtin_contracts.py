"""The built-in extensions keep the contracts that third parties' are held to."""

from dataclasses import replace

import pytest
import torch

from rlinf_agents.calculator import Calculator
from rlinf_agents.config import CalculatorConfig
from rlinf_cli.config.load import resolve
from rlinf_cli.plugins.testing import (
    check_agent,
    check_algorithm,
    check_dataset,
    check_engine,
    check_logger,
    check_model,
    check_reward,
    check_tool,
    check_trainer,
    check_workflow,
)
from rlinf_grpo import VARIANTS
from rlinf_grpo.algorithm import GRPO
from rlinf_grpo.config import GRPOConfig
from rlinf_torch.engine_config import TorchEngineConfig
from rlinf_torch.trainer_config import TorchTrainerConfig


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", [*VARIANTS, "ppo", "sft"])
def test_algorithms(name, plugins):
    config = resolve([], [f"algorithm.name={name}"], {}, plugins)
    check_algorithm(plugins.get("algorithm", name), config.settings("algorithm"))


@pytest.mark.parametrize("keys", [
    {"kl_coef": 0.1, "entropy_coef": 0.1, "importance_cap": 2.0},
    {"kl_coef": 0.1, "kl_in": "reward", "overlong_buffer": 0.2},
    {"importance_cap": 2.0, "importance_level": "sequence", "ratio_level": "sequence", "dual_clip": 3.0},
    {"aggregation": "sequence-mean", "zero_variance": "drop", "overlong_filter": True},
])
def test_algorithms_with_everything_on(keys):
    check_algorithm(GRPO, GRPOConfig(**keys))


def test_engine(plugins):
    check_engine(plugins.get("engine", "torch"), TorchEngineConfig(offload="weights"))


def test_trainer(plugins):
    small = TorchTrainerConfig(micro_batch_tokens=9)
    check_trainer(plugins.get("trainer", "torch"), TorchTrainerConfig(lr=1e-4, offload="file"), [
        replace(small, lr=1e-4), TorchTrainerConfig(lr=1e-4, micro_batch_tokens=30, activations="recompute")])


@pytest.mark.parametrize("name", ["exact", "format", "regex"])
def test_rewards(name, plugins):
    check_reward(plugins.get("reward", name))


def test_a_reward_with_keys_that_must_be_set(plugins):
    from rlinf_rewards.config import LengthConfig

    check_reward(plugins.get("reward", "length"), LengthConfig(target=4))


@pytest.mark.parametrize("name", ["digits", "countdown"])
def test_datasets(name, plugins):
    check_dataset(plugins.get("dataset", name))


@pytest.mark.parametrize("variant", ["", "qwen3"])
def test_models(variant, plugins):
    check_model(plugins.get("model", "tiny"), variant)


def test_loggers(plugins):
    check_logger(plugins.get("logger", "tensorboard"))


@pytest.mark.parametrize("name", ["reasoning", "supervised"])
@pytest.mark.parametrize("algorithm", ["algorithm.name=dapo", "algorithm.kl_coef=0.1"])
def test_workflows(name, algorithm, plugins):
    check_workflow(plugins.get("workflow", name), resolve([], [algorithm], {}, plugins))


@pytest.mark.parametrize("settings", [[], ["agent.invalid=Once more."], ["agent.answer_tag="]])
def test_the_agent_tags(settings, plugins):
    config = resolve([], ["agent.name=tags", *settings], {}, plugins)
    check_agent(plugins.get("agent", "tags"), config.settings("agent"), scripts=[["<echo>a</echo>", "<answer>b</answer>"]])


def test_the_agent_functions(plugins):
    call = '<tool_call>{"name": "calculator", "arguments": {"expression": "6 * 7"}}</tool_call>'
    check_agent(plugins.get("agent", "functions"))
    check_agent(plugins.get("agent", "functions"), None, [Calculator(CalculatorConfig())], [[f"{call}\n{call}", "42"]])


@pytest.mark.parametrize(("name", "calls"), [
    ("calculator", [("calculator", {"expression": "1 / 3"}), ("calculator", {"expression": "6 * 7"})]),
    ("python", [("python", {"code": "print(6 * 7)"}), ("python", {"code": "1 / 0"})]),
    ("search", [("search", {"query": "the river"}), ("search", {"query": "a harbour"})]),
])
def test_tools(name, calls, plugins):
    check_tool(plugins.get("tool", name), None, calls)
