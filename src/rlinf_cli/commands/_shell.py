"""What every command shares: lazy sub-commands, errors in one sentence, tables and JSON on stdout."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from rlinf_cli.environment import environment
from rlinf_cli.errors import RlinfError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from rlinf_cli.plugins.extension import Extension

_PIPE_WIDTH = 10_000
"""Columns of an output that is no terminal: a table read by another program is not wrapped."""


class Shell(click.Group):
    """A group whose commands are imported when they run, and whose errors are one sentence and an exit code."""

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]], **settings: Any) -> None:
        """`lazy`: command name -> (`module:attribute`, one line of help); without a module it is a plugin's."""
        super().__init__(*args, **settings)
        self._targets = {name: target for name, (target, _) in lazy.items()}
        for name, (_, summary) in lazy.items():
            self.add_command(click.Command(name, short_help=summary))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of the table. Those of plugins that it does not name are not looked for: finding plugins
        takes as long as all else that `rlinf --help` does."""
        return list(self.commands)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """A built-in one or, where there is none of that name, a plugin's."""
        found = super().get_command(ctx, name)
        if found is None and (extension := self._contributed(ctx).get(name)):
            found = click.Command(name, short_help=extension.summary)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Import the command that was asked for."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and self._targets.get(name):
            module, _, attribute = self._targets[name].partition(":")
            command = getattr(importlib.import_module(module), attribute)
        elif name is not None and (extension := self._contributed(ctx).get(name)):
            command = extension.load()
        return name, command, rest

    def _contributed(self, ctx: click.Context) -> dict[str, Extension]:
        """Commands of plugins, by name."""
        from rlinf_cli.plugins.loader import plugins

        with environment(RLINF_NO_PLUGINS="1") if ctx.params.get("no_plugins") else contextlib.nullcontext():
            return plugins().extensions("command")

    def invoke(self, ctx: click.Context) -> None:
        """Run the command; with `--traceback`, an error is printed in full before its sentence."""
        try:
            super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception:
            if ctx.params["traceback"]:
                import traceback

                traceback.print_exc()
            raise

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run and end the process; with `standalone_mode=False`, raise instead."""
        run = partial(super().main, args, prog_name, complete_var, standalone_mode=False, **extra)
        if not standalone_mode:
            return run()
        sys.exit(_status(run))


def console(stderr: bool = False) -> Console:
    """Where to print: results on stdout, progress on stderr. Colour only on a terminal and without `NO_COLOR`."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPE_WIDTH
    return Console(stderr=stderr, width=width, markup=False, highlight=False, emoji=False)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A plain table: cells are shown as they are, without markup; no header when all names are empty."""
    from rich.table import Table
    from rich.text import Text

    grid = Table(*columns, box=None, show_header=any(columns), pad_edge=False, padding=(0, 2, 0, 0))
    for row in rows:
        grid.add_row(*(Text(cell, overflow="fold") for cell in row))
    return grid


def emit(data: Any, as_json: bool, table_fn: Callable[[], Any]) -> None:
    """Print a result on stdout: exactly one JSON document, or what `table_fn()` returns.

    A number that is not finite becomes `null`, for which JSON has no other spelling.
    """
    if not as_json:
        console().print(table_fn())
        return
    import json

    click.echo(json.dumps(_finite(data), indent=2, ensure_ascii=False, allow_nan=False))


def _finite(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def _status(run: Callable[[], int | None]) -> int:
    try:
        return run() or 0
    except (click.Abort, KeyboardInterrupt):
        return _failed("interrupted", 130)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        return _failed(error.format_message() + _help_hint(error), error.exit_code)
    except RlinfError as error:
        return _failed(str(error), error.exit_code)
    except Exception as error:
        return _failed(_unexpected(error), 1)


def _failed(sentence: str, exit_code: int) -> int:
    color = False if os.environ.get("NO_COLOR") else None
    click.echo(f"{click.style('Error:', fg='red', bold=True)} {sentence}", err=True, color=color)
    return exit_code


def _help_hint(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f" See: {context.command_path} --help" if context else ""


def _unexpected(error: Exception) -> str:
    what = f"{type(error).__name__}: {error}".removesuffix(": ")
    return f"unexpected {what} ({_place(error)}); RLINF_TRACEBACK=1 shows the traceback"


def _place(error: Exception) -> str:
    place, step = "", error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        place = place if file.startswith("<frozen") else f"{file}:{step.tb_lineno}"
        step = step.tb_next
    return place
