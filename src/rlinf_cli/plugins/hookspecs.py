"""The hooks that a plugin can implement, by phase. A hook exists only when something built in uses it.

An implementation is a module-level function marked with `hookimpl` in the module that the entry point names::

    from rlinf_cli.api import Extension, hookimpl

    @hookimpl
    def register_algorithms():
        return [Extension("my-algo", target="my_pkg.algorithm:MyAlgorithm", config="my_pkg.config:MyConfig")]
"""

from __future__ import annotations

from collections.abc import Sequence

import pluggy

from rlinf_cli.plugins.extension import Extension
from rlinf_cli.plugins.lifecycle import CheckpointWritten, RunEnd, RunStart, StepEnd

GROUP = "rlinf"
"""Entry-point group, and the pluggy project name."""

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)

KINDS = {
    "algorithm": "register_algorithms",
    "engine": "register_engines",
    "trainer": "register_trainers",
    "reward": "register_rewards",
    "workflow": "register_workflows",
    "model": "register_models",
    "dataset": "register_datasets",
    "logger": "register_loggers",
    "policy": "register_policies",
    "environment": "register_environments",
    "agent": "register_agents",
    "tool": "register_tools",
}
"""Kind of extension -> the hook that registers it."""

REGISTERED = {**KINDS, "command": "register_commands"}
"""The same, with commands, which have neither configuration nor contract."""


@hookspec
def register_algorithms() -> Sequence[Extension]:
    """Algorithms (`algorithm.name`): targets follow `rlinf_cli.api.Algorithm`."""
    return []


@hookspec
def register_engines() -> Sequence[Extension]:
    """Generation engines (`engine.name`): targets follow `rlinf_cli.api.Engine`."""
    return []


@hookspec
def register_trainers() -> Sequence[Extension]:
    """Trainers (`trainer.name`): targets follow `rlinf_cli.api.Trainer`."""
    return []


@hookspec
def register_rewards() -> Sequence[Extension]:
    """Reward functions (`reward.name`): targets follow `rlinf_cli.api.Reward`."""
    return []


@hookspec
def register_workflows() -> Sequence[Extension]:
    """Macro flows (`workflow`): targets follow `rlinf_cli.api.Workflow`."""
    return []


@hookspec
def register_models() -> Sequence[Extension]:
    """Named models (`model.name=NAME` or `NAME:VARIANT`): targets follow `rlinf_cli.api.ModelSource`."""
    return []


@hookspec
def register_datasets() -> Sequence[Extension]:
    """Built-in data and generators (`data.name`): targets follow `rlinf_cli.api.Dataset`."""
    return []


@hookspec
def register_loggers() -> Sequence[Extension]:
    """Trackers (`log.loggers`): targets follow `rlinf_cli.api.Logger`."""
    return []


@hookspec
def register_environments() -> Sequence[Extension]:
    """Simulators (`env.name=NAME` or `NAME:TASK`): targets follow `rlinf_cli.api.Environment`."""
    return []


@hookspec
def register_agents() -> Sequence[Extension]:
    """Agents (`agent.name`): targets follow `rlinf_cli.api.Agent`."""
    return []


@hookspec
def register_tools() -> Sequence[Extension]:
    """Tools of agents (`tools.name`): targets follow `rlinf_cli.api.Tool`."""
    return []


@hookspec
def register_policies() -> Sequence[Extension]:
    """Policies of environments (`model.name`, like models): targets follow `rlinf_cli.api.Policy`."""
    return []


@hookspec
def register_commands() -> Sequence[Extension]:
    """Commands of `rlinf`: targets are click commands or groups, summaries their lines in `rlinf --help`."""
    return []


@hookspec
def on_run_start(context: RunStart) -> None:
    """A run, or another attempt at it, begins to train: all roles are up. Called in the driver, like the hooks below.

    What a lifecycle hook raises is told once, with the plugin's name; the plugin's lifecycle hooks are then left out for
    the rest of the run, which goes on.
    """


@hookspec
def on_step_end(context: StepEnd) -> None:
    """A step has been trained and its metrics written."""


@hookspec
def on_checkpoint(context: CheckpointWritten) -> None:
    """A checkpoint is complete and on the disk."""


@hookspec
def on_run_end(context: RunEnd) -> None:
    """The attempt ends, for whatever reason, after its last checkpoint. Not called for a driver that is killed."""
