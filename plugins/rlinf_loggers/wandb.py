"""Weights & Biases. A run that is resumed goes on in the same wandb run."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping

import wandb

from rlinf_cli.api import RunInfo, UsageError
from rlinf_loggers.config import WandbConfig

_FINISH_S = 120.0
"""How long the end of a run waits for the upload; `wandb sync` brings what is left."""


class Wandb:
    """Implements `rlinf_cli.api.Logger`.

    wandb takes each step once: those that it got before the run went back to a checkpoint keep their values.
    """

    def __init__(self, config: WandbConfig, run: RunInfo) -> None:
        mode = wandb.setup().settings.mode if config.mode == "auto" else config.mode
        if mode == "online" and not wandb.login(prompt=False, verify=False):
            raise UsageError("wandb has no account to write to: run 'wandb login', set WANDB_API_KEY, or set "
                             "log.wandb.mode=offline")
        self.tracker_id = run.tracker_id or uuid.uuid4().hex[:8]
        # the command line, which wandb would note too, may hold secrets
        settings = wandb.Settings(console="off", silent=True, x_disable_meta=True, finish_timeout=_FINISH_S)
        self._run = wandb.init(
            project=config.project or os.environ.get("WANDB_PROJECT", "rlinf"), entity=config.entity or None,
            group=config.group or None, tags=config.tags, name=run.name, config=dict(run.config), dir=str(run.directory),
            id=self.tracker_id, resume="allow" if run.tracker_id else None,
            mode=None if config.mode == "auto" else config.mode, settings=settings,
        )
        self._logged = max(run.logged, self._run.starting_step - 1)
        self.place = f"wandb sync {run.directory}/wandb/offline-run-*" if self._run.offline else self._run.url

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if step > self._logged:
            self._run.log(dict(metrics), step=step, commit=True)

    def close(self, status: str) -> None:
        self._run.finish(exit_code=0 if status == "finished" else 1)
