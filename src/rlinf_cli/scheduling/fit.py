"""From what was measured of a workflow's roles to what a placement is searched with: costs, memory, switches, lengths.

Laws are fitted to measured points by least squares of relative errors, with coefficients that are never below 0. What the
points cannot tell apart is not fitted, and what they leave open is said in the problem's notes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from statistics import median
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.scheduling.cycles import apart
from rlinf_cli.scheduling.lengths import capped, resample, warning
from rlinf_cli.scheduling.problem import Apart, Batch, Curve, Decoding, Law, Memory, Problem, Spread, Stage, topological
from rlinf_cli.scheduling.profile import BatchPoint, DecodePoint, Profile, RoleProfile

Matrix: TypeAlias = NDArray[np.float64]

ALIKE = 0.05
"""Two causes are told apart when what they explain differs by this share."""
NOISE = 0.03
"""Replicas that slow each other down by no more than this do not."""
MISSED = 0.1
"""A law that misses its points by more than this share is noted."""
SPREAD = 1.2
"""Numbers of active responses within this ratio are one point of the curve of decode steps."""


@dataclass(frozen=True)
class Node:
    """A stage as the workflow and the configuration have it: what no measurement shows. Its fields are those of `Stage`."""

    name: str
    after: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    needs_device: bool = True
    most_ranks: int = 0
    """0: any number."""
    streams: bool = True
    trains: bool = False
    weights: str = ""
    fits: tuple[int, ...] = ()
    """Of a cycle: numbers of ranks among which half of a batch can be shared out."""


@dataclass(frozen=True)
class Fit:
    """A law of the time of a role, and the mean share by which it misses the points that it was fitted to."""

    cost: Batch
    miss: float = 0.0


def problem_of(profile: Profile, nodes: Sequence[Node], *, devices: int, samples: int, group: int = 1, max_new_tokens: int = 0,
               staleness: int = 0, seed: int = 0) -> Problem:
    """What a placement of `nodes` on so many devices is searched with.

    `samples`: responses of a batch, in groups of `group` · `max_new_tokens`: longest response, 0 for no limit · `seed`: of the
    order of the lengths. Raises ValueError where the profile lacks a node, or a node names a producer that there is not.
    """
    stages = topological([replace(_stage(profile, node, group), apart=_apart(profile, node, devices, samples)) for node in nodes])
    pool, _ = capped(np.asarray(profile.lengths or (1,), np.int64), max_new_tokens)
    together = group if group == profile.group else 1
    return Problem(
        stages, devices, resample(pool, samples, seed, together), pool if len(pool) >= group else None, group,
        profile.device_memory, dict(_switches(profile, stages)), dict(_transfers(profile, stages)), profile.sync_s,
        profile.step_s, staleness, whole_samples=True, source=profile.source, hardware=profile.hardware,
        notes=tuple(_notes(profile, nodes, max_new_tokens)))


def _stage(profile: Profile, node: Node, group: int) -> Stage:
    role = _role(profile, node.name)
    spreads = () if node.weights else role.spreads  # copies of the same weights are spread alike
    first, *others = [Spread(_cost(one, node), memory_law(one)) for one in (role, *spreads)]
    return Stage(node.name, first.cost, node.after, node.roles, first.memory, (), node.needs_device, node.streams, node.weights,
                 node.trains, group, tuple(others))


def _apart(profile: Profile, node: Node, devices: int, samples: int) -> Apart | None:
    """For a cycle whose members are known one by one."""
    members = [profile.roles[name] for name in node.roles if name in profile.roles]
    if len(members) != 2 or len(node.roles) != 2 or any(member.decoding or not member.batches for member in members):
        return None
    tokens = int(np.mean(profile.lengths or (1,)))
    return apart([batch_law(member).cost for member in members], devices, samples, tokens, node.fits)


def _cost(role: RoleProfile, node: Node) -> Decoding | Batch:
    return decoding(role) if role.decoding else batch_law(role, node.trains, node.most_ranks).cost


def _role(profile: Profile, name: str) -> RoleProfile:
    if name not in profile.roles:
        raise ValueError(f"the profile has no role '{name}' (it has {', '.join(profile.roles)})")
    return profile.roles[name]


# ---- generation ----


def decoding(role: RoleProfile) -> Decoding:
    """The cost of generation of a role that has decode points."""
    alone = min(point.replicas for point in role.decoding)
    curve = _curve([point for point in role.decoding if point.replicas == alone])
    return Decoding(curve, role.slots or max(point.active for point in role.decoding), role.devices_per_rank, role.prefill_s,
                    role.call_s, slowdown=_slowdown(role.decoding, alone, curve))


def _curve(points: Sequence[DecodePoint]) -> Curve:
    """Seconds of a step by active responses, never falling: points near each other are one, by their medians."""
    bins: list[list[DecodePoint]] = []
    for point in sorted((point for point in points if point.active), key=lambda point: point.active):
        if bins and point.active <= SPREAD * bins[-1][0].active:
            bins[-1].append(point)
        else:
            bins.append([point])
    xs = tuple(median(float(point.active) for point in one) for one in bins)
    weights = [[point.steps for point in one] for one in bins]
    steps_s = [weighted_median([point.step_s for point in one], mine) for one, mine in zip(bins, weights, strict=True)]
    return Curve(xs, rising(steps_s, [sum(mine) for mine in weights]))


def _slowdown(points: Sequence[DecodePoint], alone: int, curve: Curve) -> Curve:
    """Relative to the fewest replicas that were measured."""
    ratios: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for point in points:
        if point.active:
            ratios[point.replicas].append((point.step_s / float(curve.at(point.active)), point.steps))
    counts = sorted(ratios)
    usual = [max(1.0, weighted_median(*zip(*ratios[count], strict=True))) for count in counts]
    factors = rising([1.0 if count == alone else factor for count, factor in zip(counts, usual, strict=True)], [1] * len(counts))
    if factors[-1] <= 1 + NOISE:
        return Curve((1.0,), (1.0,))
    return Curve(tuple(map(float, counts)), factors)


def weighted_median(values: Sequence[float], weights: Sequence[float]) -> float:
    """Half of the weight is on either side of it."""
    order = np.argsort(values)
    reached, ordered = np.cumsum(np.asarray(weights)[order]), np.asarray(values)[order]
    half = reached[-1] / 2
    return float(ordered[np.searchsorted(reached, half, "left")] + ordered[np.searchsorted(reached, half, "right")]) / 2


def rising(values: Sequence[float], weights: Sequence[float]) -> tuple[float, ...]:
    """The sequence that never falls and is nearest to `values`, by weighted least squares."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        mean, total, size = value, float(weight), 1
        while blocks and blocks[-1][0] > mean:
            before, its_total, its_size = blocks.pop()
            mean = (before * its_total + mean * total) / (its_total + total)
            total, size = total + its_total, size + its_size
        blocks.append((mean, total, size))
    return tuple(mean for mean, _, size in blocks for _ in range(size))


# ---- everything else ----


def batch_law(role: RoleProfile, trains: bool = False, most_ranks: int = 0) -> Fit:
    """The law of a role's calls: one for each number of ranks, but for what a call costs whatever is in it (`step_s`). Where
    points do not say if time goes with chunks or with calls, a trainer's goes with calls."""
    points = _medians(role.batches)
    counts = sorted({point.ranks for point in points}) or [1]
    order = ("tokens", "calls", "chunks", "samples") if trains else ("tokens", "chunks", "samples", "calls")
    terms = _terms(points, counts, order)
    found = {kind: np.zeros(len(counts)) for kind in order}
    miss = 0.0
    if terms:
        matrix = np.hstack(list(terms.values()))
        values = nonnegative(matrix, np.ones(len(points)))
        miss = float(np.sqrt(np.mean((matrix @ values - 1) ** 2)))
        parts = np.split(values, np.cumsum([term.shape[1] for term in terms.values()])[:-1])
        found |= {kind: np.broadcast_to(part, len(counts)) for kind, part in zip(terms, parts, strict=True)}
    rates = zip(counts, *(found[kind].tolist() for kind in ("chunks", "samples", "tokens")), strict=True)
    laws = tuple((count, Law(chunk, sample, token)) for count, chunk, sample, token in rates)
    return Fit(Batch(laws, role.devices_per_rank, float(found["calls"][0]), most_ranks), miss)


def _medians(points: Sequence[BatchPoint]) -> list[BatchPoint]:
    """Repeated calls as one, with the median of their times."""
    repeats: dict[tuple[int, int, int, int], list[float]] = defaultdict(list)
    for point in points:
        if point.seconds > 0:
            repeats[point.ranks, point.samples, point.tokens, point.chunks].append(point.seconds)
    return [BatchPoint(*given, median(seconds)) for given, seconds in repeats.items()]


def _terms(points: Sequence[BatchPoint], counts: Sequence[int], order: Sequence[str]) -> dict[str, Matrix]:
    """What time can go with, relative to the time of each point: [points, numbers of ranks], or [points, 1] where all numbers
    of ranks have it in common. Those that the points do not tell apart from the ones before are left out."""
    terms: dict[str, Matrix] = {}
    for kind in order if points else ():
        amounts = np.array([1.0 if kind == "calls" else getattr(point, kind) for point in points], np.float64)
        common = (amounts / [point.seconds for point in points])[:, None]
        each = common * (np.array([point.ranks for point in points])[:, None] == np.array(counts))
        for term in (common,) if kind == "calls" else (each, common):
            if _are_apart([*terms.values(), term]):
                terms[kind] = term
                break
    return terms


def _are_apart(columns: Sequence[Matrix]) -> bool:
    """Whether the columns are so different that each has a coefficient of its own."""
    matrix = np.hstack(columns)
    norms = np.linalg.norm(matrix, axis=0)
    if matrix.shape[1] > matrix.shape[0] or not norms.all():
        return False
    singular = np.linalg.svd(matrix / norms, compute_uv=False)
    return bool(singular[-1] > ALIKE * singular[0])


def nonnegative(matrix: Matrix, target: Matrix) -> Matrix:
    """The x >= 0 that minimises |matrix x - target|, for independent columns: the active set method of Lawson and Hanson."""
    free = np.zeros(matrix.shape[1], bool)
    x = np.zeros(matrix.shape[1])
    for _ in range(3 * len(x)):
        gain = np.where(free, -np.inf, matrix.T @ (target - matrix @ x))
        if gain.max() <= 1e-9 * np.abs(matrix).max():
            break
        free[int(gain.argmax())] = True
        x = _feasible(matrix, target, x, free)
    return x


def _feasible(matrix: Matrix, target: Matrix, x: Matrix, free: NDArray[np.bool_]) -> Matrix:
    """The best x on the free coordinates; those that it would make negative are given up on the way (in `free` too)."""
    while True:
        best = np.zeros_like(x)
        best[free] = np.linalg.lstsq(matrix[:, free], target, rcond=None)[0]
        falling = free & (best <= 0)
        if not falling.any():
            return best
        x = x + (best - x) * (x[falling] / (x[falling] - best[falling])).min()
        free &= x > 1e-12 * x.max()
        x = np.where(free, x, 0.0)


def memory_law(role: RoleProfile) -> Memory:
    """Bytes on a device: what is there on any number of devices, and what they share."""
    if not role.memory:
        return Memory()
    left = max(point.left for point in role.memory)
    devices = np.array([float(point.ranks * role.devices_per_rank) for point in role.memory])
    loaded = np.array([point.loaded for point in role.memory])
    if len(set(devices)) == 1 or not loaded.all():
        return Memory(float(loaded.max()), 0.0, left)
    fixed, shared = nonnegative(np.stack([1 / loaded, 1 / devices / loaded], axis=1), np.ones(len(loaded)))
    return Memory(float(fixed), float(shared), left)


def _switches(profile: Profile, stages: Sequence[Stage]) -> Iterator[tuple[tuple[str, str], float]]:
    """One makes room, then the other comes back. Those with the same weights change places for free."""
    for before, after in permutations([stage for stage in stages if stage.needs_device], 2):
        if not before.weights or before.weights != after.weights:
            yield (before.name, after.name), _role(profile, before.name).offload_s + _role(profile, after.name).onload_s


def _transfers(profile: Profile, stages: Sequence[Stage]) -> Iterator[tuple[tuple[str, str], float]]:
    """By stage: roles of the same stage pass nothing on."""
    of = {role: stage.name for stage in stages for role in (stage.name, *stage.roles)}
    for (producer, consumer), seconds in profile.transfers.items():
        pair = of.get(producer, ""), of.get(consumer, "")
        if all(pair) and pair[0] != pair[1]:
            yield pair, seconds


# ---- what the reader must know ----


def _notes(profile: Profile, nodes: Sequence[Node], max_new_tokens: int) -> Iterator[str]:
    if profile.source == "analytic":
        yield "analytic (roofline): nothing of it was measured on your machine"
    yield from _notes_of_lengths(profile.lengths, max_new_tokens)
    for node in nodes:
        role = _role(profile, node.name)
        if role.devices_per_rank > 1 and not role.spreads:
            yield f"{node.name}: {role.devices_per_rank} devices a {'replica' if role.decoding else 'rank'}"
        if node.needs_device and not role.batches and not role.decoding:
            yield f"{node.name} was not measured: it is taken to need no time"
        miss = 0.0 if role.decoding else batch_law(role, node.trains).miss
        if miss > MISSED:
            yield f"{node.name}: the law of its time misses what was measured by {miss * 100:.0f} %"


def _notes_of_lengths(lengths: Sequence[int], max_new_tokens: int) -> Iterator[str]:
    longest = max(lengths, default=0)
    if not lengths:
        yield "no lengths of responses are known: every response is taken to have one token"
    elif 0 < max_new_tokens < longest:
        yield f"responses are cut at rollout.max_new_tokens={max_new_tokens}; those of the profile had up to {longest} tokens"
    elif beyond := warning(np.asarray(lengths, np.int64), max_new_tokens):
        yield beyond
