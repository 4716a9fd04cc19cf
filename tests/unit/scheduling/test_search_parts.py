"""Cuts, curves, arrivals, moves of devices: what the search is made of."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rlinf_cli.scheduling.problem import Batch, Curve, Decoding, Law, Problem, Stage
from rlinf_cli.scheduling.search_arrivals import POINTS, arrivals
from rlinf_cli.scheduling.search_costs import Costs, chunk_sizes, falling
from rlinf_cli.scheduling.search_graph import Graph
from rlinf_cli.scheduling.search_refine import neighbours, shape_of
from rlinf_cli.scheduling.search_table import convolved
from rlinf_cli.scheduling.tree import InTurn, Leaf, SideBySide

INF = float("inf")


def stage(name, *after, **other):
    return Stage(name, Batch(((1, Law(0.0, 1.0)),)), after, **other)


def problem(*stages, devices=8, samples=64, **other):
    return Problem(stages, devices, np.full(samples, 10), **other)


def names(graph, group):
    return "".join(stage.name for stage in graph.stages_of(group))


def cuts(graph, group):
    return {(names(graph, cut.first), names(graph, cut.second)) for cut in graph.cuts(group)}


def test_a_chain_is_cut_at_its_edges():
    graph = Graph(problem(stage("a"), stage("b", "a"), stage("c", "b")))
    assert cuts(graph, graph.all) == {("a", "bc"), ("ab", "c")}


def test_of_stages_that_do_not_depend_on_one_another_either_comes_first():
    graph = Graph(problem(stage("a"), stage("b", "a"), stage("c", "a"), stage("d", "b", "c")))
    assert cuts(graph, graph.all) == {("a", "bcd"), ("ab", "cd"), ("ac", "bd"), ("abc", "d")}
    between = next(cut for cut in graph.cuts(graph.all) if names(graph, cut.first) == "a").second
    assert cuts(graph, between) == {("b", "cd"), ("c", "bd"), ("bc", "d")}


def test_a_cut_knows_whether_anything_flows():
    graph = Graph(problem(stage("a"), stage("b")))
    assert [cut.flows for cut in graph.cuts(graph.all)] == [False, False]


def test_a_switch_is_the_largest_from_what_ends_to_what_begins():
    switches = {("a", "c"): 9.0, ("b", "c"): 2.0, ("b", "d"): 3.0, ("d", "a"): 5.0, ("c", "a"): 7.0}
    graph = Graph(problem(stage("a"), stage("b", "a"), stage("c", "b"), stage("d", "b"), switch_s=switches))
    cut = graph.cut(0b0011, 0b1100)
    assert (cut.there, cut.back) == (3.0, 7.0)


def test_nothing_is_switched_where_weights_are_the_same_or_no_device_is_needed():
    pairs = dict.fromkeys(itertools.permutations("abc", 2), 4.0)
    stages = stage("a", weights="w"), stage("b", "a", weights="w"), stage("c", "b", needs_device=False)
    graph = Graph(problem(*stages, switch_s=pairs))
    assert graph.cut(0b001, 0b010).there == 0.0
    assert not graph.cut(0b011, 0b100).shares
    assert graph.cut(0b011, 0b100).there == 0.0


def test_a_transfer_is_that_of_the_slowest_edge_across():
    moved = {("a", "c"): 0.5, ("b", "c"): 0.25, ("a", "b"): 9.0}
    graph = Graph(problem(stage("a"), stage("b", "a"), stage("c", "a", "b"), transfer_s=moved))
    assert graph.cut(0b011, 0b100).transfer == 0.5


@pytest.mark.parametrize(("interleaves", "other", "expected"), [
    (True, {"weights": "w"}, True), (False, {"weights": "w"}, False), (True, {"weights": "v"}, False),
    (True, {"weights": "w", "streams": False}, False), (True, {}, False)])
def test_only_streams_of_the_same_weights_interleave(interleaves, other, expected):
    graph = Graph(problem(stage("a", weights="w"), stage("b", "a", **other), interleaves=interleaves))
    assert graph.interleaves(graph.all) is expected


def test_chunks_are_multiples_of_groups_and_of_what_stages_need_at_once():
    found = chunk_sizes(problem(stage("a", least_chunk=6), stage("b", "a", streams=False, least_chunk=5), samples=64, group=4))
    assert found == (12, 24, 48)


def test_one_sample_has_no_chunks():
    assert Costs(problem(stage("a"), samples=1)).sizes == ()


def test_more_devices_are_never_worse():
    least, places = falling(np.array([INF, 5.0, 7.0, 3.0, INF, 3.0]))
    assert least.tolist() == [INF, 5.0, 5.0, 3.0, 3.0, 3.0]
    assert places.tolist() == [0, 1, 1, 3, 3, 3]


def test_a_stage_uses_no_more_devices_than_serve_it():
    given = problem(stage("a", counts=(2, 5)), devices=8)
    curves = Costs(given).curves(0, 0.0)
    assert curves.whole_used.tolist() == [0, 0, 2, 2, 2, 5, 5, 5, 5]
    assert np.isinf(curves.whole[:2]).all()


def test_what_others_leave_takes_room():
    given = problem(stage("a"), device_memory=10.0)
    assert np.isinf(Costs(given).curves(0, 11.0).whole).all()
    assert np.isfinite(Costs(given).curves(0, 10.0).whole[1:]).all()


def test_convolution_is_the_best_division():
    rng = np.random.default_rng(0)
    first, second = (np.minimum.accumulate(rng.random(12)) for _ in range(2))
    for is_sum, join in ((True, lambda a, b: a + b), (False, max)):
        expected = [min(join(first[mine], second[units - mine]) for mine in range(units + 1)) for units in range(12)]
        assert convolved(first, second, is_sum).tolist() == expected


def decoding(slots):
    return Decoding(Curve((1.0,), (0.01,)), slots)


def test_equal_responses_that_begin_together_come_together():
    given = problem(Stage("a", decoding(64)), samples=64)
    found = arrivals(given, decoding(64), np.array([1, 2, 4]), np.array([8.0, 4.0, 2.0]))
    assert found == pytest.approx(np.broadcast_to([8.0, 4.0, 2.0], (POINTS, 3)))


def test_in_waves_they_come_one_wave_after_the_other():
    given = problem(Stage("a", decoding(16)), samples=64)
    found = arrivals(given, decoding(16), np.array([1]), np.array([4.0]))[:, 0]
    assert found.tolist() == pytest.approx([wave for wave in (1.0, 2.0, 3.0, 4.0) for _ in range(POINTS // 4)])


def test_with_a_long_tail_most_come_early():
    lengths = np.array([10] * 60 + [1000] * 4)
    given = Problem((Stage("a", decoding(64)),), 1, lengths)
    found = arrivals(given, decoding(64), np.array([1]), np.array([10.0]))[:, 0]
    assert found[POINTS // 2] < 0.2
    assert found[-1] == 10.0
    assert (np.diff(found) >= 0).all()


def test_what_follows_ends_when_it_has_caught_up():
    given = problem(Stage("a", decoding(64)), stage("b", "a"), samples=64)
    costs = Costs(given)
    place = costs.sizes.index(1)  # as many chunks as parts
    came = np.arange(1.0, POINTS + 1)[:, None]
    late = [float(costs.late(came, np.array([place]), np.array([[pace]]))[0, 0]) for pace in (0.0, 0.5, 1.0, 2.0)]
    # a chunk a second: faster consumers wait for the last of them, slower ones begin with the first
    assert late == [64.0, 32.5, 1.0, 1.0]


def test_moves_begin_with_none_and_are_all_different():
    moves = [tuple(move) for move in neighbours((5, 7, 9), 2).tolist()]
    assert moves[0] == (0, 0, 0)
    assert len(set(moves)) == len(moves)
    assert {(2, 0, 0), (0, -2, 0), (2, -2, 0), (4, 0, -2), (-2, 4, 0)} <= set(moves)


def test_shapes_are_alike_whatever_their_numbers_nesting_and_neighbours():
    a, b, c = Leaf("a", 1), Leaf("b", 2), Leaf("c", 3)
    assert shape_of(SideBySide(a, SideBySide(b, c))) == shape_of(SideBySide(SideBySide(c, Leaf("a", 7)), b))
    assert shape_of(InTurn(a, InTurn(b, c))) == shape_of(InTurn(InTurn(a, b), c))
    assert len({shape_of(tree) for tree in (InTurn(a, b), InTurn(b, a), InTurn(a, b, per_chunk=True), SideBySide(a, b))}) == 4
