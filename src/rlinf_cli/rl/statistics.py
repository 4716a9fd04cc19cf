"""What a step's samples say about the run, and which of them can be trained on."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.rl.trajectory import Sample

_LISTED = 3


def trainable(samples: Sequence[Sample]) -> list[Sample]:
    """The samples with a finite reward, in their order, without those that `left_out` names."""
    without = left_out(samples)
    return [sample for sample in samples if sample.id not in without]


def left_out(samples: Sequence[Sample]) -> dict[str, str]:
    """Which samples of a step cannot be trained on, and why: sample id -> reason.

    A sample whose reward is missing or not finite; and the last one left of a group that lost all others so, since
    there is nothing to compare it with.
    """
    reasons = {sample.id: _no_reward(sample) for sample in samples if not math.isfinite(sample.reward)}
    for group in _groups(samples).values():
        rest = [sample for sample in group if sample.id not in reasons]
        if len(rest) == 1 < len(group):
            reasons[rest[0].id] = "no other sample of its prompt has a reward"
    return reasons


def describe_left_out(reasons: Mapping[str, str], told: Container[str] = ()) -> dict[str, str]:
    """Each reason of `left_out` but those `told` -> a sentence that names it and the samples."""
    samples: defaultdict[str, list[str]] = defaultdict(list)
    for sample, reason in reasons.items():
        samples[reason].append(sample)
    return {reason: f"{_listed(ids)}: {reason}" for reason, ids in samples.items() if reason not in told}


def step_metrics(samples: Sequence[Sample], version: int) -> dict[str, float]:
    """Metrics of one step's samples, left-out ones included. `version` is that of the policy about to be trained.

    `reward/mean|std|min|max` and `reward/<fn>/mean` cover finite values and are absent when there is none;
    `rollout/staleness/*` covers trained tokens, in policy versions.
    """
    return {} if not samples else {
        **_reward_metrics(samples),
        **length_metrics(samples),
        **_staleness_metrics(samples, version),
        "rollout/aborted": float(sum(sample.finish == "abort" for sample in samples)),
    }


def _reward_metrics(samples: Sequence[Sample]) -> dict[str, float]:
    rewards = _finite([sample.reward for sample in samples])
    metrics = {"reward/errors": float(len(samples) - len(rewards)), "reward/zero_std_frac": _zero_std_frac(samples),
               "reward/timeouts": float(sum(sample.error.startswith("TimeoutError:") for sample in samples))}
    if len(rewards):
        metrics |= {"reward/mean": float(rewards.mean()), "reward/std": float(rewards.std()),
                    "reward/min": float(rewards.min()), "reward/max": float(rewards.max())}
    return metrics | _means_by_function(samples)


def _means_by_function(samples: Sequence[Sample]) -> dict[str, float]:
    values: defaultdict[str, list[float]] = defaultdict(list)
    for sample in samples:
        for name, value in sample.rewards.items():
            values[name].append(value)
    finite = {name: _finite(values[name]) for name in sorted(values)}
    errors = {f"reward/{name}/errors": float(len(values[name]) - len(known)) for name, known in finite.items()}
    return ({f"reward/{name}/mean": float(known.mean()) for name, known in finite.items() if len(known)}
            | {name: count for name, count in errors.items() if count})


def _zero_std_frac(samples: Sequence[Sample]) -> float:
    """Share of the groups that can be trained on in which all rewards are equal, so that nothing is learned."""
    groups = _groups(trainable(samples)).values()
    return sum(len({sample.reward for sample in group}) == 1 for group in groups) / max(1, len(groups))


def length_metrics(samples: Sequence[Sample]) -> dict[str, float]:
    """Of prompts and responses, in tokens; {} without samples."""
    if not samples:
        return {}
    responses = np.array([len(sample.response_ids) for sample in samples])
    return {
        "rollout/response_len/mean": float(responses.mean()),
        "rollout/response_len/max": float(responses.max()),
        "rollout/response_len/clip_frac": sum(sample.finish == "length" for sample in samples) / len(samples),
        "rollout/prompt_len/mean": float(np.mean([len(sample.prompt_ids) for sample in samples])),
    }


def _staleness_metrics(samples: Sequence[Sample], version: int) -> dict[str, float]:
    made = np.concatenate([sample.versions[sample.mask] for sample in samples])
    ages = version - made if len(made) else np.zeros(1)
    return {"rollout/staleness/mean": float(ages.mean()), "rollout/staleness/max": float(ages.max())}


def _listed(ids: Sequence[str]) -> str:
    """The first few of the ids, and how many there are."""
    if len(ids) == 1:
        return f"sample {ids[0]}"
    more = ", ..." if len(ids) > _LISTED else ""
    return f"{len(ids)} samples ({', '.join(ids[:_LISTED])}{more})"


def _no_reward(sample: Sample) -> str:
    return sample.error or f"its reward is {sample.reward}"


def _groups(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    groups: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[sample.group_id].append(sample)
    return groups


def _finite(values: Sequence[float]) -> NDArray[np.float64]:
    array = np.array(values, np.float64)
    return array[np.isfinite(array)]
