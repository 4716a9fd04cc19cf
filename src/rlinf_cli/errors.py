"""What a user is told when something is wrong: one sentence (what, where, how to fix) and an exit code."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RlinfError(Exception):
    """Base of every error that ends a command with one sentence instead of a traceback.

    `exit_code` is what the process ends with: 1 the run failed, 2 usage or configuration, 3 a plugin or its
    requirement is missing or broken, 4 not enough devices or memory.
    """

    exit_code = 1


class RunError(RlinfError):
    """The run started and failed: a worker died, numbers are not finite, every reward failed."""

    exit_code = 1


class UsageError(RlinfError):
    """Wrong usage, configuration or input data."""

    exit_code = 2


class PluginError(RlinfError):
    """A plugin, or a package that it needs, is missing or broken."""

    exit_code = 3


class CapacityError(RlinfError):
    """Not enough devices or memory; no feasible placement."""

    exit_code = 4


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """`; did you mean 'X'`, for the end of a message; empty when none of `names` is near."""
    found = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {found[0]!r}" if found else ""
