"""Tells the plugins of a run how it goes. A plugin that fails at it is left out, the run goes on."""

from __future__ import annotations

import contextlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from rlinf_cli.config.schema import Part, RunConfig
from rlinf_cli.contracts.logger import RunInfo
from rlinf_cli.errors import PluginError
from rlinf_cli.plugins.extension import describe
from rlinf_cli.plugins.lifecycle import CheckpointWritten, ChosenLogger, RunEnd, RunStart, StepEnd
from rlinf_cli.plugins.registry import PluginInfo, Plugins
from rlinf_cli.runs.directory import outcome_of
from rlinf_cli.runs.progress import Progress
from rlinf_cli.runs.redact import hide

LOG = "plugins.log"
"""File among an attempt's logs with the tracebacks of hooks that raised."""

_LOGGERS = "loggers"
"""The plugin that opens and feeds the loggers."""

_LABEL = 10
"""Signs of a progress message's label."""


class Lifecycle:
    """Calls the lifecycle hooks of all plugins, in their fixed order and in this process."""

    def __init__(self, plugins: Plugins, progress: Progress, logs: Path) -> None:
        self._plugins, self._progress, self._logs = plugins, progress, logs
        self._left_out: set[str] = set()
        self._started = False

    def start(self, config: RunConfig, directory: Path, step: int) -> None:
        """`step`: steps trained so far."""
        self._started = True
        loggers = [ChosenLogger(part.name, partial(_open, part)) for part in config.parts("log")]
        shown = hide(config.to_dict())
        self._call("on_run_start", lambda info: RunStart(
            directory.name, directory, shown, step, config.steps, self._logs, loggers,
            message=partial(self._progress.message, info.name[:_LABEL])))

    def step(self, context: StepEnd) -> None:
        self._call("on_step_end", lambda info: context)

    def checkpoint(self, context: CheckpointWritten) -> None:
        self._call("on_checkpoint", lambda info: context)

    @contextlib.contextmanager
    def until_end(self, step: Callable[[], int]) -> Iterator[None]:
        """Tell how it ended what is done inside, if it got to its `start`. `step`: steps trained."""
        try:
            yield
        except BaseException as error:
            self._end(step(), *outcome_of(error))
            raise
        self._end(step(), "finished", "finished")

    def _end(self, step: int, status: str, reason: str) -> None:
        if self._started:
            self._call("on_run_end", lambda info: RunEnd(status, step, reason))

    def _call(self, hook: str, context: Callable[[PluginInfo], Any]) -> None:
        for info, function in self._plugins.lifecycle(hook):
            if info.name in self._left_out:
                continue
            try:
                with contextlib.redirect_stdout(sys.stderr):
                    function(**_arguments(function, context(info)))
            except (Exception, SystemExit) as error:  # a plugin's code: whatever it raises is told and survived
                self._leave_out(info, hook, error)

    def _leave_out(self, info: PluginInfo, hook: str, error: BaseException) -> None:
        self._left_out.add(info.name)
        path = self._logs / LOG
        with contextlib.suppress(OSError), path.open("a", encoding="utf-8") as file:
            file.write(f"{hook} of plugin {info.origin}\n{''.join(traceback.format_exception(error))}\n")
        self._progress.message("warning", f"plugin {info.origin}: {hook} raised {describe(error)}; the run goes on without "
                                          f"its lifecycle hooks (traceback: {path})")


def check_loggers(config: RunConfig, plugins: Plugins) -> None:
    """Raise PluginError when there are loggers, but not the plugin that feeds them."""
    serving = [info.name for info, _ in plugins.lifecycle("on_step_end")]
    if config.log.loggers and _LOGGERS not in serving:
        raise PluginError(f"log.loggers=[{', '.join(config.log.loggers)}] needs the plugin '{_LOGGERS}' of rlinf-cli, which is "
                          f"not loaded: name it in RLINF_PLUGINS too, or leave log.loggers empty")


def _arguments(function: Callable[..., None], context: Any) -> dict[str, Any]:
    """A hook need not take the context."""
    parameters = inspect.signature(function).parameters
    takes = "context" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return {"context": context} if takes else {}


def _open(part: Part, run: RunInfo) -> Any:
    assert part.extension is not None
    return part.extension.load()(part.settings, run)
