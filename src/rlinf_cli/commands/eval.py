"""`rlinf eval`: how often a policy succeeds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlinf_cli.commands._shell import emit, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence



@click.command("eval")
@click.argument("policy", metavar="RUN|MODEL")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--env", metavar="NAME|NAME:TASK|ID", help="Environment to act in, of a policy: env.name.")
@click.option("--data", metavar="NAME|FILE", help="What to evaluate on.  [default: of a run, eval.data or its training data]")
@click.option("--k", type=click.IntRange(min=1), metavar="K", help="Responses to each prompt: eval.k.")
@click.option("--record", type=click.IntRange(min=0), metavar="N", help="Keep videos of the first N episodes: eval.record.")
@click.option("--reward", metavar="NAME|MODULE:FUNCTION", help="Reward: reward.name.")
@click.option("--devices", metavar="auto|cpu:N|cuda:N", help="Devices to use: cluster.devices.")
@click.option("--seed", metavar="N", help="Seed of every random choice: seed.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Write every sample to FILE, one JSON object a line.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def evaluate(policy: str, arguments: Sequence[str], data: str | None, k: int | None, record: int | None, out: Path | None,
             as_json: bool, **flags: Any) -> None:
    """Answer the prompts of a data set, or act in an environment, and count the successes.

    RUN is a run's directory or name, RUN@STEP or RUN@best; MODEL is a name or directory. The result does not depend on
    the number of devices, nor on how many environments are stepped at once. Keys: rlinf config keys eval
    """
    from rlinf_cli.plugins.loader import plugins
    from rlinf_cli.runs import eval_session
    from rlinf_cli.runs.progress import progress

    options = {"eval.k": k, "eval.record": record}
    overrides = [*arguments, *[f"{key}={value}" for key, value in options.items() if value is not None]]
    session = eval_session.open_eval(policy, overrides, data, flags, plugins())
    with progress(1, 1, sys.stderr) as shown:
        done = eval_session.evaluate(session, shown, out)
    document = done.document()
    emit(document, as_json, lambda: table(("", ""), list(_rows(document, out))))


def _rows(document: dict[str, Any], out: Path | None) -> Iterator[tuple[str, str]]:
    yield "policy", document["policy"]
    yield from _episode_rows(document) if "environment" in document else _answer_rows(document)
    if out is not None:
        yield "samples", str(out)
    yield "time", f"{document['seconds']:.1f} s on {document['devices']} device{'s' * (document['devices'] > 1)}"


def _answer_rows(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    k, sampled = document["k"], f"temperature {document['temperature']:g}, seed {document['seed']}"
    for task in document["tasks"]:
        yield "data", f"{task['task']}, {task['prompts']} prompts, {k} response{'s' * (k > 1)} to each ({sampled})"
        yield "successes", f"{task['successes']} of {task['trials']}"
        yield f"mean@{k}", _rate(task, f"mean@{k}", document["confidence"])
        for name in [name for name in task if name.startswith("pass@") and not name.endswith("_interval")]:
            if k > 1:
                yield name, _rate(task, name, document["confidence"])
        yield "reward", f"{task['reward']:.3f}" + (f", {task['errors']} responses without one" if task["errors"] else "")
        yield "length", f"{task['response_len']:.1f} tokens, {100 * task['truncated']:.0f} % cut off"


def _episode_rows(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    how = "the likeliest actions" if document["deterministic"] else "drawn actions"
    for task in document["tasks"]:
        k = task["trials"] // task["states"]
        yield "task", f"{task['task']}, {task['states']} initial states, {k} episode{'s' * (k > 1)} from each ({how}, seed " \
                      f"{document['seed']})"
        yield "successes", f"{task['successes']} of {task['trials']}"
        yield f"mean@{k}", _rate(task, f"mean@{k}", document["confidence"])
        yield "return", f"{task['reward']:.3f}, {task['episode_len']:.1f} steps, {100 * task['truncated']:.0f} % cut off"
    for place, video in enumerate(document.get("videos", ())):
        yield "" if place else "videos", video


def _rate(task: dict[str, Any], name: str, confidence: float) -> str:
    interval = task.get(f"{name}_interval")
    within = f"  ({100 * confidence:.0f} %: {interval[0]:.3f} to {interval[1]:.3f})" if interval else ""
    return f"{task[name]:.3f}{within}"
