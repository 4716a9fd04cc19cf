"""Planning for machines that one does not have: problems and profiles from rooflines, labelled analytic wherever they show.

A rank or replica of each role can have any number of devices of `roofline.UNITS` with which it fits in memory: a search chooses.
What stands first is what is fastest on all devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import TypeVar

import numpy as np

from rlinf_cli.errors import CapacityError, UsageError
from rlinf_cli.scheduling.generation import estimated_seconds
from rlinf_cli.scheduling.hardware import MACHINES, Hardware
from rlinf_cli.scheduling.lengths import Ints, lognormal
from rlinf_cli.scheduling.problem import Batch, Memory, Problem, Spread, Stage
from rlinf_cli.scheduling.profile import BatchPoint, DecodePoint, MemoryPoint, Profile, RoleProfile
from rlinf_cli.scheduling.roofline import LEFT, UNITS, Roofline, Use, Work
from rlinf_cli.scheduling.shapes import SHAPES, Shape

Known = TypeVar("Known")

ASSUMED = "analytic (roofline): computed from data sheets and shapes, not measured"
MEAN_SHARE, SPREAD = 0.29, 0.8
"""Of lengths that nobody measured: their mean as a share of the longest allowed, and the standard deviation of their logarithm,
as they are usual when a 7B model reasons about mathematics."""


@dataclass(frozen=True)
class Part:
    """A role of a workflow. `weights`: roles that name the same hold one copy, and have the same devices a rank."""

    name: str
    use: Use
    after: tuple[str, ...] = ()
    weights: str = ""


ROLLOUT = Part("rollout", "generate")
GRPO = (ROLLOUT, Part("inference", "infer", ("rollout",), "actor"), Part("train", "train", ("inference",), "actor"))
GRPO_WITHOUT_INFERENCE = (ROLLOUT, Part("train", "train", ("rollout",)))
"""Log-probabilities are those of the engine."""
SCORED = ("actor_inference", "critic_inference")
PPO = (
    ROLLOUT,
    Part("actor_inference", "infer", ("rollout",), "actor"),
    Part("critic_inference", "infer", ("rollout",), "critic"),
    Part("actor_train", "train", SCORED, "actor"),
    Part("critic_train", "train", SCORED, "critic"),
)


def analytic_problem(hardware: str, model: str, parts: Sequence[Part], devices: int, work: Work, staleness: int = 0) -> Problem:
    """What a placement of the parts is searched with. The critic is as large as the actor.

    Raises UsageError for a machine or a model that is not known, CapacityError where a part does not fit on so many devices.
    """
    chosen = _chosen(hardware, model, parts, devices, work)
    moves = {part.name: chosen[part.name][0].move_s(part.use, devices) for part in parts}
    generation = next(chosen[part.name][0] for part in parts if part.use == "generate")
    return Problem(
        tuple(_stage(part, chosen[part.name], work.group) for part in parts), devices, work.lengths, group=work.group,
        device_memory=generation.machine.usable_memory,
        switch_s={(one, other): moves[one] + moves[other] for one, other in permutations(moves, 2)}, sync_s=generation.sync_s(),
        staleness=staleness, source="analytic", hardware=f"{devices} {hardware}", notes=(ASSUMED, *_notes(parts, chosen)))


def analytic_profile(hardware: str, model: str, uses: Mapping[str, Use | None], devices: int, work: Work) -> Profile:
    """The same as a profile of a configured workflow: role -> what it does with the model; None: nothing, it takes no device
    and no time worth planning for. Points are what the laws give, so that a fit finds these again. Raises as
    `analytic_problem`."""
    parts = [Part(name, use) for name, use in uses.items() if use is not None]
    chosen = _chosen(hardware, model, parts, devices, work)
    machine = _known(MACHINES, hardware, "machine")
    roles = {name: RoleProfile(name, needs_device=False) if use is None else _role(name, use, chosen[name], devices)
             for name, use in uses.items()}
    sync_s = max((chosen[part.name][0].sync_s() for part in parts if part.use == "generate"), default=0.0)
    return Profile("", roles, tuple(work.lengths.tolist()), work.group, sync_s=sync_s, hardware=f"{devices} {hardware}",
                   device_memory=machine.usable_memory, source="analytic")


def assumed_lengths(samples: int, max_new_tokens: int, seed: int = 0) -> Ints:
    """Of responses that nobody has measured: a long tail that the limit cuts."""
    return lognormal(MEAN_SHARE * max_new_tokens, SPREAD, samples, max_new_tokens, seed)


# ---- devices of a rank ----


def _chosen(hardware: str, model: str, parts: Sequence[Part], devices: int, work: Work) -> dict[str, list[Roofline]]:
    machine, shape = _known(MACHINES, hardware, "machine"), _known(SHAPES, model, "model")
    others = LEFT * (len(parts) - 1)
    found: dict[str, list[Roofline]] = {}
    held: dict[str, list[Roofline]] = {}
    for part in sorted(parts, key=lambda part: part.use != "train"):  # who trains decides for those with the same weights
        found[part.name] = held.get(part.weights) or ranked(machine, shape, part.use, devices, work, others)
        if part.weights:
            held[part.weights] = found[part.name]
    return found


def ranked(machine: Hardware, shape: Shape, use: Use, devices: int, work: Work, others: float = 0.0) -> list[Roofline]:
    """With each number of devices a rank that fits beside so many bytes of other roles; the first is the fastest on all devices.
    Raises CapacityError where none fits, with the number of devices that would do."""
    candidates = _fitting(machine, shape, use, devices, work, others)
    if candidates:
        return sorted(candidates, key=lambda one: _seconds(one, use, devices))
    enough = next((count for count in (2**power for power in range(15)) if _fitting(machine, shape, use, count, work, others)), 0)
    need = min(_needed(Roofline(machine, shape, work, unit), use, devices) for unit in UNITS if unit <= devices)
    verb = {"generate": "generate with", "infer": "score with", "train": "train"}[use]
    cure = f"take {enough} devices" if enough else "take shorter sequences, or a smaller model"
    raise CapacityError(f"{devices} {machine.name} cannot {verb} {shape.name}: a device needs {(need + others) / 1e9:.0f} GB and "
                        f"has {machine.usable_memory / 1e9:.0f} GB; {cure}")


def _fitting(machine: Hardware, shape: Shape, use: Use, devices: int, work: Work, others: float) -> list[Roofline]:
    candidates = [Roofline(machine, shape, work, unit) for unit in UNITS if unit <= devices]
    return [one for one in candidates if _needed(one, use, devices) + others <= machine.usable_memory
            and (use != "generate" or one.slots >= work.group)]


def _needed(one: Roofline, use: Use, devices: int) -> float:
    memory: Memory = one.memory(use)
    return memory.fixed + memory.shared / (devices // one.unit * one.unit)


def _seconds(one: Roofline, use: Use, devices: int) -> float:
    ranks = devices // one.unit
    if use == "generate":
        return float(estimated_seconds(one.decoding(), one.work.lengths, np.array([ranks]), group=one.work.group)[0])
    return _batch_s(one.batch(use), one.work, ranks)


def _batch_s(cost: Batch, work: Work, ranks: int) -> float:
    law = cost.laws[0][1]
    return law.chunk_s + (law.sample_s * len(work.lengths) + law.token_s * float(work.lengths.sum())) / ranks + cost.step_s


# ---- stages and roles ----


def _stage(part: Part, choices: Sequence[Roofline], group: int) -> Stage:
    first, *others = [Spread(one.decoding() if part.use == "generate" else one.batch(part.use), one.memory(part.use))
                      for one in choices]
    return Stage(part.name, first.cost, part.after, memory=first.memory, weights=part.weights, trains=part.use == "train",
                 least_chunk=group, spreads=tuple(others))


def _notes(parts: Sequence[Part], chosen: Mapping[str, Sequence[Roofline]]) -> Iterator[str]:
    """What a search has no choice in."""
    for part in parts:
        if len(chosen[part.name]) == 1:
            one = chosen[part.name][0]
            yield f"{part.name}: only {one.unit} device{'s' * (one.unit > 1)} a {'replica' if part.use == 'generate' else 'rank'}"


def _role(name: str, use: Use, choices: Sequence[Roofline], devices: int) -> RoleProfile:
    first, *others = [_spread(name, use, one, devices) for one in choices]
    return replace(first, spreads=tuple(others))


def _spread(name: str, use: Use, one: Roofline, devices: int) -> RoleProfile:
    ranks = sorted({min(2**power, devices // one.unit) for power in range(devices.bit_length())})
    memory = one.memory(use)
    role = RoleProfile(
        name, devices_per_rank=one.unit, onload_s=one.move_s(use, devices), offload_s=one.move_s(use, devices),
        memory=tuple(MemoryPoint(count, memory.fixed + memory.shared / (count * one.unit), memory.left) for count in ranks))
    if use != "generate":
        return replace(role, batches=tuple(_points(one.batch(use), one.work, ranks)))
    cost = one.decoding()
    steps = tuple(DecodePoint(1, int(active), step_s) for active, step_s in zip(cost.step_s.xs, cost.step_s.ys, strict=True))
    return replace(role, decoding=steps, slots=cost.slots, prefill_s=cost.prefill_s)


def _points(cost: Batch, work: Work, ranks: Sequence[int]) -> Iterator[BatchPoint]:
    """Of a rank: batches that differ in samples, tokens and chunks one at a time."""
    law, mean = cost.laws[0][1], int(work.lengths.mean())
    for count in ranks:
        for samples, length, chunks in ((64, mean, 1), (256, mean, 1), (64, 4 * mean, 1), (64, mean, 16)):
            tokens = samples * length
            seconds = law.chunk_s * chunks + law.sample_s * samples + law.token_s * tokens + cost.step_s
            yield BatchPoint(count, samples, tokens, chunks, seconds)


def _known(table: Mapping[str, Known], name: str, kind: str) -> Known:
    if name not in table:
        raise UsageError(f"no data of the {kind} '{name}': known are {', '.join(table)}")
    return table[name]
