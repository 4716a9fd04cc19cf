"""How violations are found and told: each check is a function of its own, and all that fail are told at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from rlinf_cli.plugins.extension import Extension, describe

METRIC_NAME = re.compile(r"[a-z][a-z0-9_]*(/[A-Za-z0-9_.@:-]+)+")
"""What a run accepts as the name of a metric."""


def require(holds: bool, sentence: str) -> None:
    """Raise AssertionError with the sentence unless it holds."""
    if not holds:
        raise AssertionError(sentence)


def require_metrics(metrics: Any, where: str) -> None:
    """A mapping of names such as `actor/kl`."""
    require(isinstance(metrics, Mapping), f"{where} must be a mapping of metrics, not {a(metrics)}")
    for name in metrics:
        require(
            isinstance(name, str) and METRIC_NAME.fullmatch(name) is not None,
            f"{where} names a metric {name!r}, which is not of the form group/name, e.g. actor/kl",
        )


def a(value: object) -> str:
    """What a value is, for sentences."""
    return "None" if value is None else f"a {type(value).__name__}"


def run_all(*checks: Callable[[], None], between: Callable[[], None] = lambda: None) -> None:
    """Run all checks; AssertionError with a sentence (a line) for each that fails, the first failure as its cause.

    `between` is called before each.
    """
    sentences: list[str] = []
    causes: list[Exception] = []
    for check in checks:
        try:
            between()
            check()
        except AssertionError as violation:  # noqa: PERF203 - all violations are told
            sentences.append(str(violation))
            causes.append(violation)
        except Exception as error:  # whatever an implementation raises is a finding about it
            sentences.append(f"it raised {describe(error)}, where it was checked whether it {_name(check)}")
            causes.append(error)
    if sentences:
        raise AssertionError("\n".join(dict.fromkeys(sentences))) from causes[0]


def target_of(target: Any, config: Any) -> tuple[Any, Any]:
    """The class, and the configuration to build it with: that of an extension is its defaults unless one is given."""
    if not isinstance(target, Extension):
        return target, config
    home = target.load_config() if config is None else None
    return target.load(), config if home is None else home()


def _name(check: Callable[[], None]) -> str:
    return getattr(check, "__name__", "works").replace("_", " ")
