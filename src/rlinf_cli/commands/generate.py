"""`rlinf generate`: look at what a policy answers."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from rlinf_cli.commands._shell import emit
from rlinf_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlinf_cli.rl.trajectory import Prompt
    from rlinf_cli.runs.generation import Generator


@click.command()
@click.argument("policy", metavar="MODEL|RUN")
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--prompt", "texts", metavar="TEXT", multiple=True, help="What to answer; can be repeated.")
@click.option("--data", metavar="NAME|FILE", help="Answer the first rows of a data set.")
@click.option("--rows", type=click.IntRange(min=1), default=4, show_default=True, help="How many rows of --data.")
@click.option("--max-new-tokens", type=click.IntRange(min=1), metavar="N",
              help="Longest response.  [default: that of the run; 256 for a model]")
@click.option("--temperature", type=click.FloatRange(min=0), metavar="T",
              help="Sampling temperature; 0 takes the likeliest tokens.  [default: 0; 1 with --n]")
@click.option("--n", "responses", type=click.IntRange(min=1), default=1, show_default=True, help="Responses to each prompt.")
@click.option("--seed", type=int, metavar="N", help="Seed of the random choices.")
@click.option("--system", default="", metavar="TEXT", help="System message before the prompts.")
@click.option("--raw", is_flag=True, help="Give prompts to the model as they are, without its chat template.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document at the end.")
def generate(policy: str, arguments: Sequence[str], texts: Sequence[str], data: str | None, rows: int, as_json: bool,
             seed: int | None, **asked: Any) -> None:
    """Answer prompts with MODEL (a name or directory) or with a checkpoint of RUN (RUN@STEP, RUN@best), in this process.

    Without --prompt and --data each line of the standard input is a prompt. Answers are printed as they are finished.
    """
    from rlinf_cli.plugins.loader import plugins
    from rlinf_cli.runs.generation import Asked, Generator, configuration
    from rlinf_cli.runs.reference import find_policy

    if data is not None and (texts or asked["system"] or asked["raw"]):
        raise UsageError("--data brings its own prompts: leave out --prompt, --system and --raw")
    found = find_policy(policy, plugins())
    lines = [] if data is not None else list(texts) or _lines()
    config = configuration(found, arguments, data, seed, plugins())
    generator = Generator(found, config, Asked(**asked), plugins())
    prompts = generator.prompts(lines) if data is None else generator.rows(rows)
    answers = _show(generator, prompts, quiet=as_json)
    if as_json:
        emit({"policy": found.label, "seed": config.seed, "answers": answers}, True, str)


def _lines() -> list[str]:
    if sys.stdin.isatty():
        raise UsageError("there is nothing to answer: give --prompt TEXT or --data FILE, or pipe prompts in, one a line")
    lines = [line for line in sys.stdin.read().splitlines() if line.strip()]
    if not lines:
        raise UsageError("there is nothing to answer: the standard input holds no line")
    return lines


def _show(generator: Generator, prompts: Sequence[Prompt], quiet: bool) -> list[dict[str, Any]]:
    """Print each answer as it comes, unless `quiet`; all of them, in the order of the prompts."""
    asked = [prompt.text or (prompt.messages or [{"content": ""}])[-1]["content"] for prompt in prompts]
    answers = []
    for answer in generator.answers(prompts):
        answers.append(answer)
        if not quiet:
            ending = "" if answer.finish == "stop" else f"  [cut off after {answer.tokens} tokens]"
            click.echo(f"> {asked[answer.prompt]}\n{answer.text}{ending}\n")
    answers.sort(key=lambda answer: (answer.prompt, answer.number))
    return [{**asdict(answer), "prompt": asked[answer.prompt]} for answer in answers]
