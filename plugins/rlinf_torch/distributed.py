"""What the ranks of a trainer do together, through torch.distributed: gloo on CPU, NCCL on GPUs."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import urlsplit

import torch
import torch.distributed as dist
from torch import Tensor

from rlinf_cli.api import Ranks, RunError
from rlinf_torch.shared_sum import CAPACITY, Machine, SharedSum, attach, create

T = TypeVar("T")

BUCKET_ELEMENTS = 2**25
"""Gradients travel in buffers of at most this many elements (128 MB in float32), or one tensor."""

TIMEOUT = timedelta(minutes=30)
"""Longest wait for another rank. A dead one is noticed much earlier, by the run's supervisor."""


class RankGroup:
    """All ranks of one trainer. With one rank nothing is started and nothing travels. Trainers of other roles in the same
    processes, which are made in the same order on all ranks, have groups of their own."""

    def __init__(self, ranks: Ranks, device: torch.device) -> None:
        self._world, self._rank = ranks.world, ranks.rank
        self._group: dist.ProcessGroup | None = None
        if self._world > 1 and dist.is_initialized():
            self._group = dist.new_group(timeout=TIMEOUT)
        elif self._world > 1:
            if device.type == "cuda":
                torch.cuda.set_device(device)
            dist.init_process_group("nccl" if device.type == "cuda" else "gloo", store=_store(ranks), rank=ranks.rank,
                                    world_size=ranks.world, timeout=TIMEOUT)
        self._shared = self._share() if self._world > 1 and device.type == "cpu" else None

    def gather(self, value: T) -> list[T]:
        """Every rank's value, in the order of ranks, on every rank."""
        if self._world == 1:
            return [value]
        values: list[T] = [value] * self._world
        dist.all_gather_object(values, value, group=self._group)
        return values

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all ranks; the result is the same bits on every rank."""
        for bucket in _buckets(tensors) if self._world > 1 else ():
            flat = self._added(torch.cat([tensor.reshape(-1) for tensor in bucket]))
            for tensor, part in zip(bucket, torch.split(flat, [tensor.numel() for tensor in bucket]), strict=True):
                tensor.copy_(part.view_as(tensor))

    def _added(self, flat: Tensor) -> Tensor:
        if self._shared is not None and flat.nbytes <= CAPACITY:
            return self._shared.sum(flat)
        dist.all_reduce(flat, group=self._group)
        return flat

    def _share(self) -> SharedSum | None:
        """Memory for small sums, where all ranks are on one machine that allows it; nothing of it is left when they end."""
        machines = self.gather(Machine.own())
        if len(set(machines)) > 1 or not machines[0].keeps_order:
            return None
        path = self.gather(create(self._world) if self._rank == 0 else "")[0]
        memory = attach(path)
        pids = self.gather(os.getpid() if memory is not None else 0)
        if self._rank == 0 and path:
            os.unlink(path)
        return SharedSum(memory, self._rank, pids, TIMEOUT.total_seconds()) if memory is not None and all(pids) else None

    def sum_and_tell(self, tensors: Sequence[Tensor], numbers: Sequence[float]) -> list[list[float]]:
        """As `sum`, of float32 tensors on one device, and every rank's numbers, as many on each, in the order of ranks: in one
        exchange, since what an exchange takes hardly depends on its size. Numbers keep 48 bits of their precision."""
        if self._world == 1:
            return [list(numbers)]
        rows = torch.zeros(self._world, 2, len(numbers), dtype=torch.float32)
        exact = torch.tensor(numbers, dtype=torch.float64)
        rows[self._rank, 0] = exact
        rest = exact - rows[self._rank, 0].double()
        rows[self._rank, 1] = torch.where(rest.isfinite(), rest, 0.0)
        told = rows.to(tensors[0].device)
        self.sum([*tensors, told])
        return told.cpu().double().sum(1).tolist()

    def require_equal(self, checksum: str) -> None:
        """Raises RunError when the ranks do not hold the same weights."""
        checksums = self.gather(checksum)
        if len(set(checksums)) > 1:
            held = ", ".join(f"rank {rank} {one}" for rank, one in enumerate(checksums))
            raise RunError(f"the trainer's ranks loaded different weights ({held}): give all nodes the same model")


def _buckets(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    buckets: list[list[Tensor]] = []
    room = 0
    for tensor in tensors:
        if tensor.numel() > room:
            buckets.append([])
            room = BUCKET_ELEMENTS
        buckets[-1].append(tensor)
        room -= tensor.numel()
    return buckets


def _store(ranks: Ranks) -> Any:
    """Where ranks find each other. It and gloo listen at the given address only, not on every interface."""
    address = urlsplit(ranks.init_method)
    host, port = address.hostname, address.port
    assert address.scheme == "tcp" and host and port, ranks.init_method  # noqa: PT018 - one condition in three parts
    if ipaddress.ip_address(socket.gethostbyname(host)).is_loopback:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", _loopback_interface())
    listening = socket.create_server((host, port)).detach() if ranks.rank == 0 else None
    return dist.TCPStore(host, port, ranks.world, is_master=ranks.rank == 0, timeout=TIMEOUT,  # type: ignore[attr-defined]
                         master_listen_fd=listening)


def _loopback_interface() -> str:
    return next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
