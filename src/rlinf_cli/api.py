"""The public names for plugins: a plugin imports from here and from nothing else of the core.

Names are imported when first used, so that an entry-point module stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlinf_cli.commands._shell import emit as emit
    from rlinf_cli.commands._shell import table as table
    from rlinf_cli.config.rules import key as key
    from rlinf_cli.config.schema import RunConfig as RunConfig
    from rlinf_cli.contracts.agent import Agent as Agent
    from rlinf_cli.contracts.agent import Conversation as Conversation
    from rlinf_cli.contracts.agent import EpisodeOver as EpisodeOver
    from rlinf_cli.contracts.agent import Turn as Turn
    from rlinf_cli.contracts.algorithm import Algorithm as Algorithm
    from rlinf_cli.contracts.algorithm import LossInputs as LossInputs
    from rlinf_cli.contracts.algorithm import Returns as Returns
    from rlinf_cli.contracts.algorithm import SegmentReturns as SegmentReturns
    from rlinf_cli.contracts.algorithm import SegmentTargets as SegmentTargets
    from rlinf_cli.contracts.algorithm import ValueInputs as ValueInputs
    from rlinf_cli.contracts.algorithm import ValueTargets as ValueTargets
    from rlinf_cli.contracts.engine import Completion as Completion
    from rlinf_cli.contracts.engine import Engine as Engine
    from rlinf_cli.contracts.engine import Request as Request
    from rlinf_cli.contracts.engine import Sampling as Sampling
    from rlinf_cli.contracts.environment import Demonstrates as Demonstrates
    from rlinf_cli.contracts.environment import Environment as Environment
    from rlinf_cli.contracts.environment import Expert as Expert
    from rlinf_cli.contracts.environment import Start as Start
    from rlinf_cli.contracts.logger import Logger as Logger
    from rlinf_cli.contracts.logger import RunInfo as RunInfo
    from rlinf_cli.contracts.policy import Acted as Acted
    from rlinf_cli.contracts.policy import Evaluated as Evaluated
    from rlinf_cli.contracts.policy import Imitates as Imitates
    from rlinf_cli.contracts.policy import Minibatch as Minibatch
    from rlinf_cli.contracts.policy import Policy as Policy
    from rlinf_cli.contracts.policy import PolicyTrainer as PolicyTrainer
    from rlinf_cli.contracts.policy import Tensors as Tensors
    from rlinf_cli.contracts.policy import Transitions as Transitions
    from rlinf_cli.contracts.sources import BatchReward as BatchReward
    from rlinf_cli.contracts.sources import ModelSource as ModelSource
    from rlinf_cli.contracts.sources import Reward as Reward
    from rlinf_cli.contracts.tool import Tool as Tool
    from rlinf_cli.contracts.tool import ToolError as ToolError
    from rlinf_cli.contracts.tool import ToolSpec as ToolSpec
    from rlinf_cli.contracts.trainer import Adapter as Adapter
    from rlinf_cli.contracts.trainer import LossFunction as LossFunction
    from rlinf_cli.contracts.trainer import Ranks as Ranks
    from rlinf_cli.contracts.trainer import Trainer as Trainer
    from rlinf_cli.contracts.trainer import TrainItem as TrainItem
    from rlinf_cli.contracts.trainer import ValueItem as ValueItem
    from rlinf_cli.contracts.trainer import ValueLossFunction as ValueLossFunction
    from rlinf_cli.contracts.trainer import ValueTrainer as ValueTrainer
    from rlinf_cli.data.rows import Dataset as Dataset
    from rlinf_cli.data.rows import Row as Row
    from rlinf_cli.errors import CapacityError as CapacityError
    from rlinf_cli.errors import PluginError as PluginError
    from rlinf_cli.errors import RlinfError as RlinfError
    from rlinf_cli.errors import RunError as RunError
    from rlinf_cli.errors import UsageError as UsageError
    from rlinf_cli.flow.ports import In as In
    from rlinf_cli.flow.ports import Out as Out
    from rlinf_cli.flow.ports import ports as ports
    from rlinf_cli.flow.worker import Worker as Worker
    from rlinf_cli.models.check import check_directory as check_directory
    from rlinf_cli.models.checksum import weights_checksum as weights_checksum
    from rlinf_cli.models.files import tokenizer_files as tokenizer_files
    from rlinf_cli.models.gguf.convert import convert_gguf as convert_gguf
    from rlinf_cli.models.load import load_causal_lm as load_causal_lm
    from rlinf_cli.models.load import load_sequence_classifier as load_sequence_classifier
    from rlinf_cli.models.load import load_tokenizer as load_tokenizer
    from rlinf_cli.models.load import load_value_model as load_value_model
    from rlinf_cli.models.load import stored_weights as stored_weights
    from rlinf_cli.models.merge import adapted as adapted
    from rlinf_cli.models.merge import base_checksum as base_checksum
    from rlinf_cli.models.merge import load_factors as load_factors
    from rlinf_cli.models.merge import read_adapter as read_adapter
    from rlinf_cli.models.merge import save_factors as save_factors
    from rlinf_cli.models.write import write_model as write_model
    from rlinf_cli.models.write import write_tokenizer as write_tokenizer
    from rlinf_cli.plugins.extension import Extension as Extension
    from rlinf_cli.plugins.hookspecs import hookimpl as hookimpl
    from rlinf_cli.plugins.lifecycle import CheckpointWritten as CheckpointWritten
    from rlinf_cli.plugins.lifecycle import ChosenLogger as ChosenLogger
    from rlinf_cli.plugins.lifecycle import RunEnd as RunEnd
    from rlinf_cli.plugins.lifecycle import RunStart as RunStart
    from rlinf_cli.plugins.lifecycle import StepEnd as StepEnd
    from rlinf_cli.rl.advantages import differing as differing
    from rlinf_cli.rl.advantages import group_advantages as group_advantages
    from rlinf_cli.rl.advantages import sample_sums as sample_sums
    from rlinf_cli.rl.advantages import standardized as standardized
    from rlinf_cli.rl.advantages import sums_to_go as sums_to_go
    from rlinf_cli.rl.gae import segment_gae as segment_gae
    from rlinf_cli.rl.gae import token_gae as token_gae
    from rlinf_cli.rl.kl import KL_ESTIMATORS as KL_ESTIMATORS
    from rlinf_cli.rl.kl import adapted_coefficient as adapted_coefficient
    from rlinf_cli.rl.losses import clipped_surrogate as clipped_surrogate
    from rlinf_cli.rl.losses import importance_weights as importance_weights
    from rlinf_cli.rl.packing import micro_batches as micro_batches
    from rlinf_cli.rl.segment import Episode as Episode
    from rlinf_cli.rl.segment import Segment as Segment
    from rlinf_cli.rl.trajectory import Finish as Finish
    from rlinf_cli.rl.trajectory import Prompt as Prompt
    from rlinf_cli.rl.trajectory import Said as Said
    from rlinf_cli.rl.trajectory import Sample as Sample
    from rlinf_cli.rl.values import RunningMoments as RunningMoments
    from rlinf_cli.rl.values import clipped_value_loss as clipped_value_loss
    from rlinf_cli.rl.values import explained_variance as explained_variance
    from rlinf_cli.sandbox.program import Isolation as Isolation
    from rlinf_cli.sandbox.program import ProgramLimits as ProgramLimits
    from rlinf_cli.sandbox.program import ProgramOutcome as ProgramOutcome
    from rlinf_cli.sandbox.program import isolation as isolation
    from rlinf_cli.sandbox.program import run_python as run_python
    from rlinf_cli.workflows.base import Flow as Flow
    from rlinf_cli.workflows.base import Role as Role
    from rlinf_cli.workflows.base import Step as Step
    from rlinf_cli.workflows.base import Workflow as Workflow
    from rlinf_cli.workflows.reasoning import Reasoning as Reasoning

_HOMES = {
    "emit": "commands._shell",
    "table": "commands._shell",
    "RunConfig": "config.schema",
    "key": "config.schema",
    "Agent": "contracts.agent",
    "Conversation": "contracts.agent",
    "EpisodeOver": "contracts.agent",
    "Turn": "contracts.agent",
    "Algorithm": "contracts.algorithm",
    "LossInputs": "contracts.algorithm",
    "Returns": "contracts.algorithm",
    "SegmentReturns": "contracts.algorithm",
    "SegmentTargets": "contracts.algorithm",
    "ValueInputs": "contracts.algorithm",
    "ValueTargets": "contracts.algorithm",
    "Completion": "contracts.engine",
    "Engine": "contracts.engine",
    "Request": "contracts.engine",
    "Sampling": "contracts.engine",
    "Demonstrates": "contracts.environment",
    "Environment": "contracts.environment",
    "Expert": "contracts.environment",
    "Start": "contracts.environment",
    "Logger": "contracts.logger",
    "RunInfo": "contracts.logger",
    "Acted": "contracts.policy",
    "Evaluated": "contracts.policy",
    "Imitates": "contracts.policy",
    "Minibatch": "contracts.policy",
    "Tensors": "contracts.policy",
    "Policy": "contracts.policy",
    "PolicyTrainer": "contracts.policy",
    "Transitions": "contracts.policy",
    "BatchReward": "contracts.sources",
    "ModelSource": "contracts.sources",
    "Reward": "contracts.sources",
    "Tool": "contracts.tool",
    "ToolError": "contracts.tool",
    "ToolSpec": "contracts.tool",
    "Adapter": "contracts.trainer",
    "LossFunction": "contracts.trainer",
    "Ranks": "contracts.trainer",
    "Trainer": "contracts.trainer",
    "TrainItem": "contracts.trainer",
    "ValueItem": "contracts.trainer",
    "ValueLossFunction": "contracts.trainer",
    "ValueTrainer": "contracts.trainer",
    "Dataset": "data.rows",
    "Row": "data.rows",
    "CapacityError": "errors",
    "PluginError": "errors",
    "RlinfError": "errors",
    "RunError": "errors",
    "UsageError": "errors",
    "In": "flow.ports",
    "Out": "flow.ports",
    "ports": "flow.ports",
    "Worker": "flow.worker",
    "check_directory": "models.check",
    "weights_checksum": "models.checksum",
    "tokenizer_files": "models.files",
    "convert_gguf": "models.gguf.convert",
    "load_causal_lm": "models.load",
    "load_sequence_classifier": "models.load",
    "load_tokenizer": "models.load",
    "load_value_model": "models.load",
    "stored_weights": "models.load",
    "adapted": "models.merge",
    "base_checksum": "models.merge",
    "load_factors": "models.merge",
    "read_adapter": "models.merge",
    "save_factors": "models.merge",
    "write_model": "models.write",
    "write_tokenizer": "models.write",
    "Extension": "plugins.extension",
    "hookimpl": "plugins.hookspecs",
    "CheckpointWritten": "plugins.lifecycle",
    "ChosenLogger": "plugins.lifecycle",
    "RunEnd": "plugins.lifecycle",
    "RunStart": "plugins.lifecycle",
    "StepEnd": "plugins.lifecycle",
    "differing": "rl.advantages",
    "group_advantages": "rl.advantages",
    "sample_sums": "rl.advantages",
    "standardized": "rl.advantages",
    "sums_to_go": "rl.advantages",
    "segment_gae": "rl.gae",
    "token_gae": "rl.gae",
    "KL_ESTIMATORS": "rl.kl",
    "adapted_coefficient": "rl.kl",
    "clipped_surrogate": "rl.losses",
    "importance_weights": "rl.losses",
    "micro_batches": "rl.packing",
    "Episode": "rl.segment",
    "Segment": "rl.segment",
    "Finish": "rl.trajectory",
    "Prompt": "rl.trajectory",
    "Said": "rl.trajectory",
    "Sample": "rl.trajectory",
    "RunningMoments": "rl.values",
    "clipped_value_loss": "rl.values",
    "explained_variance": "rl.values",
    "Isolation": "sandbox.program",
    "ProgramLimits": "sandbox.program",
    "ProgramOutcome": "sandbox.program",
    "isolation": "sandbox.program",
    "run_python": "sandbox.program",
    "Flow": "workflows.base",
    "Role": "workflows.base",
    "Step": "workflows.base",
    "Workflow": "workflows.base",
    "Reasoning": "workflows.reasoning",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rlinf_cli.api' has no attribute {name!r}")
    return getattr(importlib.import_module(f"rlinf_cli.{_HOMES[name]}"), name)
