"""Running mean and variance of what is observed, which travel with the weights."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

EPSILON = 1e-8
"""Added to the variance."""
LIMIT = 10.0
"""Standard deviations that a number may be from the mean; beyond, it is cut off."""


class RunningNorm(nn.Module):
    """`(x - mean) / std`, cut off at LIMIT; the identity, but for the limit, before anything was absorbed.

    Means and variances of parts are merged as in Chan et al. (1979); sums are taken about the mean so far, in float64.
    """

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("variance", torch.ones(size))
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """[N, size] to the same."""
        scaled = torch.batch_norm(x, None, None, self.mean, self.variance, False, 0.0, EPSILON, False)
        return scaled.clamp_(-LIMIT, LIMIT)

    @torch.no_grad()
    def statistics(self, x: Tensor) -> dict[str, Tensor]:
        """Of [N, size]: sums that `absorb` takes."""
        away = x.double() - self.mean.double()
        return {"count": torch.full((1,), len(x), dtype=torch.float64, device=x.device), "sum": away.sum(0),
                "squares": away.square().sum(0)}

    @torch.no_grad()
    def absorb(self, sums: Mapping[str, Tensor]) -> None:
        """Go on with these as well; nothing where they are of no row."""
        new, before = sums["count"], self.count.double()
        if not new.item():
            return
        total, shift = before + new, sums["sum"] / new
        spread = before * self.variance.double() + sums["squares"] - new * shift.square() + shift.square() * before * new / total
        self.mean += (shift * new / total).float()
        self.variance.copy_(spread / total)
        self.count.copy_(total)
