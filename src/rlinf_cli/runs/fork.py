"""A new run that begins where another one was: its checkpoint, and what had been written down until then, are copied."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlinf_cli.runs.checkpoints import MANIFEST, STATE, Checkpoint, Checkpoints
from rlinf_cli.runs.directory import RunDirectory
from rlinf_cli.runs.files import explained, files_below, remove_tree
from rlinf_cli.runs.jsonl import copy_lines
from rlinf_cli.runs.preflight import Prepared
from rlinf_cli.runs.state import RunState


@dataclass(frozen=True)
class Parent:
    """What a fork begins with."""

    run: Path
    checkpoint: Checkpoint

    def record(self) -> Mapping[str, Any]:
        """For `run.json` of the fork."""
        return {"parent": {"run": str(self.run.resolve()), "step": self.checkpoint.step}}


def fork(parent: Parent, directory: RunDirectory, prepared: Prepared) -> Checkpoint:
    """Fill the new run's directory; the checkpoint in it to go on from. The parent is only read.

    With other data than the parent's, the fork begins it anew. When anything fails, nothing is left of the new run.
    """
    step = parent.checkpoint.step
    state = RunState.of(parent.checkpoint.state)
    if state.data != prepared.fingerprint:
        state = replace(state, data=prepared.fingerprint, batches=0)
    source = RunDirectory.open(parent.run)
    checkpoints = Checkpoints(directory.checkpoints, best=prepared.config.checkpoint.best)
    try:
        with explained(f"cannot fork {parent.run}@{step} into {directory.path}"):
            copy_lines(source.metrics, directory.metrics, step)
            copy_lines(source.samples, directory.samples, step)
            copy_lines(source.eval_samples, directory.eval_samples, step)
            copy_lines(source.eval_samples, directory.eval_samples, step)
            with checkpoints.write(step, state.to_json()) as path:
                _copy(parent.checkpoint.path, path)
    except BaseException:
        remove_tree(directory.path)
        directory.close()
        raise
    return checkpoints.open(step)


def _copy(source: Path, target: Path) -> None:
    for name in files_below(source):
        if name not in (MANIFEST, STATE):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, target / name)
