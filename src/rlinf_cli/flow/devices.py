"""Which devices there are, and which of them a run uses: GPUs, or CPU slots. No Ray and no torch in here.

The value of `cluster.devices` is `auto` (every GPU; where there is none, a CPU slot for each core), `cuda:N` or `cpu:N`.
"""

from __future__ import annotations

import ctypes
import itertools
import logging
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rlinf_cli.errors import CapacityError, UsageError

log = logging.getLogger(__name__)

Kind = Literal["cpu", "cuda"]
MAX_SLOTS = 64
"""CPU slots allowed on a machine with fewer cores: enough to rehearse any small cluster on a laptop."""


@dataclass(frozen=True, slots=True)
class Node:
    """A machine, and what it offers."""

    name: str
    """`node-0`: what errors call it."""
    id: str
    """Ray's; empty before Ray runs."""
    address: str
    cores: int
    gpus: tuple[str, ...] = ()
    """As CUDA_VISIBLE_DEVICES names them."""


@dataclass(frozen=True, slots=True)
class Device:
    """What a rank runs on."""

    index: int
    """Its number in placements: 0, 1, ... over all nodes."""
    kind: Kind
    node_id: str
    """Of the node that has it: Ray's id, address and name."""
    address: str
    local: str
    """What its node calls it: an entry of CUDA_VISIBLE_DEVICES, or the number of a CPU slot."""
    node: str = "node-0"


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """How many devices of which kind; there are as many."""

    kind: Kind
    count: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.count}"


def parse_devices(text: str, nodes: Sequence[Node] = ()) -> DeviceRequest:
    """The value of `cluster.devices`, on the given nodes (by default: on this machine).

    Raises UsageError for what is no value, CapacityError when there are not so many devices.
    """
    nodes = nodes or (this_node(),)
    gpus, cores = sum(len(node.gpus) for node in nodes), sum(node.cores for node in nodes)
    if text == "auto":
        return DeviceRequest("cuda", gpus) if gpus else DeviceRequest("cpu", cores)
    found = re.fullmatch(r"(cpu|cuda):([1-9][0-9]*)", text)
    if found is None:
        raise UsageError(f"cluster.devices={text}: write auto, cpu:N or cuda:N, with N from 1")
    count = int(found[2])
    if found[1] == "cuda":
        _check_gpus(count, gpus)
        return DeviceRequest("cuda", count)
    _check_slots(count, cores)
    return DeviceRequest("cpu", count)


def local_devices(request: DeviceRequest) -> tuple[Device, ...]:
    """The requested devices of this machine."""
    return devices_of(request, (this_node(),))


def devices_of(request: DeviceRequest, nodes: Sequence[Node]) -> tuple[Device, ...]:
    """The requested devices of some nodes: node by node; CPU slots beyond the cores come once each core has one."""
    places = _gpus(nodes) if request.kind == "cuda" else _slots(nodes)
    return tuple(Device(index, request.kind, node.id, node.address, local, node.name)
                 for index, (node, local) in enumerate(itertools.islice(places, request.count)))


def this_node(name: str = "node-0", node_id: str = "", address: str = "127.0.0.1") -> Node:
    """This machine."""
    return Node(name, node_id, address, usable_cores(), visible_gpus())


def usable_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Cores this process may use: its affinity, and the quota of its container (cgroup v1 or v2)."""
    cores = len(os.sched_getaffinity(0))
    limit = _quota(cgroup)
    return cores if limit is None else max(1, min(cores, round(limit)))


def visible_gpus(library: str = "libnvidia-ml.so.1", proc: Path = Path("/proc/driver/nvidia/gpus")) -> tuple[str, ...]:
    """The GPUs that CUDA would show this process, as CUDA_VISIBLE_DEVICES names them."""
    count = _count_by_nvml(library)
    if count is None:
        count = len(list(proc.iterdir())) if proc.is_dir() else 0
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return tuple(map(str, range(count))) if chosen is None else tuple(_usable(chosen.split(","), count))


def gpu_memory(library: str = "libnvidia-ml.so.1") -> float:
    """Bytes of the smallest GPU of this machine, as its driver says; infinite where it does not."""
    count = _count_by_nvml(library)
    if not count:
        return math.inf
    nvml = ctypes.CDLL(library)
    nvml.nvmlInit_v2()
    sizes = list(_sizes(nvml, count))
    nvml.nvmlShutdown()
    return float(min(sizes, default=math.inf))


class _Memory(ctypes.Structure):
    """`nvmlMemory_t`."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def _sizes(nvml: ctypes.CDLL, count: int) -> Iterator[int]:
    for index in range(count):
        device, found = ctypes.c_void_p(), _Memory()
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == 0 \
                and nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(found)) == 0:
            yield found.total


def _check_gpus(asked: int, there: int) -> None:
    if there == 0:
        raise CapacityError(f"cluster.devices=cuda:{asked}: no GPU was found; write cpu:{asked} for CPU slots")
    if asked > there:
        raise CapacityError(f"cluster.devices=cuda:{asked}: there {_are(there, 'GPU')}; ask for at most cuda:{there}")


def _check_slots(asked: int, cores: int) -> None:
    most = max(MAX_SLOTS, cores)
    if asked > most:
        raise CapacityError(f"cluster.devices=cpu:{asked}: there {_are(cores, 'core')}; ask for at most cpu:{most}")
    if asked > cores:
        log.warning("cluster.devices=cpu:%d: there %s, so the slots share them and run slower",
                    asked, _are(cores, "core"))


def _are(count: int, what: str) -> str:
    return f"is 1 {what}" if count == 1 else f"are {count} {what}s"


def _gpus(nodes: Iterable[Node]) -> Iterator[tuple[Node, str]]:
    return ((node, gpu) for node in nodes for gpu in node.gpus)


def _slots(nodes: Sequence[Node]) -> Iterator[tuple[Node, str]]:
    for turn in itertools.count():
        for node in nodes:
            for core in range(node.cores):
                yield node, str(turn * node.cores + core)


def _quota(cgroup: Path) -> float | None:
    """Cores' worth of time that the container may use; None when it is unlimited."""
    for files in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            quota, period = " ".join((cgroup / file).read_text() for file in files).split()
        except (OSError, ValueError):
            continue
        return None if quota in ("max", "-1") else int(quota) / int(period)
    return None


def _count_by_nvml(library: str) -> int | None:
    """GPUs by the driver's own library, without starting CUDA in this process; None where it does not answer."""
    try:
        nvml = ctypes.CDLL(library)
    except OSError:
        return None
    count = ctypes.c_uint(0)
    if nvml.nvmlInit_v2() != 0 or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return None
    nvml.nvmlShutdown()
    return count.value


def _usable(entries: Iterable[str], count: int) -> Iterator[str]:
    """As CUDA reads the variable: the first entry that is no device ends the list."""
    for entry in map(str.strip, entries):
        if entry.startswith(("GPU-", "MIG-")) or (entry.isdigit() and int(entry) < count):
            yield entry
        else:
            return
