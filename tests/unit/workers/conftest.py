"""Samples, configurations and channels for workers that run in this process, without Ray."""

import threading
import time

import numpy as np
import pytest
import torch

from rlinf_cli.config.load import resolve
from rlinf_cli.contracts.engine import Completion
from rlinf_cli.flow.channel import Lease
from rlinf_cli.flow.errors import ChannelClosedError
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.rl.trajectory import Sample

INSTALLED = load_plugins(None)


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def configure():
    """`configure("algorithm.name=dapo", ...)`: a resolved configuration."""
    return lambda *arguments: resolve([], arguments, {}, INSTALLED)


@pytest.fixture(scope="session")
def sample():
    """`sample(group, number, reward, length, masked)`: of zeros; the first `masked` tokens are not trained."""

    def make(group="0-0", number=0, reward=0.0, length=3, masked=0, finish="stop", **more):
        mask = np.arange(length) >= masked
        arrays = {"prompt_ids": np.zeros(4, np.int32), "response_ids": np.zeros(length, np.int32),
                  "logprobs": np.zeros(length, np.float32), "versions": np.zeros(length, np.int32)}
        return Sample(id=f"{group}/{number:04d}", group_id=group, mask=mask, finish=finish, reward=reward, **{**arrays, **more})

    return make


@pytest.fixture(scope="session")
def group(sample):
    """`group("0-3", 1.0, 0.0)`: one sample a reward."""

    def make(name, *rewards, **more):
        return [sample(name, number, reward, **more) for number, reward in enumerate(rewards)]

    return make


class Queue:
    """What a channel is to a worker: closed when it is empty. Knows what is leased and not settled."""

    def __init__(self, *items):
        self.items = list(items)
        self.leased = set()

    def get(self, n, at_least=1):
        if not self.items:
            raise ChannelClosedError("empty")
        taken, self.items = self.items[:n], self.items[n:]
        return taken

    def chunks(self, size, at_least=None):
        while self.items:
            yield self.get(size)

    def lease(self, n, at_least=1):
        leases = [Lease(item, self, number) for number, item in enumerate(self.get(n, at_least))]
        self.leased.update(leases)
        return leases

    def leases(self, n, at_least=None):
        while self.items:
            yield self.lease(n)

    def qsize(self):
        return len(self.items)

    def settle(self, leases):
        for lease in leases:
            lease.channel.leased.remove(lease)

    def put(self, item, weight, settles=()):
        assert weight == sum(len(one) for one in item)
        self.items.append(item)
        self.settle(settles)


@pytest.fixture(scope="session")
def queue():
    """`queue(*items)`: a channel that nothing is put into any more."""
    return Queue


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The directory of `tiny:digits`, its weights made larger so that its distributions are far from uniform."""
    from safetensors.torch import load_file, save_file

    from rlinf_models.tiny import TinyModel

    directory = tmp_path_factory.mktemp("tiny")
    TinyModel("digits", 0).build(directory)
    weights = load_file(directory / "model.safetensors")
    larger = {name: 2.5 * tensor if tensor.dim() == 2 else tensor for name, tensor in weights.items()}
    save_file(larger, directory / "model.safetensors", metadata={"format": "pt"})
    return directory


@pytest.fixture(scope="session")
def start():
    """`start(Worker, config, rank, world, **arguments)`: a worker as its host makes it, in this process."""

    def make(kind, config, rank=0, world=1, **arguments):
        made = kind.__new__(kind)
        made.role, made.rank, made.world, made.device, made.init_method = "role", rank, world, "cpu", ""
        made.__init__(config, **arguments)
        return made

    return make


@pytest.fixture
def scripted():
    """`scripted(capacity, tick, length)`: an engine that says nothing, in a known time; `tick` is called in each step."""
    return ScriptedEngine


class ScriptedEngine:
    """A response takes as many steps as `length(id)` says, or its request allows tokens. Refuses two threads at once."""

    def __init__(self, capacity=4, tick=lambda: time.sleep(0.001), length=None):
        self.capacity, self.version = capacity, 0
        self._length = length
        self._tick, self._running, self._waiting, self._ended = tick, [], [], []
        self._busy, self._lock = threading.Lock(), threading.Lock()
        self.steps, self.most, self.fails, self.closed = 0, 0, None, False
        self.drivers = set()

    def submit(self, requests):
        assert self._busy.acquire(blocking=False), "two threads at once"
        with self._lock:
            self._waiting += [[one.id, self._length(one.id) if self._length else one.sampling.max_new_tokens, []]
                              for one in requests]
        self._busy.release()

    def collect(self, timeout=None):
        assert self._busy.acquire(blocking=False), "two threads at once"
        try:
            self.drivers.add(threading.current_thread().name)
            deadline = time.monotonic() + timeout
            while True:
                if self.fails is not None:
                    raise self.fails
                with self._lock:
                    self._step()
                    if self._ended or not (self._running or self._waiting):
                        ended, self._ended = self._ended, []
                        return ended
                self._tick()
                if time.monotonic() >= deadline:
                    return []
        finally:
            self._busy.release()

    def abort(self, ids=None):
        with self._lock:
            every = self._running + self._waiting
            self._ended += [_completion(*one[::2], "abort") for one in every if ids is None or one[0] in ids]
            self._running, self._waiting = ([one for one in left if ids is not None and one[0] not in ids]
                                            for left in (self._running, self._waiting))

    def stats(self):
        return {"steps": self.steps, "prefill_tokens": 0}

    def close(self):
        self.closed = True

    def _step(self):
        free = self.capacity - len(self._running)
        self._running, self._waiting = self._running + self._waiting[:free], self._waiting[free:]
        self.most = max(self.most, len(self._running) + len(self._waiting))
        self.steps += 1
        for one in self._running:
            one[2].append(self.version)
        self._ended += [_completion(*one[::2]) for one in self._running if len(one[2]) == one[1]]
        self._running = [one for one in self._running if len(one[2]) < one[1]]


def _completion(name, versions, finish="stop"):
    return Completion(name, np.zeros(len(versions), np.int32), np.zeros(len(versions), np.float32),
                      np.array(versions, np.int32), finish)
