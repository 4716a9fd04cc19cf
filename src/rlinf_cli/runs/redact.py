"""Keeping secrets of the environment and of the command line out of the files of a run."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

_SECRET_NAME = re.compile(r"(^|_)(token|secret|password|passwd|api_?key|access_?key|private_?key|credentials?)$", re.I)
_SHORTEST = 8
"""Shorter values are words such as `true` that occur anywhere."""

HIDDEN = "[hidden]"


def redact(text: str, environment: Mapping[str, str] | None = None) -> str:
    """Replace each value of an environment variable that is named like a secret by `${oc.env:NAME}`.

    A configuration that took the value from the environment can thus be loaded again.
    """
    variables = os.environ if environment is None else environment
    for name, value in variables.items():
        if len(value) >= _SHORTEST and _SECRET_NAME.search(name):
            text = text.replace(value, f"${{oc.env:{name}}}")
    return text


def redact_argument(argument: str) -> str:
    """As `redact`; of `KEY=VALUE` whose key is named like a secret, the value is hidden as well."""
    key, equals, _ = argument.partition("=")
    if equals and _SECRET_NAME.search(key.split(".")[-1].replace("-", "_")):
        return f"{key}={HIDDEN}"
    return redact(argument)


def redact_all(value: Any) -> Any:
    """`redact` every text in a tree of dicts and lists."""
    if isinstance(value, Mapping):
        return {key: redact_all(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact_all(item) for item in value]
    return redact(value) if isinstance(value, str) else value


def hide(value: Any) -> Any:
    """As `redact_all`; values of keys that are named like secrets are hidden as well."""
    if isinstance(value, Mapping):
        return {key: HIDDEN if item and _SECRET_NAME.search(str(key)) else hide(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [hide(item) for item in value]
    return redact_all(value)
