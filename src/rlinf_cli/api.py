"""The public names for plugins: a plugin imports from here and from nothing else of the core.

Names are imported when first used, so that an entry-point module stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlinf_cli.config.schema import key as key
    from rlinf_cli.contracts.algorithm import Algorithm as Algorithm
    from rlinf_cli.contracts.algorithm import LossInputs as LossInputs
    from rlinf_cli.contracts.algorithm import Returns as Returns
    from rlinf_cli.contracts.engine import Completion as Completion
    from rlinf_cli.contracts.engine import Engine as Engine
    from rlinf_cli.contracts.engine import Request as Request
    from rlinf_cli.contracts.engine import Sampling as Sampling
    from rlinf_cli.contracts.logger import Logger as Logger
    from rlinf_cli.contracts.logger import RunInfo as RunInfo
    from rlinf_cli.contracts.sources import ModelSource as ModelSource
    from rlinf_cli.contracts.sources import Reward as Reward
    from rlinf_cli.contracts.trainer import Adapter as Adapter
    from rlinf_cli.contracts.trainer import LossFunction as LossFunction
    from rlinf_cli.contracts.trainer import Ranks as Ranks
    from rlinf_cli.contracts.trainer import Trainer as Trainer
    from rlinf_cli.contracts.trainer import TrainItem as TrainItem
    from rlinf_cli.data.rows import Dataset as Dataset
    from rlinf_cli.data.rows import Row as Row
    from rlinf_cli.errors import CapacityError as CapacityError
    from rlinf_cli.errors import PluginError as PluginError
    from rlinf_cli.errors import RlinfError as RlinfError
    from rlinf_cli.errors import RunError as RunError
    from rlinf_cli.errors import UsageError as UsageError
    from rlinf_cli.models.checksum import weights_checksum as weights_checksum
    from rlinf_cli.models.load import load_causal_lm as load_causal_lm
    from rlinf_cli.models.load import load_tokenizer as load_tokenizer
    from rlinf_cli.models.load import stored_weights as stored_weights
    from rlinf_cli.plugins.extension import Extension as Extension
    from rlinf_cli.plugins.hookspecs import hookimpl as hookimpl
    from rlinf_cli.plugins.lifecycle import CheckpointWritten as CheckpointWritten
    from rlinf_cli.plugins.lifecycle import RunEnd as RunEnd
    from rlinf_cli.plugins.lifecycle import RunStart as RunStart
    from rlinf_cli.plugins.lifecycle import StepEnd as StepEnd
    from rlinf_cli.rl.advantages import group_advantages as group_advantages
    from rlinf_cli.rl.losses import clipped_surrogate as clipped_surrogate
    from rlinf_cli.rl.packing import micro_batches as micro_batches
    from rlinf_cli.rl.trajectory import Finish as Finish
    from rlinf_cli.rl.trajectory import Prompt as Prompt
    from rlinf_cli.rl.trajectory import Sample as Sample

_HOMES = {
    "key": "config.schema",
    "Algorithm": "contracts.algorithm",
    "LossInputs": "contracts.algorithm",
    "Returns": "contracts.algorithm",
    "Completion": "contracts.engine",
    "Engine": "contracts.engine",
    "Request": "contracts.engine",
    "Sampling": "contracts.engine",
    "Logger": "contracts.logger",
    "RunInfo": "contracts.logger",
    "ModelSource": "contracts.sources",
    "Reward": "contracts.sources",
    "Adapter": "contracts.trainer",
    "LossFunction": "contracts.trainer",
    "Ranks": "contracts.trainer",
    "Trainer": "contracts.trainer",
    "TrainItem": "contracts.trainer",
    "Dataset": "data.rows",
    "Row": "data.rows",
    "CapacityError": "errors",
    "PluginError": "errors",
    "RlinfError": "errors",
    "RunError": "errors",
    "UsageError": "errors",
    "weights_checksum": "models.checksum",
    "load_causal_lm": "models.load",
    "load_tokenizer": "models.load",
    "stored_weights": "models.load",
    "Extension": "plugins.extension",
    "hookimpl": "plugins.hookspecs",
    "CheckpointWritten": "plugins.lifecycle",
    "RunEnd": "plugins.lifecycle",
    "RunStart": "plugins.lifecycle",
    "StepEnd": "plugins.lifecycle",
    "group_advantages": "rl.advantages",
    "clipped_surrogate": "rl.losses",
    "micro_batches": "rl.packing",
    "Finish": "rl.trajectory",
    "Prompt": "rl.trajectory",
    "Sample": "rl.trajectory",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rlinf_cli.api' has no attribute {name!r}")
    return getattr(importlib.import_module(f"rlinf_cli.{_HOMES[name]}"), name)
