"""`rlinf demos`: write down how an environment's own expert does its tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from rlinf_cli.commands._options import split
from rlinf_cli.commands._shell import emit, table
from rlinf_cli.errors import RunError


@click.command()
@click.argument("arguments", nargs=-1, metavar="[CONFIG]... [KEY=VALUE]...")
@click.option("--env", metavar="NAME|NAME:TASK", help="Environment with an expert, such as libero:object: env.name.")
@click.option("--seed", metavar="N", help="Seed of every random choice: seed.")
@click.option("--episodes", type=click.IntRange(min=1), default=50, show_default=True,
              help="Episodes of each task, from its initial states in order.")
@click.option("--noise", type=click.FloatRange(min=0), default=0.0, show_default=True, metavar="S",
              help="Standard deviation of noise on what is done, in halves of an action's range; what is written down is what "
                   "the expert would have done.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), default=Path("demos.hdf5"), show_default=True,
              metavar="FILE", help="Where to.")
@click.option("--overwrite", is_flag=True, help="Replace the file, if it is there.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
def demos(arguments: Sequence[str], env: str | None, seed: str | None, episodes: int, noise: float, out: Path, overwrite: bool,
          as_json: bool) -> None:
    """Write demonstrations of an environment's own expert, for `rlinf train --algo bc`.

    Episodes that do not end in success are left out and counted. env.processes=N shows N at a time.
    """
    from rlinf_cli.config.load import resolve
    from rlinf_cli.data.demonstrations import write_demonstrations
    from rlinf_cli.plugins.loader import plugins
    from rlinf_cli.runs.demonstrating import demonstrate, errands
    from rlinf_cli.workers.environments.build import build_environment

    if out.exists() and not overwrite:
        raise click.UsageError(f"{out} exists: name another file with --out, or replace it with --overwrite")
    files, overrides = split(arguments)
    config = resolve(files, overrides, {"env": env, "seed": seed}, plugins())
    environment = build_environment(config)
    wanted = errands(config, environment, episodes, noise)
    shown = demonstrate(environment, config.env.processes, wanted, lambda one: click.echo(_line(one, len(wanted)), err=True))
    good = [one.demonstration for one in shown if one.success]
    if not good:
        raise RunError(f"the expert succeeded in none of {len(shown)} episodes, so that nothing was written")
    write_demonstrations(out, good, config.env.name, config.to_dict()["env"])
    result = {"file": str(out), "demonstrations": len(good), "failed": len(shown) - len(good), "steps": sum(map(len, good))}
    emit(result, as_json, lambda: table(("", ""), [(name, str(value)) for name, value in result.items()]))


def _line(one: Any, total: int) -> str:
    told = one.demonstration
    ended = "done" if one.success else "failed"
    return f"{one.number + 1}/{total}  {told.task or told.instruction}, state {told.state}: {ended} after {len(told)} steps"
