"""A rank's place, and what its process is told to make its worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rlinf_cli.flow.controller import ControllerAddress
from rlinf_cli.flow.devices import Device

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
    process: str
    """The roles that share the rank's process, joined by `+`."""
    launch: int = 0
    """Tells apart the launches of one role."""
    incarnation: int = 0
    """How often the rank has been started again."""
    here: Path = field(default_factory=Path.cwd)
    """The driver's working directory, which paths of users are relative to."""

    @property
    def identity(self) -> str:
        return f"{self.role}[{self.rank}]"

    @property
    def host(self) -> str:
        """The process that the rank lives in."""
        return f"{self.process}[{self.rank}]"

    @property
    def actor_name(self) -> str:
        """What Ray knows the process by, whichever incarnation of it."""
        return f"{self.host} of launch {self.launch}"

    @property
    def log(self) -> Path:
        return self.directory / f"{self.process}-{self.rank}.log"

    @property
    def stacks(self) -> Path:
        return self.directory / f"{self.process}-{self.rank}.stacks.txt"

    def on(self, devices: Sequence[Device]) -> Seat:
        """The same rank on other devices, which are of one node."""
        first = devices[0]
        return replace(self, devices=tuple(device.index for device in devices), node=first.node, node_id=first.node_id,
                       local=tuple(device.local for device in devices), address=first.address)

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
