"""Slots stay dense, and what belongs to a request moves with it."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from rlinf_cli.api import Request, Sampling
from rlinf_torch.slots import SlotTable, running
from rlinf_torch.stopping import Stopping
from rlinf_torch.store import SlotStore


def request(name, **sampling):
    return running(Request(name, np.array([5, 6], np.int32), Sampling(**{"max_new_tokens": 3, **sampling})),
                   Stopping(Path()))


@pytest.fixture
def store():
    made = SlotStore(2, 3, 4, torch.float32, torch.device("cpu"))
    made.grow(4, 8)
    return made


def test_tables_and_stores_stay_in_step(store):
    """Random comings and goings: each slot's row in the store is always that of its request."""
    chance, table, number = random.Random(0), SlotTable(4), 0
    for _ in range(200):
        while len(table) < 4 and chance.random() < 0.7:
            slot = table.add(request(str(number)), position=number)
            store.data[:, slot] = number
            number += 1
        leaving = [slot for slot in range(len(table)) if chance.random() < 0.4]
        chance.shuffle(leaving)
        sources, targets = table.remove(leaving)
        if sources:
            store.copy(sources, targets, 8)
        for slot, run in enumerate(table.runs):
            assert table.position[slot] == int(run.request.id)
            assert (store.data[:, slot] == int(run.request.id)).all()


def test_as_few_rows_move_as_possible():
    table = SlotTable(6)
    for number in range(6):
        table.add(request(str(number)), 0)
    assert table.remove([5, 4]) == ([], [])
    sources, targets = table.remove([1])
    assert (sources, targets) == ([3], [1])
    assert [run.request.id for run in table.runs] == ["0", "3", "2"]


def test_knobs_follow_the_slots():
    table, cpu = SlotTable(4), torch.device("cpu")
    table.add(request("a", temperature=0.5), 0)
    assert table.knobs(0, cpu).temperature.tolist() == [[0.5]]
    assert table.knobs(0, cpu).top_k is None
    table.add(request("b", temperature=0.0, top_k=3, top_p=0.5), 0)
    greedy = table.knobs(0, cpu)
    assert greedy.temperature.tolist() == [[0.5], [1.0]]
    assert greedy.greedy.tolist() == [False, True]
    assert greedy.top_k is None, "greedy rows are not truncated"
    table.add(request("c", top_k=3, min_p=0.25), 0)
    cut = table.knobs(0, cpu)
    assert cut.top_k.tolist() == [[2**63 - 1], [2**63 - 1], [3]]
    assert cut.min_p.tolist() == [[0.0], [0.0], [0.25]]
    assert table.knobs(2, cpu).greedy is None
    table.remove([2])
    assert table.knobs(0, cpu).top_k is None


def test_a_request_ends_by_stop_token_or_by_length():
    run = request("a", max_new_tokens=3, stop_token_ids=(9,))
    assert [run.take(token, -1.0, 4) for token in (5, 6)] == [False, False]
    assert run.take(9, -2.0, 5)
    done = run.completion()
    assert done.finish == "stop"
    assert done.token_ids.tolist() == [5, 6, 9]
    assert done.versions.tolist() == [4, 4, 5]
    assert (done.token_ids.dtype, done.logprobs.dtype, done.versions.dtype) == (np.int32, np.float32, np.int32)
    other = request("b", max_new_tokens=1)
    assert other.take(5, -1.0, 0)
    assert other.completion().finish == "length"
    assert other.completion(aborted=True).finish == "abort"


def test_a_store_grows_and_keeps_what_it_has(store):
    store.data[:, 1, :, :3] = 7
    assert not store.grow(4, 8)
    assert store.grow(5, 20)
    assert store.data.shape == (2, 5, 3, 20, 4)
    assert (store.data[:, 1, :, :3] == 7).all()
    assert store.data.sum() == 7 * 2 * 3 * 3 * 4
    assert store.grow(2, 30)
    assert (store.slots, store.length) == (5, 30)
