"""Samples, configurations and channels for workers that run in this process, without Ray."""

import numpy as np
import pytest
import torch

from rlinf_cli.config.load import resolve
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
    """What a channel is to a worker: closed when it is empty."""

    def __init__(self, *items):
        self.items = list(items)

    def get(self, n, at_least=1):
        if not self.items:
            raise ChannelClosedError("empty")
        taken, self.items = self.items[:n], self.items[n:]
        return taken

    def chunks(self, size, at_least=None):
        while self.items:
            yield self.get(size)

    def put(self, item, weight):
        assert weight == sum(len(one) for one in item)
        self.items.append(item)

    def put_many(self, items, weights):
        for item, weight in zip(items, weights, strict=True):
            self.put(item, weight)


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
    """`start(Worker, config, rank, world)`: a worker as its host makes it, in this process."""

    def make(kind, config, rank=0, world=1):
        made = kind.__new__(kind)
        made.role, made.rank, made.world, made.device, made.init_method = "role", rank, world, "cpu", ""
        made.__init__(config)
        return made

    return make
