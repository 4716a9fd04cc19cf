"""Key and value tensors of the requests in their slots."""

from __future__ import annotations

from collections.abc import Sequence

import torch


class SlotStore:
    """`data` is [groups, slots, heads, length, dim]; a group is the keys or the values of one layer.

    It starts empty and grows with need. What a slot does not hold yet is finite, so that masking it suffices.
    """

    def __init__(self, groups: int, heads: int, dim: int, dtype: torch.dtype, device: torch.device) -> None:
        self.data = torch.zeros(groups, 0, heads, 0, dim, dtype=dtype, device=device)

    @property
    def slots(self) -> int:
        return self.data.shape[1]

    @property
    def length(self) -> int:
        return self.data.shape[3]

    def grow(self, slots: int, length: int) -> bool:
        """Make room for that many slots and positions; whether `data` is another tensor now."""
        if slots <= self.slots and length <= self.length:
            return False
        groups, _, heads, _, dim = self.data.shape
        larger = self.data.new_zeros(groups, max(slots, self.slots), heads, max(length, self.length), dim)
        larger[:, : self.slots, :, : self.length] = self.data
        self.data = larger
        return True

    def copy(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        """The first `length` positions of slot sources[i] to slot targets[i]; no source is a target."""
        self.data[:, list(targets), :, :length] = self.data[:, list(sources), :, :length]
