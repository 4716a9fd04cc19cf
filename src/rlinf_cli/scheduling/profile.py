"""What was measured of a workflow's roles: raw points, with what they depend on. Data only; costs are fitted elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rlinf_cli.scheduling.problem import Source


@dataclass(frozen=True)
class BatchPoint:
    """One call on `ranks` ranks at once, each of which was given so much in so many chunks (0: nobody counted them); `seconds` of
    the slowest."""

    ranks: int
    samples: int
    tokens: int
    """Of responses."""
    chunks: int
    seconds: float


@dataclass(frozen=True)
class DecodePoint:
    """Decode steps of `replicas` engines at once, with so many active responses each."""

    replicas: int
    active: int
    step_s: float
    steps: float = field(default=1.0, compare=False)
    """How many there were: what the point weighs."""


@dataclass(frozen=True)
class MemoryPoint:
    """Most bytes on a device of a role on `ranks` ranks, and what is left there when it has made room."""

    ranks: int
    loaded: float
    left: float


@dataclass(frozen=True)
class RoleProfile:
    role: str
    batches: tuple[BatchPoint, ...] = ()
    decoding: tuple[DecodePoint, ...] = ()
    """Not empty for what generates."""
    slots: int = 0
    """Responses that an engine works on at once."""
    prefill_s: float = 0.0
    """A prompt."""
    devices_per_rank: int = 1
    memory: tuple[MemoryPoint, ...] = ()
    onload_s: float = 0.0
    offload_s: float = 0.0
    needs_device: bool = True
    """False: it takes no turns on devices, such as a reward on a processor."""
    call_s: float = 0.0
    """Of what generates: once a batch, besides `prefill_s` and the decode steps."""
    spreads: tuple[RoleProfile, ...] = ()
    """The same role with other numbers of devices a rank."""


@dataclass(frozen=True)
class Profile:
    """`settings`: the configuration keys that the numbers depend on · `versions`: distributions and Python."""

    workflow: str
    roles: Mapping[str, RoleProfile]
    lengths: tuple[int, ...] = ()
    """Tokens of responses, as they came."""
    group: int = 1
    transfers: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(producer, consumer) -> seconds a sample."""
    sync_s: float = 0.0
    step_s: float = 0.0
    """Between two steps, of the program itself."""
    hardware: str = ""
    """Kind and number of devices, processor, memory: `2 cpu · Intel Xeon 8488C · 24 GB`."""
    device_memory: float = float("inf")
    versions: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    source: Source = "measured"
    made: str = ""
    """When, in ISO 8601."""
