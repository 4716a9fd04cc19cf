"""What `rlinf train` does: check, make or find the run, train, and say how it ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.errors import UsageError
from rlinf_cli.plugins.loader import plugins
from rlinf_cli.runs.checkpoints import Checkpoint, open_checkpoint
from rlinf_cli.runs.directory import PROFILE, RunDirectory
from rlinf_cli.runs.fork import Parent, fork
from rlinf_cli.runs.launch import TrainRun
from rlinf_cli.runs.metrics import read_metrics
from rlinf_cli.runs.naming import default_name, locate
from rlinf_cli.runs.preflight import Prepared, admit, cautions, prepare
from rlinf_cli.runs.progress import Progress
from rlinf_cli.runs.redact import redact
from rlinf_cli.runs.settings import differences, parse_settings, read_settings, shown
from rlinf_cli.runs.state import RunState
from rlinf_cli.runs.summary import final, measured, summary_lines

Configure = Callable[[Sequence[Path]], RunConfig]
"""From the configuration files of a run that is gone on from to the resolved configuration."""


@dataclass(frozen=True)
class Session:
    """A run that may start: checked, and told whether it begins or goes on."""

    prepared: Prepared
    path: Path
    resume: Checkpoint | None = None
    """Where it goes on from; a checkpoint of the parent, if it is a fork."""
    parent: Path | None = None
    """The run that it is a fork of."""
    notes: tuple[str, ...] = ()
    """What is different from now on, a line each."""

    @property
    def plan(self) -> str:
        beginning = self.prepared.beginning
        return f"devices of the cluster at {self.prepared.config.cluster.address}" if beginning is None else beginning.line


def open_session(configure: Configure, resume: str | None, name: str, runs_dir: Path, origin: str | None = None) -> Session:
    """Resolve and check everything.

    `resume`: a run, or one of its checkpoints, to go on from; "" for the run `name` · `origin`: the same, for a new run
    that is a fork of it · both None: a new run. The content of every file of the checkpoint is compared.
    """
    if resume is not None and origin is not None:
        raise UsageError("--resume and --fork contradict each other: --resume goes on with a run, --fork begins a new one")
    if resume is not None:
        return _resumed(configure, resume or name, runs_dir)
    if origin is not None:
        return _forked(configure, origin, name, runs_dir)
    config = configure([])
    return Session(prepare(config, plugins()), Path(config.runs_dir) / (config.name or _made_up(config)))


def _resumed(configure: Configure, run: str, runs_dir: Path) -> Session:
    if not run:
        raise UsageError("--resume needs to know which run: write --resume RUN, or --name NAME --resume")
    found = locate(run, runs_dir)
    checkpoint = open_checkpoint(found, True, "start it again with --overwrite")
    config = configure([found.run / "config.yaml"])
    _check_goes_on(config, checkpoint, found.run)
    prepared = prepare(config, plugins(), found.run / PROFILE)
    _check_data(prepared, checkpoint, found.run)
    return Session(prepared, found.run, checkpoint, notes=tuple(_changes(config, found.run)))


def _forked(configure: Configure, origin: str, name: str, runs_dir: Path) -> Session:
    found = locate(origin, runs_dir)
    checkpoint = open_checkpoint(found, True, "there is nothing to fork")
    config = configure([found.run / "config.yaml"])
    # the parent's name stands in its configuration, but is not meant for the fork
    inherited = not name and config.name == read_settings(found.run / "config.yaml").get("name")
    config = replace(config, name="" if inherited else config.name)
    path = Path(config.runs_dir) / (config.name or f"{found.run.resolve().name}-fork")
    if path.resolve() == found.run.resolve():
        raise UsageError(f"a fork is a run of its own, beside {found.run}: give it another --name")
    _check_goes_on(config, checkpoint, found.run)
    return Session(prepare(config, plugins()), path, checkpoint, found.run, tuple(_changes(config, found.run)))


def train(session: Session, overwrite: bool, progress: Progress) -> dict[str, Any]:
    """Train to the last step; what came of it. Raises RlinfError as `TrainRun.execute` does."""
    config, began = session.prepared.config, time.monotonic()
    left_out: list[str] = []
    prepared = admit(session.prepared, plugins(), left_out.append)
    directory, resume = _open_directory(session, overwrite)
    progress.message("run", f"{directory.path}{_origin(session)}")
    for number, note in enumerate(session.notes):
        progress.message("" if number else "changed", note)
    progress.message("plan", session.plan)
    for number, text in enumerate(dict.fromkeys(left_out)):  # training and evaluation may share a file
        progress.message("" if number else "data", text)
    for text in cautions(prepared):
        progress.message("note", text)
    with directory.attempt(sys.argv) as attempt:
        run = TrainRun(prepared, directory, attempt.logs, resume, progress)
        run.execute()
    rows, seconds = read_metrics(directory.metrics), time.monotonic() - began
    progress.close()
    for line in summary_lines(directory.path, rows, seconds, 1 if resume is None else resume.step + 1, config.checkpoint.best,
                              run.warning):
        print(line, file=sys.stderr)
    return {"run": str(directory.path), "steps": config.steps, "seconds": round(seconds, 3), **outcome(rows)}


def outcome(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """First and final reward (mean over the last tenth of the steps) of a run, or loss where it has none, and what it
    took."""
    measure, values = measured(rows)
    reached = {f"first_{measure}": values[0], measure: final(values)} if values else {}
    return {**reached, "tokens": rows[-1]["progress/tokens"]}


def _made_up(config: RunConfig) -> str:
    what = config.env.name.partition(":")[2] or config.env.name or config.parts("data")[0].name
    return default_name(config.algorithm.name, what, config.model.name.partition(":")[0], datetime.now())


def _origin(session: Session) -> str:
    if session.resume is None:
        return ""
    return f", from step {session.resume.step}" + (f" of {session.parent}" if session.parent else "")


def _check_goes_on(config: RunConfig, checkpoint: Checkpoint, run: Path) -> None:
    if checkpoint.step >= config.steps:
        raise UsageError(f"{run} has trained {checkpoint.step} of {config.steps} steps already: "
                         f"ask for more with --steps N (N above {checkpoint.step})")


def _check_data(prepared: Prepared, checkpoint: Checkpoint, run: Path) -> None:
    """Other rows would be called by the same numbers: what a resume then trains is not what is left of the data."""
    known = RunState.of(checkpoint.state).data
    if known != prepared.fingerprint:
        raise UsageError(f"the data is not what {run} was trained on up to step {checkpoint.step} "
                         f"(data.name={prepared.config.data.name} has another content, or was generated differently): "
                         f"put it back, or begin a new run from there with: rlinf train --fork {run}@{checkpoint.step}")


def _changes(config: RunConfig, run: Path) -> Iterator[str]:
    """What is set otherwise than it was, and what that means for a schedule."""
    path = run / "config.yaml"
    changed = differences(read_settings(path), parse_settings(redact(config.to_yaml())))
    changed = {key: values for key, values in changed.items() if key not in _OF_NO_EFFECT}
    if changed:
        yield ", ".join(f"{key} {shown(before)} → {shown(after)}" for key, (before, after) in changed.items())
    schedule = getattr(config.settings("trainer"), "schedule", "constant")
    if "steps" in changed and schedule != "constant":
        yield (f"the {schedule} schedule of the learning rate ends at step {config.steps}, so the steps from here on are not "
               "those of a run without a stop")


_OF_NO_EFFECT = ("name", "runs_dir")
"""Keys that change nothing in what is trained."""


def _open_directory(session: Session, overwrite: bool) -> tuple[RunDirectory, Checkpoint | None]:
    """The run's directory, and the checkpoint in it to go on from."""
    config, resume = session.prepared.config, session.resume
    if resume is not None and session.parent is None:
        if overwrite:
            raise UsageError("--overwrite and --resume contradict each other: leave one out")
        return RunDirectory.open(session.path), resume
    parent = None if resume is None or session.parent is None else Parent(session.parent, resume)
    directory = RunDirectory.create(session.path.parent, session.path.name, overwrite, config.to_yaml(),
                                    parent.record() if parent else {}, unique=not config.name)
    return directory, fork(parent, directory, session.prepared) if parent else None
