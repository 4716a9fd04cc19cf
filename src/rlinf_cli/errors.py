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


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'X'`, for the end of a clause; empty when nothing known is near."""
    near = nearest(word, known)
    return f"; did you mean '{near}'" if near else ""


def suggestion(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """` Did you mean 'X'?`, a sentence to follow another; empty when nothing known is near."""
    near = nearest(word, known, cutoff)
    return f" Did you mean '{near}'?" if near else ""


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known word that is most like `word`, if any is at least `cutoff` (0 to 1) like it."""
    found = difflib.get_close_matches(word, list(known), cutoff=cutoff)
    # of those about equally like it, one that it only has the letters of in another order: gpro is grpo, not gspo
    return max(found, key=lambda other: sorted(other) == sorted(word), default=None)
