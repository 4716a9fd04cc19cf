"""When responses are done, against a simulation that goes through every decode step."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf_cli.scheduling.generation import estimated_seconds, finish_times
from rlinf_cli.scheduling.problem import Curve, Decoding


def decoding(slots, prefill=0.0, call=0.0, **more):
    return Decoding(Curve((1.0, 2.0, 8.0), (1.0, 1.1, 2.0)), slots, prefill_s=prefill, call_s=call, **more)


def step_by_step(cost, lengths, replicas, dealing, group):
    """Every replica makes one token of all that it has at a time; who is earliest goes next."""
    groups = [list(range(first, min(first + group, len(lengths)))) for first in range(0, len(lengths), group)]
    queues = [[[one] for one in range(first, len(lengths), replicas)] for first in range(replicas)]
    room = 1 if dealing == "round_robin" else group
    sources = queues if dealing == "round_robin" else [groups] * replicas
    active, clock, ends = [{} for _ in range(replicas)], [0.0] * replicas, np.zeros(len(lengths))

    def take(replica):
        if sources[replica] and (not active[replica] or len(active[replica]) + room <= cost.slots):
            begun = sources[replica].pop(0)
            active[replica].update((one, lengths[one]) for one in begun)
            clock[replica] += cost.prefill_s * len(begun)
            return True
        return False

    while sum(take(replica) for replica in range(replicas)):
        pass
    while any(active):
        replica = min((one for one in range(replicas) if active[one]), key=lambda one: (next_end(cost, active, clock, one), one))
        steps = min(active[replica].values())
        clock[replica] = next_end(cost, active, clock, replica)
        for one in list(active[replica]):
            active[replica][one] -= steps
            if not active[replica][one]:
                del active[replica][one]
                ends[one] = clock[replica]
        while take(replica):
            pass
    return ends + cost.call_s


def next_end(cost, active, clock, replica):
    count = min(len(active[replica]), cost.slots)
    return clock[replica] + min(active[replica].values()) * float(cost.step_s.at(count))


cases = st.tuples(st.lists(st.integers(1, 12), min_size=1, max_size=40), st.integers(1, 5), st.integers(1, 9),
                  st.sampled_from(["as_taken", "round_robin"]), st.integers(1, 4), st.sampled_from([0.0, 0.3]))


@given(cases)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_they_are_those_of_a_replica_that_is_followed_step_by_step(case):
    lengths, replicas, slots, dealing, group, prefill = case
    cost = decoding(max(slots, group), prefill, call=0.5)
    found = finish_times(cost, np.array(lengths), replicas, dealing, group)
    np.testing.assert_allclose(found, step_by_step(cost, lengths, replicas, dealing, group))


def test_a_response_that_is_alone_takes_its_steps():
    assert finish_times(decoding(4), np.array([7]), 1).tolist() == [7.0]
    assert finish_times(decoding(4), np.array([7]), 3).tolist() == [7.0]


def test_replicas_that_share_what_they_compute_with_are_slower():
    slow = decoding(4, slowdown=Curve((1.0, 2.0), (1.0, 1.5)))
    assert finish_times(slow, np.array([4, 4]), 2).tolist() == [6.0, 6.0]
    assert finish_times(slow, np.array([4]), 1).tolist() == [4.0]


HEAVY = np.random.default_rng(1).lognormal(5, 0.8, 512).astype(np.int64) + 1


@pytest.mark.parametrize("dealing", ["as_taken", "round_robin"])
@pytest.mark.parametrize("group", [1, 8])
def test_the_estimate_is_near(dealing, group):
    cost = Decoding(Curve((1.0, 2.0), (0.01, 0.0102)), 16)
    counts = np.arange(1, 65)
    true = [finish_times(cost, HEAVY, count, dealing, group).max() for count in counts.tolist()]
    misses = estimated_seconds(cost, HEAVY, counts, dealing, group) / true - 1
    assert np.abs(misses).max() < 0.05
    assert np.abs(misses).mean() < 0.02


def test_the_estimate_is_exact_where_the_ladder_of_counts_has_a_rung():
    cost = Decoding(Curve((1.0, 2.0), (0.01, 0.0102)), 16, prefill_s=0.1, call_s=3.0, slowdown=Curve((1.0, 512.0), (1.0, 2.0)))
    rungs = np.array([1, 2, 8, 32, 64, 128, 256, 512])
    true = [finish_times(cost, HEAVY, count).max() for count in rungs.tolist()]
    assert estimated_seconds(cost, HEAVY, rungs).tolist() == pytest.approx(true)


def test_a_large_batch_is_followed_only_where_all_is_begun_at_once():
    cost = Decoding(Curve((1.0, 2.0), (0.01, 0.0102)), 64)
    many, counts = np.tile(HEAVY, 8), np.array([1, 16, 64, 128])
    true = np.array([finish_times(cost, many, count).max() for count in counts.tolist()])
    misses = np.abs(estimated_seconds(cost, many, counts) / true - 1)
    assert misses[2:] == pytest.approx(0)
    assert misses.max() < 0.1


def test_the_estimate_knows_that_groups_stay_together():
    cost = decoding(64)
    some = estimated_seconds(cost, np.full(64, 5), np.array([4, 5, 8]), group=16)
    assert some[0] == pytest.approx(some[1]) == pytest.approx(some[2])


def test_the_estimate_of_constant_lengths_is_exact():
    cost = decoding(8)
    for replicas in (1, 2, 4):
        true = finish_times(cost, np.full(32, 5), replicas).max()
        assert estimated_seconds(cost, np.full(32, 5), np.array([replicas]))[0] == pytest.approx(true)
