"""Laws from measured points: exact where they are exact, sensible where they are noisy or few."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlinf_cli.scheduling.fit import (
    Node,
    batch_law,
    decoding,
    memory_law,
    nonnegative,
    problem_of,
    rising,
    weighted_median,
)
from rlinf_cli.scheduling.problem import Curve
from rlinf_cli.scheduling.profile import BatchPoint, DecodePoint, MemoryPoint, Profile, RoleProfile

NODES = [Node("rollout"), Node("reward", ("rollout",), needs_device=False, most_ranks=1),
         Node("actor", ("reward",), streams=False, trains=True)]


def seconds(samples, tokens, chunks, chunk_s=0.0, sample_s=0.0, token_s=0.0, step_s=0.0):
    return step_s + chunks * chunk_s + samples * sample_s + tokens * token_s


def points(ranks, noise=None, **law):
    """Calls that vary in all that a law goes with."""
    given = [(8, 800, 1), (8, 2400, 1), (16, 1600, 4), (32, 3200, 1), (32, 9600, 8), (64, 6400, 2), (64, 3200, 16)]
    factors = np.ones(len(given)) if noise is None else noise.lognormal(0, 0.02, len(given))
    return [BatchPoint(ranks, *one, seconds(*one, **law) * factor) for one, factor in zip(given, factors.tolist(), strict=True)]


def profile(**changes):
    actor = RoleProfile("actor", tuple(points(1, token_s=1e-3, step_s=0.5)), onload_s=0.3, offload_s=0.2,
                        memory=(MemoryPoint(1, 12e9, 1e9), MemoryPoint(2, 8e9, 2e9)))
    rollout = RoleProfile("rollout", decoding=tuple(DecodePoint(1, k, 0.01 + 0.001 * k) for k in (1, 4, 16)), slots=16,
                          prefill_s=0.02,
                          onload_s=0.1, offload_s=0.05)
    reward = RoleProfile("reward", tuple(points(1, sample_s=1e-4)), needs_device=False)
    fields = {"workflow": "reasoning", "roles": {"rollout": rollout, "reward": reward, "actor": actor},
              "lengths": (10, 20, 30, 400), "group": 2,
                  "transfers": {("rollout", "reward"): 1e-4,
                                ("reward", "actor"): 2e-4}, "sync_s": 0.07, "step_s": 0.01, "hardware": "2 cpu",
                  "device_memory": 24e9}
    return Profile(**(fields | changes))


def problem(one=None, **changes):
    return problem_of(one or profile(), NODES, **({"devices": 4, "samples": 8, "group": 2} | changes))


# ---- laws ----


@pytest.mark.parametrize("law", [
    {"token_s": 1e-3}, {"sample_s": 0.02}, {"chunk_s": 0.1}, {"step_s": 0.4},
    {"token_s": 1e-3, "chunk_s": 0.1}, {"token_s": 1e-3, "sample_s": 0.02, "chunk_s": 0.1, "step_s": 0.4},
])
def test_exact_points_give_the_law_back(law):
    fit = batch_law(RoleProfile("actor", tuple(points(1, **law))))
    ((ranks, found),) = fit.cost.laws
    assert ranks == 1
    assert fit.miss < 1e-9
    assert fit.cost.step_s == pytest.approx(law.get("step_s", 0), abs=1e-9)
    assert [found.chunk_s, found.sample_s, found.token_s] == pytest.approx(
        [law.get("chunk_s", 0), law.get("sample_s", 0), law.get("token_s", 0)], abs=1e-9)


def test_each_number_of_ranks_has_its_law_and_calls_cost_the_same():
    both = [*points(1, token_s=1e-3, step_s=0.4), *points(4, token_s=2e-3, chunk_s=0.1, step_s=0.4)]
    cost = batch_law(RoleProfile("actor", tuple(both), devices_per_rank=2)).cost
    (one, first), (four, second) = cost.laws
    assert (one, four, cost.devices_per_rank) == (1, 4, 2)
    assert cost.step_s == pytest.approx(0.4)
    assert [first.token_s, second.token_s] == pytest.approx([1e-3, 2e-3])
    assert [first.chunk_s, second.chunk_s] == pytest.approx([0, 0.1], abs=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_noise_leaves_coefficients_positive_and_predictions_near(seed):
    law = {"token_s": 1e-3, "chunk_s": 0.05, "step_s": 0.3}
    fit = batch_law(RoleProfile("actor", tuple(points(1, np.random.default_rng(seed), **law))))
    (_, found), = fit.cost.laws
    assert min(found.chunk_s, found.sample_s, found.token_s, fit.cost.step_s) >= 0
    assert fit.miss < 0.05
    predicted = seconds(128, 20000, 4, found.chunk_s, found.sample_s, found.token_s, fit.cost.step_s)
    assert predicted == pytest.approx(seconds(128, 20000, 4, **law), rel=0.15)


def test_one_slow_repeat_of_a_call_does_not_count():
    steady = points(1, token_s=1e-3)
    repeats = [*steady, *steady, BatchPoint(1, 8, 800, 1, 60.0)]
    (_, law), = batch_law(RoleProfile("actor", tuple(repeats))).cost.laws
    assert law.token_s == pytest.approx(1e-3)


@pytest.mark.parametrize(("trains", "step", "chunk"), [(True, 0.5, 0), (False, 0, 0.5)])
def test_what_points_do_not_tell_apart_goes_with_what_is_likelier(trains, step, chunk):
    alike = tuple(BatchPoint(1, size, 100 * size, 1, 0.5 + size * 0.1) for size in (4, 8, 16))
    fit = batch_law(RoleProfile("x", alike), trains)
    (_, law), = fit.cost.laws
    assert (fit.cost.step_s, law.chunk_s) == (pytest.approx(step), pytest.approx(chunk))
    assert (law.token_s, law.sample_s) == (pytest.approx(1e-3), 0.0)


def test_a_single_point_is_a_rate():
    fit = batch_law(RoleProfile("reference", (BatchPoint(2, 8, 400, 1, 2.0),)))
    (ranks, law), = fit.cost.laws
    assert (ranks, law.token_s, law.chunk_s, fit.cost.step_s) == (2, pytest.approx(0.005), 0.0, 0.0)


def test_without_tokens_time_goes_with_samples():
    environment = tuple(BatchPoint(1, size, 0, 1, 0.1 * size) for size in (2, 4, 8))
    (_, law), = batch_law(RoleProfile("environment", environment)).cost.laws
    assert (law.sample_s, law.token_s, law.chunk_s) == (pytest.approx(0.1), 0.0, 0.0)


def test_a_cost_that_a_few_points_of_one_number_of_ranks_do_not_show_is_common_to_all():
    few = [*points(1, token_s=1e-3, chunk_s=0.1), BatchPoint(2, 8, 800, 2, seconds(8, 800, 2, token_s=1e-3, chunk_s=0.1))]
    (_, first), (_, second) = batch_law(RoleProfile("reference", tuple(few))).cost.laws
    assert first.chunk_s == second.chunk_s == pytest.approx(0.1)
    assert second.token_s == pytest.approx(1e-3)


def test_what_was_not_measured_costs_nothing():
    cost = batch_law(RoleProfile("reward")).cost
    assert [count for count, _ in cost.laws] == [1]
    assert cost.step_s == 0.0


@pytest.mark.parametrize("seed", range(30))
def test_nonnegative_least_squares_is_optimal(seed):
    """At the optimum no coordinate can be changed for the better: gradients are 0 where x > 0 and not negative where x = 0."""
    random = np.random.default_rng(seed)
    matrix, target = random.normal(size=(12, 5)), random.normal(size=12)
    x = nonnegative(matrix, target)
    gradient = matrix.T @ (matrix @ x - target)
    assert (x >= 0).all()
    assert np.abs(gradient[x > 0]).max(initial=0) < 1e-8
    assert (gradient[x == 0] > -1e-8).all()


# ---- generation ----


def test_the_curve_goes_through_the_points():
    cost = decoding(profile().roles["rollout"])
    assert cost.step_s == Curve((1.0, 4.0, 16.0), (0.011, pytest.approx(0.014), pytest.approx(0.026)))
    assert (cost.slots, cost.prefill_s, cost.devices_per_replica) == (16, 0.02, 1)
    assert cost.slowdown == Curve((1.0,), (1.0,))


def test_noisy_steps_are_a_curve_that_never_falls():
    random = np.random.default_rng(0)
    noisy = tuple(DecodePoint(1, k, (0.01 + 1e-4 * k) * random.lognormal(0, 0.1)) for k in range(1, 129))
    curve = decoding(RoleProfile("rollout", decoding=noisy)).step_s
    assert list(curve.ys) == sorted(curve.ys)
    assert len(curve.xs) < 30
    assert float(curve.at(100.0)) == pytest.approx(0.02, rel=0.1)


def test_replicas_that_share_a_machine_slow_each_other_down():
    role = RoleProfile("rollout", decoding=tuple(DecodePoint(replicas, k, (0.01 + 0.001 * k) * factor) for replicas, factor in
                                                 ((1, 1.0), (2, 1.3), (4, 2.0)) for k in (1, 8, 32)))
    slowdown = decoding(role).slowdown
    assert slowdown.xs == (1.0, 2.0, 4.0)
    assert slowdown.ys == pytest.approx((1.0, 1.3, 2.0))


def test_replicas_within_noise_do_not():
    role = RoleProfile("rollout", decoding=tuple(DecodePoint(replicas, k, 0.01 * k * factor) for replicas, factor in
                                                 ((1, 1.0), (2, 1.02), (4, 0.97)) for k in (1, 8)))
    assert decoding(role).slowdown == Curve((1.0,), (1.0,))


def test_steps_with_nothing_active_are_left_out():
    curve = decoding(RoleProfile("rollout", decoding=(DecodePoint(1, 0, 9.0), DecodePoint(1, 2, 0.5)))).step_s
    assert curve == Curve((2.0,), (0.5,))


@pytest.mark.parametrize(("values", "weights", "expected"), [
    ([1, 2, 3], [1, 1, 1], (1, 2, 3)), ([3, 1], [1, 1], (2, 2)), ([3, 1], [3, 1], (2.5, 2.5)), ([1, 5, 3, 4], [1] * 4,
                                                                                                (1, 4, 4, 4)),
])
def test_rising(values, weights, expected):
    assert rising(values, weights) == pytest.approx(expected)


# ---- memory ----


def test_memory_has_a_part_that_devices_share():
    law = memory_law(profile().roles["actor"])
    assert (law.fixed, law.shared, law.left) == (pytest.approx(4e9), pytest.approx(8e9), 2e9)


@pytest.mark.parametrize(("measured", "fixed", "shared"), [
    ((), 0, 0), ((MemoryPoint(2, 5e9, 0),), 5e9, 0), ((MemoryPoint(1, 4e9, 0), MemoryPoint(2, 4.4e9, 0)), 4.2e9, 0),
])
def test_memory_of_few_points(measured, fixed, shared):
    law = memory_law(RoleProfile("actor", memory=measured))
    assert (law.fixed, law.shared) == (pytest.approx(fixed, rel=0.01), pytest.approx(shared))


# ---- the whole problem ----


def test_a_problem_has_what_was_measured():
    found = problem(staleness=2)
    assert [stage.name for stage in found.stages] == ["rollout", "reward", "actor"]
    _rollout, reward, actor = found.stages
    assert (reward.needs_device, reward.cost.most_ranks, actor.streams, actor.trains) == (False, 1, False, True)
    assert [stage.least_chunk for stage in found.stages] == [2, 2, 2]
    assert (found.sync_s, found.step_s, found.devices, found.staleness, found.hardware) == (0.07, 0.01, 4, 2, "2 cpu")
    assert found.switch_s == {("rollout", "actor"): pytest.approx(0.35), ("actor", "rollout"): pytest.approx(0.3)}
    assert found.transfer_s == {("rollout", "reward"): 1e-4, ("reward", "actor"): 2e-4}
    assert not found.interleaves
    assert found.source == "measured"


def test_the_batch_has_the_lengths_that_were_measured_and_the_pool_all_of_them():
    found = problem()
    assert found.samples == 8
    assert sorted(found.lengths.tolist()) == [10, 10, 20, 20, 30, 30, 400, 400]
    assert found.pool.tolist() == [10, 20, 30, 400]
    assert problem(max_new_tokens=100).lengths.max() == 100


def test_the_order_of_lengths_comes_from_the_seed():
    lengths = profile(lengths=tuple(range(1, 101)))
    first, again, other = (problem(lengths, seed=seed).lengths.tolist() for seed in (1, 1, 2))
    assert first == again != other
    assert sorted(first) == sorted(other)


def test_roles_with_the_same_weights_change_places_for_free():
    nodes = [Node("rollout", weights="policy"), Node("actor", ("rollout",), weights="policy", trains=True)]
    found = problem_of(profile(), nodes, devices=2, samples=8, group=2)
    assert found.switch_s == {}
    assert found.stage("actor").weights == "policy"


def test_roles_of_one_stage_pass_nothing_on_between_stages():
    loop = Node("environment+rollout", roles=("environment", "rollout"))
    roles = {"environment+rollout": RoleProfile("environment+rollout", tuple(points(1, sample_s=0.1))),
             "actor": profile().roles["actor"]}
    cyclic = profile(roles=roles, transfers={("environment", "rollout"): 1.0, ("rollout", "environment"): 1.0,
                                             ("rollout", "actor"): 0.5})
    found = problem_of(cyclic, [loop, Node("actor", ("environment+rollout",))], devices=2, samples=8)
    assert found.transfer_s == {("environment+rollout", "actor"): 0.5}
    assert found.stage("environment+rollout").members == ("environment", "rollout")


def test_stages_are_sorted_from_producers_to_consumers():
    assert [stage.name for stage in problem_of(profile(), NODES[::-1], devices=2, samples=8).stages] == ["rollout",
                                                                                                         "reward", "actor"]


def test_a_role_that_was_not_profiled_is_named():
    with pytest.raises(ValueError, match=r"no role 'critic' \(it has rollout, reward, actor\)"):
        problem_of(profile(), [Node("critic")], devices=2, samples=8)


@pytest.mark.parametrize(("changes", "asked", "note"), [
    ({"source": "analytic"}, {}, "nothing of it was measured on your machine"),
    ({"lengths": ()}, {}, "every response is taken to have one token"),
    ({}, {"max_new_tokens": 100}, "cut at rollout.max_new_tokens=100; those of the profile had up to 400 tokens"),
    ({"lengths": (5, 64, 64, 64)}, {"max_new_tokens": 128}, "75 % of the measured responses ended at 64"),
    ({"roles": profile().roles | {"actor": RoleProfile("actor")}}, {}, "actor was not measured: it is taken to need no time"),
    ({"roles": profile().roles | {"actor": RoleProfile("actor", tuple(points(1, token_s=1.0)), devices_per_rank=4)}}, {},
     "actor: 4 devices a rank"),
])
def test_what_the_reader_must_know(changes, asked, note):
    assert any(note in one for one in problem(profile(**changes), **asked).notes)


def test_a_law_that_misses_its_points_is_noted():
    bent = tuple(BatchPoint(1, size, 100 * size, 1, 0.001 * size**2) for size in (2, 8, 32, 128))
    (note,) = problem(profile(roles=profile().roles | {"actor": RoleProfile("actor", bent)})).notes
    assert note.startswith("actor: the law of its time misses what was measured by ")


def test_a_clean_profile_has_no_notes():
    assert problem(max_new_tokens=400).notes == ()


def test_a_role_that_was_measured_with_several_numbers_of_devices_has_a_choice():
    alone = RoleProfile("actor", (BatchPoint(1, 8, 800, 1, 8.0), BatchPoint(1, 8, 1600, 1, 16.0)),
                        memory=(MemoryPoint(1, 9.0, 1.0),))
    spread = replace(alone, batches=(BatchPoint(1, 8, 800, 1, 2.4),), devices_per_rank=4, memory=(MemoryPoint(1, 3.0, 1.0),))
    profile = Profile("", {"actor": replace(alone, spreads=(spread,))}, (100,) * 8)
    stage = problem_of(profile, [Node("actor")], devices=8, samples=8).stages[0]
    assert [one.unit for one in stage.choices] == [1, 4]
    assert [one.memory.fixed for one in stage.choices] == [9.0, 3.0]
    assert stage.choices[1].cost.laws[0][1].token_s == pytest.approx(0.003)
    assert problem_of(profile, [Node("actor", weights="policy")], devices=8, samples=8).stages[0].choices == (
        replace(stage, weights="policy", spreads=()),)


def test_decode_steps_weigh_as_many_as_there_were():
    """A number of responses that was seen in passing does not bend the curve."""
    passing = [DecodePoint(1, 5, 0.01, 8.0), DecodePoint(1, 8, 0.5, 2.0)]
    measured = [DecodePoint(1, k, 0.02, 500.0) for k in (1, 2, 4, 8)] + passing
    curve = decoding(RoleProfile("rollout", decoding=tuple(measured))).step_s
    assert curve.ys == pytest.approx([0.02] * len(curve.ys), rel=0.01)


@pytest.mark.parametrize(("values", "weights", "found"), [
    ([3.0, 1.0, 2.0], [1, 1, 1], 2.0), ([1.0, 4.0, 2.0, 3.0], [1, 1, 1, 1], 2.5), ([9.0, 1.0], [3, 1], 9.0), ([5.0], [0.5], 5.0)])
def test_weighted_median(values, weights, found):
    assert weighted_median(values, weights) == found
