"""Small pictures made of characters: a curve of recent values, a bar of a share."""

from __future__ import annotations

import math
from collections.abc import Sequence

_LEVELS = "▁▂▃▄▅▆▇█"
_ASCII_LEVELS = "_.-~=+*#"
_EIGHTHS = " ▏▎▍▌▋▊▉"


def sparkline(values: Sequence[float], ascii_only: bool = False) -> str:
    """One character a value, from the lowest to the highest of them; a blank where a value is not finite.

    Equal values give a flat line at half height.
    """
    levels = _ASCII_LEVELS if ascii_only else _LEVELS
    finite = [value for value in values if math.isfinite(value)]
    low, span = min(finite, default=0.0), max(finite, default=0.0) - min(finite, default=0.0)

    def level(value: float) -> str:
        if not math.isfinite(value):
            return " "
        return levels[round((value - low) / span * 7)] if span else levels[3]

    return "".join(map(level, values))


def bar(share: float, width: int, ascii_only: bool = False) -> str:
    """A bar of `share` (0 to 1) of `width` characters, to an eighth of one; never empty when `share` is above 0."""
    filled = min(max(share, 0.0), 1.0) * width
    if ascii_only:
        return "#" * max(round(filled), math.ceil(share) if share > 0 else 0)
    eighths = max(round(filled * 8), 1 if share > 0 else 0)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def compact(value: float) -> str:
    """A number in at most five characters or so: 14.9k, 1.2M, 0.63, 87."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 0.99995:
            return f"{value / size:.1f}{unit}"
    return f"{value:.0f}" if abs(value) >= 10 else f"{value:.2g}"


def clock(seconds: float) -> str:
    """Hours, minutes and seconds: 0:00:09."""
    whole = max(0, round(seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def data_size(count: int) -> str:
    """Bytes with the unit that fits: 318 B, 1.2 MB."""
    for factor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"
