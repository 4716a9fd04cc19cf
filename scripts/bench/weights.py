"""Weights from one trainer process to two engine processes of the same node: how long, and what generation loses by it.

    python scripts/bench/weights.py [--rounds 3] [--mb 500]

A publication is timed from its call until both engines hold the new version and both checksums, each computed from what
that process reads, have been compared. That is one copy (into shared memory) and one checksum in the trainer's process, and in
each engine's a checksum and a copy of what it does not use where it lies: all of it on as many cores as there are. After each
publication the limit is timed: np.copyto of as many bytes, by one thread of the trainer's process, from warm memory to warm
memory. In the same rounds Ray: put, got by two actors, no checksum. Ratios, medians; of float32 and bfloat16 the lower:
`memcpy` the limit's time divided by ours, engines that use the tensors where they lie · `memcpy_torch` the same with two
`torch` engines, which copy what they hold in another order (queries, keys and values) · `memcpy_staged` the same with engines
that copy everything into warm storage of their own and compute the checksum from there · `ray` Ray's time divided by that of
`memcpy` · `hidden` the share of an update's time that the `torch` engine loses no tokens by, one update a second of 100 MB.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlinf_cli.api import Request, Sampling, stored_weights, weights_checksum
from rlinf_cli.flow.client import client
from rlinf_cli.flow.cluster import Cluster
from rlinf_cli.flow.group import Group
from rlinf_cli.flow.weights import Publisher
from rlinf_cli.flow.weights_delivery import deliver
from rlinf_cli.flow.weights_layout import Manifest
from rlinf_cli.flow.weights_receiver import Receiver
from rlinf_cli.flow.worker import Worker, control

REPEATS = 9
"""Publications that are timed in a round, after two that are not (one for each region)."""
WIDTH, INNER = 768, 3072
PLACEMENT = [[0], [1]]


def model(dtype: torch.dtype, mb: int) -> list[tuple[str, torch.Tensor]]:
    """Tensors of `mb` megabytes with the sizes that a Llama of width 768 has."""
    rows = mb * 1_000_000 // 4 // WIDTH // dtype.itemsize
    made = [("embedding", torch.zeros(rows, WIDTH, dtype=dtype))]
    left = mb * 1_000_000 - rows * WIDTH * dtype.itemsize
    shapes = [("norm", (WIDTH,)), *((name, (WIDTH, WIDTH)) for name in "qkvo"), ("gate", (INNER, WIDTH)), ("up", (INNER, WIDTH)),
              ("down", (WIDTH, INNER))]
    layer = 0
    while left > 0:
        for name, shape in shapes:
            made.append((f"layers.{layer}.{name}", torch.zeros(shape, dtype=dtype)))
            left -= made[-1][1].numel() * dtype.itemsize
        layer += 1
    for number, (_, tensor) in enumerate(made):
        tensor.uniform_(-1, 1, generator=torch.Generator().manual_seed(number))
    return made


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


class Source(Worker):
    """The trainer's process."""

    def __init__(self, make: Callable[[], list[tuple[str, torch.Tensor]]]) -> None:
        self._named = make()
        self._size = sum(tensor.numel() * tensor.element_size() for _, tensor in self._named)
        self._publisher = Publisher(Path(client().address.directory_on(self.node)), self.node)
        self._copied, self._copy = (np.full(self._size, value, np.uint8) for value in (1, 2))
        self._version = 0

    def publish(self, engines: Group) -> float:
        """Seconds."""
        self._version += 1
        for _, tensor in self._named:
            tensor.view(-1)[0] += 1
        return seconds(lambda: self._publisher.publish(
            self._version, self._named, True, lambda manifest: deliver(engines, manifest, 600)))

    def limit(self) -> float:
        """Seconds for one copy."""
        return seconds(lambda: np.copyto(self._copy, self._copied))

    def close(self) -> None:
        self._publisher.close()


class Engine(Worker):
    """An engine's process, without its generation. `own`: it copies weights into one of two sets of its own."""

    def __init__(self, own: bool) -> None:
        self._receiver, self._own = Receiver(client(), Path()), own
        self._sets: list[dict[str, torch.Tensor]] = [{}, {}]

    @control
    def update_weights(self, manifest: Manifest) -> str:
        if not self._own:
            return weights_checksum(self._receiver.tensors(manifest))
        staged = self._sets[0]
        for name, tensor in self._receiver.tensors(manifest):
            if name not in staged:
                staged[name] = torch.empty_like(tensor)
            np.copyto(staged[name].view(torch.uint8).numpy(), tensor.view(torch.uint8).numpy())
        self._sets.reverse()
        return weights_checksum(staged.items())


class Generating(Worker):
    """The `torch` engine."""

    def __init__(self, directory: str, dtype: str = "float32") -> None:
        from rlinf_torch.engine import TorchEngine
        from rlinf_torch.engine_config import TorchEngineConfig

        torch.set_num_threads(1)
        self._engine = TorchEngine(TorchEngineConfig(slots=16, dtype=dtype), Path(directory), "cpu", 512)
        self._receiver = Receiver(client(), Path(directory))

    @control
    def update_weights(self, manifest: Manifest) -> str:
        return self._receiver.update(self._engine, manifest)

    def generate(self, limit: float) -> float:
        """Tokens per second, for so many seconds."""
        self._engine.submit([Request(f"{time.monotonic()}-{number}", np.arange(3, 11, dtype=np.int32), Sampling(500, seed=number))
                             for number in range(16)])
        began, before = time.monotonic(), self._engine.stats()["tokens"]
        while time.monotonic() - began < limit:
            self._engine.collect(0.05)
        rate = (self._engine.stats()["tokens"] - before) / (time.monotonic() - began)
        self._engine.abort()
        while self._engine.pending():
            self._engine.collect()
        return rate


def stored(directory: str) -> list[tuple[str, torch.Tensor]]:
    return [(name, tensor.clone()) for name, tensor in stored_weights(Path(directory))]


def measure_ours(mb: int) -> dict[str, float]:
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, Cluster.start("cpu:2", directory=Path(folder) / "logs") as cluster:
        for dtype in "float32", "bfloat16":
            directory = str(Path(folder) / dtype)
            rows = mb * 1_000_000 // 4 // WIDTH // getattr(torch, dtype).itemsize
            save_llama(Path(directory), dtype, vocab_size=rows, hidden_size=WIDTH, intermediate_size=INNER,
                       num_attention_heads=12, num_hidden_layers=3 * rows * WIDTH // (4 * WIDTH**2 + 3 * WIDTH * INNER))
            made = cluster.launch("source", Source, [[0]], functools.partial(model, getattr(torch, dtype), mb))
            read = cluster.launch("policy", Source, [[0]], functools.partial(stored, directory))
            for name, source, kind, *args in (("held", made, Engine, False), ("staged", made, Engine, True),
                                              ("torch", read, Generating, directory, dtype)):
                engines = cluster.launch("engines", kind, PLACEMENT, *args)
                times = [(source.publish(engines).wait()[0], source.limit().wait()[0]) for _ in range(REPEATS + 2)][2:]
                found[f"{name}_{dtype}_s"] = statistics.median(ours for ours, _ in times)
                found[f"{name}_limit_{dtype}_s"] = statistics.median(limit for _, limit in times)
                cluster.stop(engines)
            cluster.stop(made)
            cluster.stop(read)
    return found


def measure_hidden() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, Cluster.start("cpu:2", directory=Path(folder) / "logs") as cluster:
        save_llama(Path(folder) / "model", "float32", vocab_size=8000, hidden_size=512, intermediate_size=1536,
                   num_attention_heads=8, num_key_value_heads=4, num_hidden_layers=6)
        engine = cluster.launch("engine", Generating, [[0]], str(Path(folder) / "model"))
        source = cluster.launch("source", Source, [[1]], functools.partial(stored, str(Path(folder) / "model")))
        for _ in range(2):
            source.publish(engine).wait()
        rates: dict[bool, list[float]] = {False: [], True: []}
        updates: list[float] = []
        for busy in (False, True) * 3:
            call = engine.generate(4.0)
            while busy and not call.done():
                updates += source.publish(engine).wait()
                time.sleep(max(0.0, 1.0 - updates[-1]))
            rates[busy] += call.wait()
        plain, updated = (statistics.median(rates[busy]) for busy in (False, True))
        update = statistics.median(updates)
        return {"tokens_per_s": plain, "tokens_per_s_with_updates": updated, "update_s": update,
                "hidden": 1 - (1 - updated / plain) / update}


def save_llama(directory: Path, dtype: str, **config: int) -> None:
    """A random one. Embedding and head are one tensor."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    made = LlamaForCausalLM(LlamaConfig(**config, tie_word_embeddings=True))
    made.to(getattr(torch, dtype)).save_pretrained(directory)
    os.sync()  # else the system writes it out while something is timed


def measure_ray(mb: int) -> dict[str, float]:
    """The same arrays through Ray's object store: bytes of bfloat16, which NumPy does not know."""
    import ray

    ray.init(num_cpus=2, object_store_memory=4 * mb * 1_000_000, log_to_driver=False, include_dashboard=False,
             logging_level="ERROR")

    class Reader:
        def take(self, refs: list[Any]) -> int:
            return sum(array.nbytes for array in ray.get(refs[0]).values())

    readers = [ray.remote(num_cpus=0)(Reader).remote() for _ in range(2)]
    found = {}
    for dtype in "float32", "bfloat16":
        arrays = {name: tensor.view(torch.uint8).numpy() for name, tensor in model(getattr(torch, dtype), mb)}

        def once(arrays: dict[str, Any] = arrays) -> None:
            ref = ray.put(arrays)
            ray.get([reader.take.remote([ref]) for reader in readers])

        found[f"ray_{dtype}_s"] = statistics.median([seconds(once) for _ in range(REPEATS + 2)][2:])
    ray.shutdown()
    return found


def report(rounds: list[dict[str, float]], hidden: dict[str, float]) -> dict[str, Any]:
    middle = {name: statistics.median(run[name] for run in rounds) for name in rounds[0]}

    def worst(over: str, under: str) -> float:
        return min(statistics.median(run[f"{over}_{dtype}_s"] / run[f"{under}_{dtype}_s"] for run in rounds)
                   for dtype in ("float32", "bfloat16"))

    ratios = {"memcpy": worst("held_limit", "held"), "memcpy_torch": worst("torch_limit", "torch"),
              "memcpy_staged": worst("staged_limit", "staged"), "ray": worst("ray", "held"), "hidden": hidden.pop("hidden")}
    raw = {name: round(value, 4) for name, value in {**middle, **hidden}.items()}
    return {"bench": "weights", "ratios": {name: round(ratio, 3) for name, ratio in ratios.items()}, "raw": raw}


def measured(part: str, mb: int) -> dict[str, float]:
    """In a process of its own: a driver has one Ray."""
    command = [sys.executable, __file__, "--part", part, "--mb", str(mb)]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(run.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mb", type=int, default=500)
    parser.add_argument("--part", choices=("ours", "ray", "hidden"), help="measure one part once, and nothing else")
    args = parser.parse_args()
    parts = {"ours": lambda: measure_ours(args.mb), "ray": lambda: measure_ray(args.mb), "hidden": measure_hidden}
    if args.part:
        print(json.dumps(parts[args.part]()))
        return
    rounds = []
    for number in range(args.rounds):
        rounds.append({**measured("ours", args.mb), **measured("ray", args.mb)})
        print(f"round {number + 1}: " + ", ".join(f"{name} {value:.3f}" for name, value in rounds[-1].items()), flush=True)
    print(json.dumps(report(rounds, measured("hidden", args.mb))))


if __name__ == "__main__":
    main()
