"""The command line: `rlinf`. A command's module is imported when the command runs, not before."""

from __future__ import annotations

import click

from rlinf_cli import __version__
from rlinf_cli.commands._shell import Shell
from rlinf_cli.environment import environment

COMMANDS = {
    "train": ("rlinf_cli.commands.train:train", "Train a policy by reinforcement learning."),
    "eval": ("rlinf_cli.commands.eval:evaluate", "Measure how often a policy succeeds on a data set."),
    "generate": ("rlinf_cli.commands.generate:generate", "Show what a policy answers to prompts."),
    "demos": ("rlinf_cli.commands.demos:demos", "Write down how an environment's expert does its tasks."),
    "profile": ("rlinf_cli.commands.profile:profile", "Measure what each role of a run costs on this machine."),
    "plan": ("rlinf_cli.commands.plan:plan", "Find the fastest placement of a run's roles; say why."),
    "simulate": ("rlinf_cli.commands.simulate:simulate", "Say what a plan would do, here or on other devices."),
    "runs": ("rlinf_cli.commands.runs:runs", "List runs, look at one, compare some."),
    "trace": ("rlinf_cli.commands.trace:trace", "Show where the time of a run's steps went, device by device."),
    "export": ("rlinf_cli.commands.export:export", "Write a trained policy as a Hugging Face directory."),
    "config": ("rlinf_cli.commands.config:config", "Show configuration keys, values and the schema."),
    "corpus": ("", "Make an index of documents for agents; serve it."),
    "plugins": ("rlinf_cli.commands.plugins:plugins", "List plugins, what they provide and why one failed."),
    "doctor": ("rlinf_cli.commands.doctor:doctor", "Say what is missing or broken here."),
}
"""Command -> where it is (empty: in a plugin, which may be a third party's too), and its line in `rlinf --help`."""


@click.group("rlinf", cls=Shell, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.option("--no-plugins", is_flag=True, help="Use the built-in plugins only.  [env: RLINF_NO_PLUGINS=1]")
@click.option(
    "--traceback",
    is_flag=True,
    envvar="RLINF_TRACEBACK",
    help="Print the traceback of an error too.  [env: RLINF_TRACEBACK=1]",
)
@click.pass_context
def main(ctx: click.Context, no_plugins: bool, traceback: bool) -> None:
    """Post-train language models, robot policies and tool-using agents by reinforcement learning."""
    if no_plugins:
        ctx.with_resource(environment(RLINF_NO_PLUGINS="1"))
