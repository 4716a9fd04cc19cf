"""A rank's place, and what its process is told to make its worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlinf_cli.flow.controller import ControllerAddress

Out = Sequence[str]
"""A channel's name, and this call's name as one of its producers."""


@dataclass(frozen=True)
class Seat:
    """A rank's place, and what its process is to be like."""

    role: str
    rank: int
    world: int
    devices: tuple[int, ...]
    kind: str
    local: tuple[str, ...]
    node: str
    node_id: str
    address: str
    directory: Path
    """For logs."""
    run_directory: Path
    env: Mapping[str, str]
    call_timeout: float
    """Seconds that a call may take, and so that it may wait on a channel."""

    @property
    def identity(self) -> str:
        return f"{self.role}[{self.rank}]"

    @property
    def log(self) -> Path:
        return self.directory / f"{self.role}-{self.rank}.log"

    @property
    def stacks(self) -> Path:
        return self.directory / f"{self.role}-{self.rank}.stacks.txt"

    def environment(self) -> dict[str, str]:
        """One thread a CPU slot: more of them, spinning on shared cores, cost many times what they bring."""
        threads = str(len(self.devices) if self.kind == "cpu" else 1)
        visible = ",".join(self.local) if self.kind == "cuda" else ""
        return {"CUDA_VISIBLE_DEVICES": visible, "OMP_NUM_THREADS": threads, "OMP_WAIT_POLICY": "passive", **self.env}


@dataclass(frozen=True)
class Plan:
    """What is needed to make a worker."""

    blob: bytes
    """Pickled: its class, positional and keyword arguments."""
    address: ControllerAddress
    stores: Mapping[str, Any]
    """Node -> the actor that reads its shared memory."""
    init_method: str = ""
