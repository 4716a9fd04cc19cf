"""From what environments and policy went through in a step to what each rank trains in each optimiser step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.contracts.algorithm import Algorithm, SegmentReturns, SegmentTargets
from rlinf_cli.contracts.policy import Minibatch, Transitions
from rlinf_cli.rl.segment import Observation, Segment
from rlinf_cli.workers.batch import minibatches
from rlinf_cli.workers.environments.buffers import part

if TYPE_CHECKING:
    from rlinf_cli.config.schema import RunConfig


@dataclass(frozen=True)
class Portion:
    """What one rank trains in a step."""

    transitions: Transitions
    """Those of its rows, each once."""
    minibatches: list[Minibatch]
    """One an optimiser step; the same number on every rank."""
    counted: NDArray[np.int64]
    """Rows of which this rank tells the policy's running statistics; those of all ranks are all rows, each once."""


@dataclass(frozen=True)
class DealtSegments:
    """A step that is ready to be trained."""

    portions: list[Portion]
    """Of each rank."""
    metrics: Mapping[str, float]
    """What the algorithm measured over the whole step, and `env/left_out`: steps that are not trained."""
    state: Mapping[str, float]
    """`Algorithm.state` after the step."""
    left_out: list[str] = field(default_factory=list)
    """Which episodes are not trained since a reward is no number, a sentence each."""


def deal_segments(segments: Sequence[Segment], algorithm: Algorithm, config: RunConfig, version: int,
                  world: int) -> DealtSegments:
    """The portions of each rank, of segments of T steps each, whose environments together are the step's.

    Everything that depends on the whole step is settled here, and which transitions an optimiser step trains is a function of
    (seed, version) alone, so the gradient does not depend on how they are split over ranks and micro-batches.
    """
    whole = joined(segments)
    bad = ~np.isfinite(whole.rewards)
    known = ~(whole.lost | in_same_episode(whole, bad))
    targets, metrics = algorithm.segment_advantages(returns_of(whole, known))
    rows = np.flatnonzero(targets.trained.numpy() & known)
    transitions = select(whole, targets, rows)
    steps = optimiser_steps(len(rows), config, version)
    portions = [portion(transitions, [_share(step, rank, world) for step in steps], config.algorithm.epochs)
                for rank in range(world)]
    return DealtSegments(portions, {**metrics, "env/left_out": float(whole.steps - len(rows))}, targets.state,
                         describe_not_finite(whole, bad))


def optimiser_steps(count: int, config: RunConfig, version: int) -> list[Minibatch]:
    """Which of so many rows each trains: all in each pass."""
    keys = config.algorithm
    chosen = minibatches(count, keys.epochs, keys.minibatches, config.seed, version) if count else ()
    return [Minibatch(np.array(rows, np.int64), np.full(len(rows), 1 / len(rows), np.float32)) for rows in chosen]


def joined(segments: Sequence[Segment]) -> Segment:
    """One segment of all environments, in the order of their numbers."""
    order = np.argsort(np.concatenate([segment.environments for segment in segments]), kind="stable")

    def beside(name: str, axis: int = 1) -> Any:
        return _beside([getattr(segment, name) for segment in segments], order, axis)

    return Segment(**{name: beside(name) for name in _TIMED}, environments=beside("environments", 0),
                   episodes=[episode for segment in segments for episode in segment.episodes])


_TIMED = ("observations", "sampled", "logprobs", "values", "rewards", "terminated", "truncated", "final_values", "versions",
          "episode_ids", "lost")


def _beside(arrays: Sequence[Any], order: NDArray[np.intp], axis: int) -> Any:
    if isinstance(arrays[0], Mapping):
        return {name: _beside([array[name] for array in arrays], order, axis) for name in arrays[0]}
    whole = arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis)
    return whole if np.array_equal(order, np.arange(len(order))) else np.take(whole, order, axis)


def in_same_episode(segment: Segment, marked: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Rows of episodes that have a marked row in the segment, [T, E]."""
    chosen = np.zeros_like(marked)
    for e in np.flatnonzero(marked.any(0)):
        chosen[:, e] = np.isin(segment.episode_ids[:, e], segment.episode_ids[marked[:, e], e])
    return chosen


def describe_not_finite(segment: Segment, bad: NDArray[np.bool_]) -> list[str]:
    """A sentence for each episode with a reward that is no number."""
    first = {(int(segment.environments[e]), int(segment.episode_ids[t, e])): float(segment.rewards[t, e])
             for t, e in reversed(list(zip(*np.nonzero(bad), strict=True)))}
    return [f"episode {number} of environment {environment}: a reward is {reward}"
            for (environment, number), reward in sorted(first.items())]


def returns_of(segment: Segment, known: NDArray[np.bool_]) -> SegmentReturns:
    """What the step earned, as algorithms are told."""
    import torch

    ended = {(one.environment, one.number): one for one in segment.episodes}
    numbers = {key: i for i, key in enumerate(sorted(ended))}
    groups: dict[str, int] = {}
    episodes = np.full(segment.rewards.shape, -1)
    for e, environment in enumerate(segment.environments.tolist()):
        episodes[:, e] = [numbers.get((environment, number), -1) for number in segment.episode_ids[:, e].tolist()]
    return SegmentReturns(
        rewards=torch.from_numpy(np.where(known, segment.rewards, np.float32(0))),
        outputs=torch.from_numpy(segment.values[:-1]), last_outputs=torch.from_numpy(segment.values[-1]),
        final_outputs=torch.from_numpy(segment.final_values), terminated=torch.from_numpy(segment.terminated),
        truncated=torch.from_numpy(segment.truncated), known=torch.from_numpy(known), episodes=torch.from_numpy(episodes),
        returns=torch.tensor([ended[key].returned for key in numbers], dtype=torch.float64),
        groups=torch.tensor([groups.setdefault(ended[key].group, len(groups)) for key in numbers], dtype=torch.int64))


def select(segment: Segment, targets: SegmentTargets, rows: NDArray[np.intp]) -> Transitions:
    """The transitions in some rows of the flattened [T * E]."""

    def chosen(array: NDArray[Any]) -> NDArray[Any]:
        taken: NDArray[Any] = array.reshape(-1, *array.shape[2:])[rows]
        return taken

    return Transitions(_each(segment.observations, chosen), chosen(segment.sampled), chosen(segment.logprobs),
                       chosen(targets.advantages.numpy()), chosen(segment.values[:-1]), chosen(targets.targets.numpy()))


def portion(transitions: Transitions, steps: Sequence[Minibatch], epochs: int) -> Portion:
    """The rows that one rank trains, and where they are among these."""
    needed = np.unique(np.concatenate([np.empty(0, np.int64), *(step.rows for step in steps)]))
    own = transitions if len(needed) == len(transitions.advantages) else taken(transitions, needed)
    placed = [Minibatch(np.searchsorted(needed, step.rows), step.weights) for step in steps]
    first = [step.rows for step in placed[: len(placed) // epochs]]
    return Portion(own, placed, np.sort(np.concatenate([np.empty(0, np.int64), *first])))


def taken(transitions: Transitions, rows: NDArray[np.int64]) -> Transitions:
    """Some of them."""
    return Transitions(part(transitions.observations, rows), transitions.sampled[rows],
                       transitions.logprobs[rows], transitions.advantages[rows], transitions.old_values[rows],
                       transitions.value_targets[rows])


def _share(step: Minibatch, rank: int, world: int) -> Minibatch:
    return Minibatch(step.rows[rank::world], step.weights[rank::world])


def _each(observations: Observation, change: Any) -> Observation:
    if isinstance(observations, Mapping):
        return {name: change(array) for name, array in observations.items()}
    changed: NDArray[Any] = change(observations)
    return changed
