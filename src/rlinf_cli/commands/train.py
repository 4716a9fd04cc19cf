"""`rlinf train`: check everything, then train."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlinf_cli.commands._options import resolved, run_options
from rlinf_cli.commands._shell import emit

if TYPE_CHECKING:
    from rlinf_cli.runs.session import Session


@click.command()
@run_options
@click.option("--resume", is_flag=False, flag_value="", default=None, metavar="[RUN]",
              help="Go on from the last checkpoint of RUN, or from RUN@STEP or RUN@best; without RUN, with the run --name.")
@click.option("--fork", "origin", metavar="RUN[@STEP]",
              help="Begin a new run that goes on from a checkpoint of RUN, with other settings; RUN stays as it is.")
@click.option("--overwrite", is_flag=True, help="Replace an existing run of this name.")
@click.option("--dry-run", is_flag=True, help="Resolve, check, place and print; start nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
def train(resume: str | None, origin: str | None, overwrite: bool, dry_run: bool, as_json: bool, **params: Any) -> None:
    """Train a policy by reinforcement learning.

    CONFIG is a YAML file, KEY=VALUE sets a single key, later ones win. See: rlinf config keys
    """
    from rlinf_cli.runs.session import open_session

    session = open_session(lambda before: resolved(params, before=before), resume, params["name"] or "", Path("runs"), origin)
    if dry_run:
        emit(_document(session), as_json, lambda: _text(session))
        return
    result = _train(session, overwrite)
    if as_json:
        emit(result, True, lambda: None)


def _train(session: Session, overwrite: bool) -> dict[str, Any]:
    from rlinf_cli.runs.progress import progress
    from rlinf_cli.runs.session import train as run

    first = 1 if session.resume is None else session.resume.step + 1
    with progress(session.prepared.config.steps, first, sys.stderr) as shown:
        return run(session, overwrite, shown)


def _document(session: Session) -> dict[str, Any]:
    from rlinf_cli.runs.preflight import cautions

    placement = session.prepared.placement
    return {"run": str(session.path), "resume": str(session.resume.path) if session.resume else None,
            "fork": str(session.parent) if session.parent else None, "changes": list(session.notes),
            "config": session.prepared.config.to_dict(), "plan": session.plan,
            "notes": list(cautions(session.prepared)),
            "placement": None if placement is None else {role: [list(rank) for rank in ranks]
                                                         for role, ranks in placement.items()},
            "fused": [] if placement is None else [list(roles) for roles in placement.fused],
            "granularity": {} if placement is None else {role: list(bounds) for role, bounds in placement.granularity.items()}}


def _text(session: Session) -> str:
    from rlinf_cli.runs.preflight import cautions

    notes = [f"{'changed' if not number else '':<11}{note}" for number, note in enumerate(session.notes)]
    cautious = [f"note       {text}" for text in cautions(session.prepared)]
    lines = [f"run        {session.path}", *notes, f"plan       {session.plan}", *cautious, "",
             session.prepared.config.to_yaml().rstrip(), "", "nothing was started (--dry-run)"]
    return "\n".join(lines)
