"""Machines that can be planned for before one owns them: what their data sheets say, and how much of it programs get.

The figures of the machines are peaks of one device. The shares below them were chosen once, from what is commonly reported of
well tuned engines and trainers; nothing here was measured on the machine at hand.
"""

from __future__ import annotations

from dataclasses import dataclass

TRAINING_SHARE = 0.4
"""Of peak FLOP/s in forward and backward passes: 38 to 45 % of bfloat16 is what tuned trainers of 7B to 30B models report."""
PREFILL_SHARE = 0.45
"""Of peak FLOP/s in forward passes over many tokens, which keep nothing for a backward pass."""
MEMORY_SHARE = 0.7
"""Of memory bandwidth in decode steps: kernels that stream weights and keys reach 70 to 85 %, with gaps between them."""
LINK_SHARE = 0.6
"""Of links between devices of a node in collectives: messages of a decode step are small."""
NETWORK_SHARE = 0.6
"""Of a device's part of the network: collectives over nodes, with others on the same switches."""
HOST_SHARE = 0.7
"""Of PCIe, from and to pinned memory; devices of a node share the host's."""
USABLE_SHARE = 0.92
"""Of a device's memory: the rest goes to the context of the driver and to fragmentation."""


@dataclass(frozen=True)
class Hardware:
    """Of one device: FLOP/s in bfloat16 without sparsity, bytes/s in one direction, bytes."""

    name: str
    flops: float
    memory_speed: float
    memory: float
    link_speed: float
    """To other devices of the node."""
    network_speed: float
    """To devices of other nodes."""
    host_speed: float
    """To main memory."""
    devices_per_node: int = 8

    @property
    def usable_memory(self) -> float:
        return self.memory * USABLE_SHARE


MACHINES = {
    machine.name: machine for machine in (
        Hardware("h100", 989e12, 3.35e12, 80e9, 450e9, 50e9, 64e9),
        Hardware("h200", 989e12, 4.8e12, 141e9, 450e9, 50e9, 64e9),
        Hardware("a100", 312e12, 2.039e12, 80e9, 300e9, 25e9, 32e9),
    )
}
"""H100 SXM 80 GB and H200 SXM 141 GB (NVLink 4, 400 Gb/s each, PCIe 5) · A100 SXM 80 GB (NVLink 3, 200 Gb/s, PCIe 4)."""
