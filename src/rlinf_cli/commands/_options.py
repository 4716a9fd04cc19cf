"""What commands that take a configuration share: CONFIG and KEY=VALUE arguments, and flags for the commonest keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rlinf_cli.config.schema import RunConfig

Command = TypeVar("Command", bound=Callable[..., Any])

_FLAGS = {
    "algo": ("NAME", "Algorithm: algorithm.name."),
    "env": ("NAME|NAME:TASK|ID", "Environment to act in, such as CartPole-v1 or maniskill:PushCube-v1: env.name."),
    "model": ("NAME|DIR", "Model to train, or policy of an environment: model.name."),
    "engine": ("NAME", "Generation engine: engine.name."),
    "trainer": ("NAME", "Trainer: trainer.name."),
    "data": ("NAME|FILE|ORG/NAME", "Prompts, a data set or file, or several: 'a.jsonl + 0.5*digits' (data.name)."),
    "reward": ("NAME|MODULE:FUNCTION", "Reward, or several: 'math + 0.2*format' (reward.name)."),
    "name": ("TEXT", "Name of the run: name."),
    "steps": ("N", "Steps to train: steps."),
    "seed": ("N", "Seed of every random choice: seed."),
    "devices": ("auto|cpu:N|cuda:N", "Devices to use: cluster.devices."),
    "placement": ("auto|temporal|spatial|ROLES:DEVICES,...|FILE", "Which role runs on which devices: placement."),
}


def run_options(command: Command) -> Command:
    """Add `[CONFIG]... [KEY=VALUE]...` and the flags to a command, which passes its parameters to `resolved`.

    Example::

        @click.command()
        @run_options
        @click.option("--dry-run", is_flag=True)
        def train(dry_run: bool, **params: Any) -> None:
            config = resolved(params)
    """
    for flag, (metavar, text) in reversed(_FLAGS.items()):
        command = click.option(f"--{flag}", metavar=metavar, help=text)(command)
    return click.argument("arguments", nargs=-1, metavar="[CONFIG]... [KEY=VALUE]...")(command)


def resolved(params: Mapping[str, Any], before: Sequence[Path] = ()) -> RunConfig:
    """The configuration that the parameters of a command with `run_options` stand for; other parameters are ignored.

    `before`: CONFIG files of a run that is gone on from. Raises what `rlinf_cli.config.load.resolve` raises.
    """
    from rlinf_cli.config.load import resolve
    from rlinf_cli.plugins.loader import plugins

    files, overrides = split(params["arguments"])
    return resolve(files, overrides, {flag: params[flag] for flag in _FLAGS}, plugins(), before)


def split(arguments: Sequence[str]) -> tuple[list[Path], list[str]]:
    """CONFIG files and KEY=VALUE arguments. What is neither goes with the arguments, where it is explained."""
    files = [argument for argument in arguments if _is_file(argument)]
    return [Path(file).expanduser() for file in files], [a for a in arguments if not _is_file(a)]


def _is_file(argument: str) -> bool:
    if "=" in argument or argument.startswith("+"):
        return False
    looks_like_one = "/" in argument or argument.endswith((".yaml", ".yml", ".json"))
    return looks_like_one or Path(argument).exists()
