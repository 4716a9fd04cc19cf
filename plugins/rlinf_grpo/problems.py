"""Combinations of keys that make no sense, a sentence each: what is wrong, and what would do."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from rlinf_grpo.config import GRPOConfig


def problems(keys: GRPOConfig, config: Any) -> Iterator[str]:
    """`config`: the whole configuration of the run."""
    if config.workflow == "embodied":
        return chain(_environments(keys), _groups(keys, config.env.group, "env.group"), _advantages(keys), _bounds(keys))
    return chain(_workflow(config), _groups(keys, config.rollout.group_size, "rollout.group_size"), _advantages(keys),
                 _bounds(keys), _kl(keys), _importance(keys, config.rollout))


def _workflow(config: Any) -> Iterator[str]:
    if config.workflow == "supervised":
        yield (f"workflow=supervised has no rewards, which algorithm.name={config.algorithm.name} learns from: use "
               "algorithm.name=sft or workflow=reasoning")
    if config.workflow == "cloning":
        yield (f"workflow=cloning shows demonstrations, which algorithm.name={config.algorithm.name} does not learn from: use "
               "workflow=embodied or algorithm.name=bc")


def _environments(keys: GRPOConfig) -> Iterator[str]:
    for name, off in ("kl_coef", 0), ("importance_cap", 0), ("rounds", 1), ("overlong_buffer", 0), ("overlong_filter", False):
        if getattr(keys, name) != off:
            yield (f"algorithm.{name} is {getattr(keys, name)}, but it is for language models, and the run is in an environment: "
                   f"give algorithm.{name}={str(off).lower()}")


def _groups(keys: GRPOConfig, size: int, name_of_size: str) -> Iterator[str]:
    comparing = [f"{name}={value}" for name, value, compares in (
        ("baseline", keys.baseline, keys.baseline != "none"),
        ("normalize", keys.normalize, keys.normalize == "group"),
        ("rounds", keys.rounds, keys.rounds > 1),
        ("zero_variance", keys.zero_variance, keys.zero_variance == "drop")) if compares]
    if size < 2 and comparing:
        what = "samples of a prompt" if name_of_size.startswith("rollout") else "episodes from one initial state"
        yield f"{name_of_size} is {size}, but algorithm.{comparing[0]} compares the {what} with each other: it must be at least 2"


def _advantages(keys: GRPOConfig) -> Iterator[str]:
    if keys.baseline == "none" and keys.normalize != "batch":
        yield (f"algorithm.baseline=none with algorithm.normalize={keys.normalize} compares rewards with nothing: "
               "use algorithm.normalize=batch, or another baseline")


def _bounds(keys: GRPOConfig) -> Iterator[str]:
    if 0 < keys.dual_clip <= 1:
        yield (f"algorithm.dual_clip is {keys.dual_clip}, but it bounds a ratio that begins at 1: it must be more than 1, "
               "or 0 for none")
    if 0 < keys.importance_cap <= 1:
        yield (f"algorithm.importance_cap is {keys.importance_cap}, but it bounds weights that are 1 where engine and "
               "trainer agree: it must be more than 1, or 0 for none")


def _kl(keys: GRPOConfig) -> Iterator[str]:
    if keys.kl_coef > 0 and keys.kl_in == "loss" and keys.estimator == "k1":
        yield ("algorithm.kl_estimator=k1 as a term of the loss has a gradient of 0 on average: use k2 or k3, or "
               "algorithm.kl_in=reward")
    if keys.kl_coef > 0 and keys.kl_in == "reward" and keys.normalize == "group":
        yield ("algorithm.kl_in=reward with algorithm.normalize=group divides differences in divergence by their own spread "
               "wherever a prompt's rewards are equal, which drowns what is to be learned: use algorithm.kl_in=loss, or "
               "algorithm.normalize=batch or none")


def _importance(keys: GRPOConfig, rollout: Any) -> Iterator[str]:
    truncating = [name for name, off in (("top_k", 0), ("top_p", 1), ("min_p", 0)) if getattr(rollout, name) != off]
    if keys.importance_cap > 0 and truncating:
        name = truncating[0]
        yield (f"algorithm.importance_cap has nothing to go by with rollout.{name}={getattr(rollout, name)}: the engine's "
               f"probabilities are then of a truncated distribution; leave rollout.{name} out, or the correction")
