"""Two nodes played on one: each has a directory of its own, and nobody looks into the other's."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest
import torch

from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.errors import ChannelError
from rlinf_cli.flow.node_store import NodeStore


@pytest.fixture
def store(run):
    store = NodeStore(run.address, "elsewhere")
    yield store
    store.stop()


@pytest.fixture
def there(run, store):
    """A client on the other node, which reads from the controller's node."""
    client = run.join("rollout[0]", node="elsewhere")
    client.register_node_store(run.address.node, run.controller.read_segment)
    return client


@pytest.fixture
def here(run, store):
    client = run.join("actor[0]")
    client.register_node_store("elsewhere", store.read_segment)
    return client


def files_there(run) -> list[str]:
    return [name for name in os.listdir(run.address.directory_on("elsewhere")) if name != "lock"]


@pytest.mark.parametrize("item", [np.arange(100_000), torch.ones(100_000), bytes(1_000_000), "small"], ids=str)
def test_both_ways(here, there, item, run, eventually):
    for source, target, name in ((there, here, "to-here"), (here, there, "to-there")):
        Channel(name, source).put([item])
        [[back]] = Channel(name, target).get()
        assert type(back) is type(item)
        assert torch.equal(back, item) if isinstance(item, torch.Tensor) else np.array_equal(back, item)
    eventually(lambda: run.controller.stats()["slots"] == 0)


def test_bytes_lie_where_they_were_put(here, there, run):
    Channel("c", there).put(np.ones(100_000), wait=True)
    assert len(files_there(run)) == 1
    assert run.files() == []


def test_slots_are_used_again(here, there, run, eventually):
    for number in range(10):
        Channel("c", there).put(np.full(100_000, number))
        [array] = Channel("c", here).get()
        assert array[0] == number
        eventually(lambda: run.controller.stats()["slots"] == 0)
    assert len(files_there(run)) == 1


def test_a_node_nobody_can_read_from_is_named(there, run):
    Channel("c", there).put(np.ones(100_000))
    with pytest.raises(ChannelError, match="has no reader for node elsewhere: register_node_store first"):
        Channel("c", run.join("actor[1]")).get()


def test_files_of_a_lost_process_go(here, there, run, eventually):
    Channel("c", there).put_many([np.ones(100_000), np.zeros(3_000_000)], wait=True)
    there.close()
    array, zeros = Channel("c", here).get(2, at_least=2)
    assert (array.sum(), zeros.sum()) == (100_000, 0)
    eventually(lambda: files_there(run) == [])


def test_idle_files_of_a_lost_process_go(here, there, run, eventually):
    Channel("c", there).put(np.ones(100_000), wait=True)
    Channel("c", here).get()
    assert len(files_there(run)) == 1
    there.close()
    eventually(lambda: files_there(run) == [])


def test_reading_what_is_gone(store):
    with pytest.raises(FileNotFoundError):
        store.read_segment("99-1", 0, 10)


def test_stop_leaves_nothing(run):
    store = NodeStore(run.address, "third")
    assert os.path.exists(run.address.directory_on("third"))
    store.stop()
    assert not os.path.exists(run.address.directory_on("third"))


def test_a_node_without_a_store_sends_inline(run):
    client = run.join("rollout[0]", node="bare")
    with pytest.warns(RuntimeWarning, match="travel through the controller"):
        Channel("c", client).put(np.ones(100_000))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Channel("c", client).put(np.ones(100_000))
    assert [array.sum() for array in Channel("c", run.join("actor[0]")).get(2, at_least=2)] == [100_000] * 2


def test_the_node_is_found_out(run):
    assert run.join("here").node == run.address.node
    assert run.join("there", node="elsewhere").node == "elsewhere"


def test_claiming_the_controllers_node_without_its_socket_is_told(run, monkeypatch):
    import dataclasses

    run.address = dataclasses.replace(run.address, unix_path="/nowhere/socket")
    with pytest.raises(ChannelError, match="no controller answers at /nowhere/socket on node"):
        run.join("x", node=run.address.node)
    assert run.join("y").node != run.address.node
