"""A profile for people: rows of a table, a curve of decode steps, a histogram of lengths. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING

from rlinf_cli.runs.sparkline import bar, clock, data_size
from rlinf_cli.scheduling.profile import DecodePoint, Profile, RoleProfile

if TYPE_CHECKING:
    from rlinf_cli.runs.profiling import Profiled

WIDTH = 40
"""Characters of the longest bar."""
BINS = 8


def rows(profile: Profile) -> list[tuple[str, ...]]:
    """role, ranks, samples of all ranks, seconds (the median of several), seconds a sample, memory of a rank."""
    return [row for role in profile.roles.values() for row in _rows(role)]


def _rows(role: RoleProfile) -> Iterator[tuple[str, ...]]:
    memory = {point.ranks: data_size(round(point.loaded)) for point in role.memory}
    times: dict[tuple[int, int], list[float]] = defaultdict(list)
    for point in role.batches:
        times[point.ranks, point.ranks * point.samples].append(point.seconds)
    for (ranks, samples), seconds in sorted(times.items()):
        middle = median(seconds)
        yield role.role, str(ranks), str(samples), duration(middle), duration(middle / samples), memory.get(ranks, "")


def duration(seconds: float) -> str:
    """Three digits with the unit that fits: 1.23 s, 45.6 ms, 7.89 us."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"


def decoding_lines(profile: Profile, ascii_only: bool = False) -> list[str]:
    """Seconds of a decode step by active responses, a bar each; a block for each number of replicas."""
    lines: list[str] = []
    for role in profile.roles.values():
        for replicas in sorted({point.replicas for point in role.decoding}):
            points = [point for point in role.decoding if point.replicas == replicas]
            lines.append(f"{role.role}: a decode step by active responses, {_replicas(replicas)} of up to {role.slots}")
            lines += _curve(points, max(point.step_s for point in role.decoding), ascii_only)
    return lines


def _replicas(count: int) -> str:
    return "1 replica" if count == 1 else f"{count} replicas at once, each"


def _curve(points: Sequence[DecodePoint], longest: float, ascii_only: bool) -> Iterator[str]:
    for active in sorted({point.active for point in points}):
        seconds = median(point.step_s for point in points if point.active == active)
        yield f"  {active:>6}  {duration(seconds):>8}  {bar(seconds / longest, WIDTH, ascii_only)}"


def length_lines(profile: Profile, ascii_only: bool = False) -> list[str]:
    """A histogram of the tokens of responses, in bins of equal width."""
    lengths = profile.lengths
    if not lengths:
        return []
    low, high = min(lengths), max(lengths)
    width = -(-(high - low + 1) // BINS)
    counts = [sum(first <= length < first + width for length in lengths) for first in range(low, high + 1, width)]
    lines = [f"responses: {len(lengths)}, {mean(lengths):.1f} tokens on average, at most {high}"]
    for number, count in enumerate(counts):
        first, last = low + number * width, min(high, low + (number + 1) * width - 1)
        label = str(first) if first == last else f"{first}-{last}"
        drawn = bar(count / max(counts), WIDTH, ascii_only)
        lines.append(f"  {label:>13}  {count / len(lengths) * 100:>5.1f} %  {drawn}".rstrip())
    return lines


def facts(found: Profiled, path: Path | None) -> Iterator[tuple[str, str]]:
    """What a table has no place for: label and text."""
    profile = found.profile
    for role in profile.roles.values():
        if role.onload_s or role.offload_s:
            yield "switch", f"{role.role} makes room in {duration(role.offload_s)} and comes back in {duration(role.onload_s)}"
        if role.decoding:
            yield "prompts", f"{role.role} needs {duration(role.prefill_s)} a response besides its decode steps"
    for (producer, consumer), seconds in profile.transfers.items():
        yield "transfer", f"{producer} to {consumer}: {duration(seconds)} a sample"
    for source, target in found.graph.publications:
        yield "weights", f"{source} to {target}: {duration(profile.sync_s)}"
    for sentence in found.differences:
        yield "warning", sentence
    yield "hardware", profile.hardware
    yield "measured", f"in {clock(found.seconds)}" + (f", written to {path}" if path else "")
    if path:
        yield "next", "rlinf plan --explain, with the same configuration"
