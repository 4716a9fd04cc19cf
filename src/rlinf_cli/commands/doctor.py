"""`rlinf doctor`: whether everything is there that a run needs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from rlinf_cli.commands._shell import emit, table

if TYPE_CHECKING:
    from rlinf_cli.runs.installation import Finding


@click.command()
@click.option("--deep", is_flag=True, help="Also import a model and start a private Ray; takes longer.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def doctor(ctx: click.Context, deep: bool, as_json: bool) -> None:
    """Look at this machine and environment, and say what is missing or broken.

    Ends with 0 when everything is usable (notes aside), with 3 when a package or a plugin is broken, and with 1 when the
    machine lacks something.
    """
    from rlinf_cli.runs.doctor import examine, exit_code

    found = examine(deep)
    code = exit_code(found)
    emit({"usable": code == 0, "exit_code": code, "findings": [asdict(finding) for finding in found]}, as_json,
         lambda: _table(found))
    ctx.exit(code)


def _table(found: list[Finding]) -> Any:
    rows: list[tuple[str, str, str]] = []
    for finding in found:
        rows.append((finding.state, finding.name, finding.text))
        if finding.fix:
            rows.append(("", "", f"→ {finding.fix}"))
    return table(("", "", ""), rows)
