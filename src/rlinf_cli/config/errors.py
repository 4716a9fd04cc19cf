"""What is wrong with a configuration: all problems of one attempt together, one line each, the most basic first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rlinf_cli.errors import UsageError, nearest, suggestion

SHOWN = 8
"""Problems that are listed; of more, only the number is given."""


class ConfigError(UsageError):
    """One or more problems of one attempt."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(dict.fromkeys(problems))
        hidden = len(self.problems) - SHOWN
        rest = [f"... and {hidden} more"] if hidden > 0 else []
        super().__init__("\n".join([*self.problems[:SHOWN], *rest]))


def raise_if_any(problems: Sequence[str]) -> None:
    """Raise ConfigError with the problems, if there are any."""
    if problems:
        raise ConfigError(problems)


def nearest_key(key: str, known: Iterable[str]) -> str:
    """The same for a dotted key: by its last part in its own section, as a whole, then by its last part anywhere."""
    candidates = list(known)
    section, _, last = key.rpartition(".")
    siblings = [candidate for candidate in candidates if candidate.rpartition(".")[0] == section]
    return (_by_last_part(last, siblings, 0.6) or suggestion(key, candidates, 0.8)
            or _by_last_part(last, candidates, 0.7))


def _by_last_part(last: str, candidates: list[str], cutoff: float) -> str:
    lasts = {candidate.rpartition(".")[2]: candidate for candidate in reversed(candidates)}
    near = nearest(last, lasts, cutoff)
    return f" Did you mean '{lasts[near]}'?" if near else ""
