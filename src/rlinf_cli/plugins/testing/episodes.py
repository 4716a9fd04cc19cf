"""Whether an algorithm that learns from environments keeps that part of the contract of `rlinf_cli.api.Algorithm`."""

from __future__ import annotations

from dataclasses import fields

import torch

from rlinf_cli.api import Algorithm, SegmentReturns
from rlinf_cli.plugins.testing.findings import require, require_metrics

STEPS, ENVIRONMENTS = 9, 6


def learns_from_environments(algorithm: Algorithm) -> bool:
    """Whether it has advantages for their steps."""
    return isinstance(algorithm, Algorithm) and type(algorithm).segment_advantages is not Algorithm.segment_advantages


def gives_advantages_in_environments(algorithm: Algorithm) -> None:
    """Shapes, types, finite where it is trained; nothing is changed, and nothing trained that is not known."""
    given = segment_returns()
    kept, state = {f.name: getattr(given, f.name).clone() for f in fields(given)}, dict(algorithm.state)
    found, metrics = algorithm.segment_advantages(given)
    for name, dtype in ("advantages", torch.float32), ("targets", torch.float32), ("trained", torch.bool):
        tensor = getattr(found, name)
        require(tensor.shape == given.rewards.shape and tensor.dtype == dtype,
                f"segment_advantages() must give {name}, {dtype} [T, E], here [{STEPS}, {ENVIRONMENTS}]; it gave {tensor.dtype} "
                f"{list(tensor.shape)}")
    rows = found.trained & given.known
    require(bool(rows.any()), "segment_advantages() trains nothing of an ordinary step")
    for name in "advantages", "targets":
        require(bool(getattr(found, name)[rows].isfinite().all()), f"{name} of segment_advantages() are not finite")
    require_metrics(metrics, "what segment_advantages() gives second")
    require(dict(algorithm.state) == state, "segment_advantages() must leave state alone: it gives the next one")
    changed = [name for name, value in kept.items() if not torch.equal(value, getattr(given, name))]
    require(not changed, f"segment_advantages() changes {', '.join(changed)} of what it is given: compute on copies")


def segment_returns() -> SegmentReturns:
    """An ordinary step: episodes of three steps each, which begin alike two by two; one is not known."""
    noise = torch.Generator().manual_seed(0)
    shape = STEPS, ENVIRONMENTS

    def draw() -> torch.Tensor:
        return torch.randn(shape, generator=noise)

    number = torch.arange(STEPS)[:, None] // 3 * ENVIRONMENTS + torch.arange(ENVIRONMENTS)
    last = (torch.arange(STEPS) % 3 == 2)[:, None].expand(shape)
    known = number != 4
    rewards = draw() * known
    returns = torch.zeros(int(number.max()) + 1, dtype=torch.float64).index_add(0, number.flatten(), rewards.flatten().double())
    cut = torch.rand(shape, generator=noise) < 0.5
    return SegmentReturns(rewards, draw(), draw()[0], draw(), last & ~cut, last & cut, known, number, returns,
                          torch.arange(len(returns)) // 2)
