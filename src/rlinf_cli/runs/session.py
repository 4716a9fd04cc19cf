"""What `rlinf train` does: check, make or find the run, train, and say how it ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.errors import UsageError
from rlinf_cli.flow.placement import describe
from rlinf_cli.plugins.loader import plugins
from rlinf_cli.runs.checkpoints import Checkpoint, Checkpoints
from rlinf_cli.runs.directory import RunDirectory
from rlinf_cli.runs.launch import TrainRun
from rlinf_cli.runs.metrics import read_metrics
from rlinf_cli.runs.naming import CHECKPOINTS, Reference, default_name, locate
from rlinf_cli.runs.preflight import Prepared, prepare
from rlinf_cli.runs.progress import Progress
from rlinf_cli.runs.summary import summary_lines

Configure = Callable[[Sequence[Path]], RunConfig]
"""From configuration files that come before the user's own to the resolved configuration."""


@dataclass(frozen=True)
class Session:
    """A run that may start: checked, and told whether it begins or goes on."""

    prepared: Prepared
    path: Path
    resume: Checkpoint | None

    @property
    def plan(self) -> str:
        placement = self.prepared.placement
        return f"devices of the cluster at {self.prepared.config.cluster.address}" if placement is None else describe(placement)


def open_session(configure: Configure, resume: str | None, name: str, runs_dir: Path) -> Session:
    """Resolve and check everything. `resume`: None for a new run; a run, or one of its checkpoints, to go on from; ""
    for the run `name`."""
    if resume is None:
        config = configure([])
        return Session(prepare(config, plugins()), Path(config.runs_dir) / (config.name or _made_up(config)), None)
    if not resume and not name:
        raise UsageError("--resume needs to know which run: write --resume RUN, or --name NAME --resume")
    found = locate(resume or name, runs_dir)
    checkpoint = _checkpoint(found)
    config = configure([found.run / "config.yaml"])
    _check_goes_on(config, checkpoint, found.run)
    return Session(prepare(config, plugins()), found.run, checkpoint)


def train(session: Session, overwrite: bool, progress: Progress) -> dict[str, Any]:
    """Train to the last step; what came of it. Raises RlinfError as `TrainRun.execute` does."""
    config, resume = session.prepared.config, session.resume
    directory, began = _open_directory(session, overwrite), time.monotonic()
    progress.message("run", f"{directory.path}" + (f", from step {resume.step}" if resume else ""))
    progress.message("plan", session.plan)
    with directory.attempt(sys.argv) as attempt:
        directory.write_config(config.to_yaml())
        TrainRun(session.prepared, directory, attempt.logs, resume, progress).execute()
    rows, seconds = read_metrics(directory.metrics), time.monotonic() - began
    progress.close()
    for line in summary_lines(directory.path, rows, seconds, 1 if resume is None else resume.step + 1):
        print(line, file=sys.stderr)
    return {"run": str(directory.path), "steps": config.steps, "seconds": round(seconds, 3), **outcome(rows)}


def outcome(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """First and final reward (mean over the last tenth of the steps) of a run, and what it took."""
    rewards = [row["reward/mean"] for row in rows]
    tail = rewards[-max(1, round(len(rewards) / 10)) :]
    return {"first_reward": rewards[0], "reward": sum(tail) / len(tail), "tokens": rows[-1]["progress/tokens"]}


def _made_up(config: RunConfig) -> str:
    return default_name(config.algorithm.name, config.data.name, config.model.name.partition(":")[0], datetime.now())


def _checkpoint(found: Reference) -> Checkpoint:
    checkpoints = Checkpoints(found.run / CHECKPOINTS)
    if found.step is not None:
        return checkpoints.open(found.step)
    latest = checkpoints.latest()
    if latest is None:
        raise UsageError(f"{found.run} has no checkpoint to go on from: start it again with --overwrite")
    return latest


def _check_goes_on(config: RunConfig, checkpoint: Checkpoint, run: Path) -> None:
    if checkpoint.step >= config.steps:
        raise UsageError(f"{run} has trained {checkpoint.step} of {config.steps} steps already: "
                         f"ask for more with --steps N (N above {checkpoint.step})")


def _open_directory(session: Session, overwrite: bool) -> RunDirectory:
    config = session.prepared.config
    if session.resume is None:
        return RunDirectory.create(session.path.parent, session.path.name, overwrite, config.to_yaml(), {},
                                   unique=not config.name)
    if overwrite:
        raise UsageError("--overwrite and --resume contradict each other: leave one out")
    return RunDirectory.open(session.path)
