"""A run of any length needs the memory of its first steps (scenario F3)."""

from __future__ import annotations

import gc
import os
import statistics

import numpy as np
import psutil
import pytest
import ray

from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.handle import gather
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.flow.worker import Worker, control

pytestmark = pytest.mark.integration

STEPS, WARM_UP, EVERY = 200, 40, 4
ITEMS, ITEM = 10, 1 << 20
"""A step's batch: ten megabytes, a megabyte an item."""
FEW = 6 << 20
"""Growth from the first to the last quarter that is none: less than a batch, where 120 steps lie between."""


class Toy(Worker):
    """All roles of a step in which every item is what was put into it."""

    def generate(self, seeds: In[int], samples: Out[np.ndarray]) -> None:
        for seed in seeds:
            samples.put(np.full(ITEM, seed % 251, np.uint8))

    def score(self, samples: In[np.ndarray], scored: Out[tuple[int, np.ndarray]]) -> None:
        for chunk in samples.chunks(4, at_least=1):
            for sample in chunk:
                scored.put((int(sample[0]), sample))

    def train(self, scored: In[tuple[int, np.ndarray]]) -> tuple[int, np.ndarray]:
        """A large result, which goes through Ray's own store."""
        found = list(scored)
        assert all(int(sample[-1]) == number for number, sample in found)
        return sum(number for number, _ in found), np.zeros(ITEM, np.uint8)

    def publish(self, group) -> None:
        group.update().wait(10)

    @control
    def update(self) -> None:
        """A call from a worker to another."""


class Gauge:
    """Bytes that each process has in main memory, and that each store holds."""

    def __init__(self, directory):
        self._directory = directory
        self._family = [psutil.Process(), *psutil.Process().children(recursive=True)]
        self.values = {}

    def read(self):
        gc.collect()
        for process in self._family:
            if process.is_running():
                self._note(f"{process.name()} {process.pid}", process.memory_info().rss)
        self._note("shared memory", sum(os.stat(entry).st_blocks * 512 for entry in os.scandir(self._directory)))
        capacity, free = ray.cluster_resources(), ray.available_resources()
        self._note("object store", capacity["object_store_memory"] - free["object_store_memory"])
        self._note("references x 10 kB", 10_000 * len(ray._private.worker.global_worker.core_worker.get_all_reference_counts()))

    def _note(self, name, value):
        self.values.setdefault(name, []).append(value)

    def growth(self):
        """Of each, from its first quarter to its last."""
        quarter = len(self.values["shared memory"]) // 4
        return {name: statistics.median(values[-quarter:]) - statistics.median(values[:quarter])
                for name, values in self.values.items() if len(values) >= 2 * quarter}


def run_step(index, rollout, reward, actor):
    seeds, samples, scored = channels = [Channel(f"{name}-memory-{index:06d}") for name in ("seeds", "samples", "scored")]
    seeds.put_many(range(index, index + ITEMS))
    seeds.close()
    calls = [rollout.generate(seeds, samples), reward.score(samples, scored), actor.train(scored), actor.publish(rollout)]
    gather(calls, 60)
    total, _ = calls[2].wait()[0]
    assert total == sum(seed % 251 for seed in range(index, index + ITEMS))
    assert len(calls[3].calls()) == 3  # with the two ranks that it called
    for channel in channels:
        channel.drop()


def test_memory_does_not_grow_with_the_steps(launch, cluster):
    rollout, reward, actor = launch(Toy, 2, role="rollout"), launch(Toy, role="reward"), launch(Toy, role="actor")
    for index in range(WARM_UP):
        run_step(index, rollout, reward, actor)
    gauge = Gauge(cluster._address.directory)
    for index in range(WARM_UP, STEPS):
        run_step(index, rollout, reward, actor)
        if index % EVERY == 0:
            gauge.read()
    growth = gauge.growth()
    assert {"shared memory", "object store"} < set(growth)
    assert len(growth) >= 8  # driver, controller, four ranks
    assert {name: value for name, value in growth.items() if value > FEW} == {}
