"""The channels of the public RLinf package between two of its workers, on a private CPU Ray.

Runs in an environment of its own, never in ours (the package's import name differs, its Ray pins need not):
    python -m venv peer && peer/bin/pip install torch==2.13.0
    peer/bin/pip install rlinf==0.3.0 --no-deps && peer/bin/pip install ray==2.60.0 hydra-core numpy
    peer/bin/python scripts/bench/peers/channel_rlinf.py
The last line is one JSON object. Each rate is the better of puts and gets awaited one by one and of 8 under way.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "RAY_AUTH_MODE": "disabled", "RAY_DEDUP_LOGS": "0"}
os.environ.update(ENVIRONMENT)

import torch  # noqa: E402
from rlinf.scheduler import Channel, Cluster, NodePlacementStrategy, Worker  # noqa: E402

KB, MB = 1024, 1024 * 1024


class Peer(Worker):
    def __init__(self):
        super().__init__()

    def ping(self):
        return self._rank

    def produce(self, channel, kind, size, count, window):
        item = torch.zeros(size, dtype=torch.uint8) if kind == "tensor" else os.urandom(size)
        under_way = []
        for _ in range(count):
            work = channel.put(item, async_op=True)
            under_way.append(work)
            if len(under_way) >= window:
                under_way.pop(0).wait()
        for work in under_way:
            work.wait()

    def consume(self, channel, count, window):
        under_way = []
        for _ in range(count):
            under_way.append(channel.get(async_op=True))
            if len(under_way) >= window:
                under_way.pop(0).wait()
        for work in under_way:
            work.wait()


def start_ray(directory):
    """A Ray that nobody else joins; its processes are in a session of their own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [Path(sys.executable).parent / "ray", "start", "--head", f"--port={port}", "--num-cpus=2", "--block",
               "--node-ip-address=127.0.0.1", "--object-store-memory=1000000000", f"--temp-dir={directory}",
               "--include-dashboard=false", "--disable-usage-stats"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True)
    os.environ["RAY_ADDRESS"] = f"127.0.0.1:{port}"
    for line in process.stdout:
        if "Ray runtime started" in line:
            return process
    raise SystemExit("ray did not start")


def end_ray(process, directory):
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError, UnicodeDecodeError):  # gone, or somebody else's
                if directory in (entry / "cmdline").read_text():
                    os.kill(int(entry.name), signal.SIGKILL)


def rate(group, channel, kind, size, count, window):
    """Items per second from worker 0 through the channel to worker 1."""
    for items in (min(count, 10), count):
        began = time.perf_counter()
        calls = [group.execute_on(0).produce(channel, kind, size, items, window),
                 group.execute_on(1).consume(channel, items, window)]
        for call in calls:
            call.wait()
    return items / (time.perf_counter() - began)


def measure(small, large):
    cluster = Cluster(num_nodes=1)
    began = time.perf_counter()
    group = Peer.create_group().launch(cluster, NodePlacementStrategy([0, 0]), name="peers")
    group.ping().wait()
    ready = time.perf_counter() - began
    channel = Channel.create("bench")
    channel.qsize()
    awaited = rate(group, channel, "object", KB, small, 1)
    return {
        "ready_s": ready,
        "sync_per_s": awaited,
        "small_per_s": max(awaited, rate(group, channel, "object", KB, small, 8)),
        "objects_MBps": 10 * max(rate(group, channel, "object", 10 * MB, large, window) for window in (1, 8)),
        "arrays_MBps": 10 * max(rate(group, channel, "tensor", 10 * MB, large, window) for window in (1, 8)),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", type=int, default=200, help="items of 1 KB")
    parser.add_argument("--large", type=int, default=15, help="items of 10 MB")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="peer", dir="/tmp", ignore_cleanup_errors=True) as directory:
        ray_process = start_ray(directory)
        try:
            print(json.dumps(measure(args.small, args.large)), flush=True)
        finally:
            end_ray(ray_process, directory)
    os._exit(0)  # its actors' atexit hooks wait for the Ray that is gone


if __name__ == "__main__":
    main()
