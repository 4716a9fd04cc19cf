"""Items between two workers through a channel, ours beside the public RLinf package's.

    python scripts/bench/channel.py --peer-python PEER/bin/python        (its environment: scripts/bench/peers/channel_rlinf.py)

Rounds alternate between the two, so that both see the same machine; ratios are of medians. Ratios:
`small_rate` 1 KB items put one by one without waiting, got as they come · `sync_rate` each put accepted before the next,
each get of one item · `large_objects` 10 MB of random bytes · `large_arrays` 10 MB arrays (the peer: tensors) · `memcpy`
10 MB arrays through the channel against one warm np.copyto of that size in the same process · `ready_time` from the
launch of two workers to the end of their first call, ours divided by the peer's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.cluster import Cluster
from rlinf_cli.flow.group import Group
from rlinf_cli.flow.worker import Worker

KB, MB = 1024, 1024 * 1024
PEER = Path(__file__).parent / "peers" / "channel_rlinf.py"


class Endpoint(Worker):
    """Rank 0 produces, rank 1 consumes."""

    def ping(self) -> int:
        return self.rank

    def produce(self, name: str, kind: str, size: int, count: int, wait: bool) -> None:
        item, channel = made(kind, size), Channel(name)
        for _ in range(count):
            channel.put(item, wait=wait)
        channel.flush()

    def consume(self, name: str, count: int, chunk: int) -> None:
        channel, got = Channel(name), 0
        while got < count:
            got += len(channel.get(min(chunk, count - got)))

    def copy(self, size: int, count: int) -> float:
        """Bytes per second of np.copyto between two arrays that are in memory."""
        source, target = made("array", size), made("array", size)
        seconds = []
        for _ in range(count):
            began = time.perf_counter()
            np.copyto(target, source)
            seconds.append(time.perf_counter() - began)
        return size / statistics.median(seconds)


def made(kind: str, size: int) -> object:
    if kind == "tensor":
        import torch

        return torch.ones(size, dtype=torch.uint8)
    return np.ones(size, np.uint8) if kind == "array" else os.urandom(size)


def rate(group: Group, name: str, kind: str, size: int, count: int, chunk: int = 1, wait: bool = False) -> float:
    """Items per second from worker 0 through the channel to worker 1."""
    for items in (max(10, count // 10), count):
        began = time.perf_counter()
        calls = [group.on(0).produce(name, kind, size, items, wait), group.on(1).consume(name, items, chunk)]
        for call in calls:
            call.wait()
        seconds = time.perf_counter() - began
    Channel(name).drop()
    return items / seconds


def measure_ours() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as logs, Cluster.start("cpu:2", directory=Path(logs)) as cluster:
        began = time.perf_counter()
        group = cluster.launch("endpoint", Endpoint, [[0], [1]])
        group.ping().wait()
        ready = time.perf_counter() - began
        return {
            "ready_s": ready,
            "small_per_s": rate(group, "small", "bytes", KB, 20_000, chunk=64),
            "small_single_gets_per_s": rate(group, "single", "bytes", KB, 5000),
            "sync_per_s": rate(group, "sync", "bytes", KB, 3000, wait=True),
            "objects_MBps": 10 * rate(group, "objects", "bytes", 10 * MB, 60),
            "arrays_MBps": 10 * rate(group, "arrays", "array", 10 * MB, 100),
            "tensors_MBps": 10 * rate(group, "tensors", "tensor", 10 * MB, 60),
            "copyto_MBps": group.on(0).copy(10 * MB, 50).wait()[0] / MB,
        }


def measure_peer(python: str) -> dict[str, float]:
    run = subprocess.run([python, str(PEER)], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return json.loads(run.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", default=os.environ.get("RLINF_BENCH_PEER_RLINF"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ours", action="store_true", help="measure ours once, and nothing else")
    args = parser.parse_args()
    if args.ours:
        print(json.dumps(measure_ours()))
        return
    if not args.peer_python:
        parser.error("--peer-python (or RLINF_BENCH_PEER_RLINF) must name the python of the peer's environment")
    ours, peers = [], []
    for number in range(args.rounds):
        run = subprocess.run([sys.executable, __file__, "--ours"], check=True, stdout=subprocess.PIPE, text=True)
        ours.append(json.loads(run.stdout.splitlines()[-1]))
        peers.append(measure_peer(args.peer_python))
        print(f"round {number + 1}: ours {brief(ours[-1])} · peer {brief(peers[-1])}", flush=True)
    print(json.dumps(report(ours, peers)))


def report(ours: list[dict[str, float]], peers: list[dict[str, float]]) -> dict[str, object]:
    middle = {name: statistics.median(run[name] for run in ours) for name in ours[0]}
    other = {name: statistics.median(run[name] for run in peers) for name in peers[0]}
    ratios = {
        "small_rate": middle["small_per_s"] / other["small_per_s"],
        "sync_rate": middle["sync_per_s"] / other["sync_per_s"],
        "large_objects": middle["objects_MBps"] / other["objects_MBps"],
        "large_arrays": middle["arrays_MBps"] / other["arrays_MBps"],
        "memcpy": statistics.median(run["arrays_MBps"] / run["copyto_MBps"] for run in ours),
        "ready_time": middle["ready_s"] / other["ready_s"],
    }
    return {"bench": "channel", "ratios": {name: round(ratio, 3) for name, ratio in ratios.items()},
            "raw": {"ours": [rounded(run) for run in ours], "peer": [rounded(run) for run in peers]}}


def rounded(run: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in run.items()}


def brief(run: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in run.items())


if __name__ == "__main__":
    main()
