"""`docs/plugins.md` names every hook and every variable, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from rlinf_cli.plugins.checks import HOOKS
from rlinf_cli.plugins.hookspecs import KINDS
from rlinf_cli.plugins.loader import ENVIRONMENT, load_plugins

PAGE = (Path(__file__).parents[3] / "docs" / "plugins.md").read_text()


def section(title):
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def first_column(title):
    return re.findall(r"^\| `(\w+)", section(title), re.MULTILINE)


def test_every_hook_is_documented():
    assert first_column("Hooks") == list(HOOKS) == list(KINDS.values())


def test_every_variable_is_documented():
    assert set(first_column("Environment variables")) == {*ENVIRONMENT, "RLINF_TRACEBACK"}


def test_the_example_is_a_plugin_that_loads(site):
    source = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL).group(1)
    site.add("rlinf-politeness", {"politeness": "rlinf_politeness"}, rlinf_politeness=source)
    info = load_plugins(["politeness"]).info("politeness")
    assert [str(offer) for offer in info.provides] == ["reward politeness"]
    assert (info.state, info.problem) == ("needs", "pip install 'rlinf-politeness[textblob]'")
