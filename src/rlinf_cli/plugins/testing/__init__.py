"""Checks that an implementation keeps the contract of its kind, for the tests of whoever writes one.

A check takes the class (or its `Extension`) and an instance of its configuration dataclass; it raises AssertionError with a
sentence for each violation that it finds::

    from rlinf_cli.plugins.testing import check_reward

    def test_it_keeps_the_contract():
        check_reward(Politeness, PolitenessConfig(bonus=0.5))

`tiny_model` and `samples` are pytest fixtures: a test module that imports them can use them. `make_model` and
`make_samples` make the same without pytest, `make_segment` experience of an environment. `play_episode` plays an agent's episode
with a policy that says what it is told to.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlinf_cli.plugins.testing.agent import check_agent as check_agent
    from rlinf_cli.plugins.testing.algorithm import check_algorithm as check_algorithm
    from rlinf_cli.plugins.testing.dataset import check_dataset as check_dataset
    from rlinf_cli.plugins.testing.engine import check_engine as check_engine
    from rlinf_cli.plugins.testing.environment import check_environment as check_environment
    from rlinf_cli.plugins.testing.fixtures import samples as samples
    from rlinf_cli.plugins.testing.fixtures import tiny_model as tiny_model
    from rlinf_cli.plugins.testing.logger import check_logger as check_logger
    from rlinf_cli.plugins.testing.material import make_model as make_model
    from rlinf_cli.plugins.testing.material import make_samples as make_samples
    from rlinf_cli.plugins.testing.model import check_model as check_model
    from rlinf_cli.plugins.testing.policy import check_policy as check_policy
    from rlinf_cli.plugins.testing.reward import check_reward as check_reward
    from rlinf_cli.plugins.testing.segments import make_segment as make_segment
    from rlinf_cli.plugins.testing.stage import play_episode as play_episode
    from rlinf_cli.plugins.testing.tool import check_tool as check_tool
    from rlinf_cli.plugins.testing.trainer import check_trainer as check_trainer
    from rlinf_cli.plugins.testing.workflow import check_workflow as check_workflow

_HOMES = {
    "check_agent": "agent",
    "check_algorithm": "algorithm",
    "check_dataset": "dataset",
    "check_engine": "engine",
    "check_environment": "environment",
    "check_logger": "logger",
    "check_model": "model",
    "check_policy": "policy",
    "check_reward": "reward",
    "check_tool": "tool",
    "check_trainer": "trainer",
    "check_workflow": "workflow",
    "make_model": "material",
    "make_samples": "material",
    "make_segment": "segments",
    "play_episode": "stage",
    "samples": "fixtures",
    "tiny_model": "fixtures",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rlinf_cli.plugins.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(f"rlinf_cli.plugins.testing.{_HOMES[name]}"), name)
