"""Sums over two ranks of one machine, through memory that both have."""

import json
import mmap
import os
import platform
from pathlib import Path

import pytest
import torch

from rlinf_cli.api import Ranks, RunError
from rlinf_torch.accounts import Accounts, Tally
from rlinf_torch.distributed import RankGroup
from rlinf_torch.shared_sum import SharedSum, size

SCRIPT = Path(__file__).with_name("rank_sum.py")


def told(run_two_ranks, tmp_path, job, ranks=(0, 1)):
    run_two_ranks(SCRIPT, job, tmp_path)
    return [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in ranks]


def test_ranks_add_the_same_bits_and_tell_their_numbers(run_two_ranks, tmp_path):
    for one in told(run_two_ranks, tmp_path, "40"):
        assert one["shared"] == (platform.machine() == "x86_64")
        assert one["equal"]
        assert one["rows"] == [[0.0, 2.0**40], [1.0, 2.0**40 + 1]]
        assert one["close"] < 1e-14
        assert one["infinite"] == float("inf")
        assert one["left"] == []


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors sum by gloo")
def test_a_rank_that_dies_ends_the_wait(run_two_ranks, tmp_path):
    (one,) = told(run_two_ranks, tmp_path, "die", ranks=(0,))
    assert one["error"] == "rank 1 of the trainer has died"


def test_a_rank_that_does_not_come_ends_the_wait():
    world = 2
    alone = SharedSum(mmap.mmap(-1, size(world)), 0, [os.getpid()] * world, timeout=0.2)
    with pytest.raises(RunError, match=r"has not come to a sum within 0\.2 s"):
        alone.sum(torch.ones(3))


def test_names_are_agreed_on_whatever_comes():
    """Of one rank: what travels is what comes back."""
    accounts = Accounts(RankGroup(Ranks(0, 1), torch.device("cpu")))
    for own in (Tally(3, 0.5, {"loss": 1.0}, {"n": 2.0}, {"most": 7.0}),
                Tally(1, 0.5, {"loss": float("nan")}, {"n": 1.0}, {"most": -1.0}), Tally(2, 1.0, {"other": 1.0})):
        found = accounts.exchange(own, [torch.zeros(2)])
        assert repr(found) == repr(own)
    assert not accounts.exchange(Tally(), [torch.zeros(2)]).tokens
