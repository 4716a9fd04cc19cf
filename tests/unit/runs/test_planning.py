"""From a configuration and a profile to a placement, and back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.errors import CapacityError, UsageError
from rlinf_cli.flow.placement import Placement, describe
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.runs.planning import choose, file_of, nodes_of, placement_from, placement_of, plan_of, problem_for
from rlinf_cli.runs.preflight import prepare
from rlinf_cli.scheduling import plan_file
from rlinf_cli.scheduling.plan import Plan
from rlinf_cli.scheduling.problem import Spread
from rlinf_cli.scheduling.profile import BatchPoint, DecodePoint, MemoryPoint, Profile, RoleProfile
from rlinf_cli.scheduling.tree import parse, text
from rlinf_cli.workflows.base import Role
from rlinf_cli.workflows.reasoning import Reasoning

PLUGINS = load_plugins(None)


def config_of(*arguments):
    return resolve([], ["rollout.prompts=8", "rollout.group_size=4", *arguments], {}, PLUGINS)


def roles_of(config):
    return Reasoning().roles(config)


def batches(token_s, step_s=0.0, ranks=(1, 2, 4)):
    return tuple(BatchPoint(count, samples, tokens, chunks, step_s + tokens * token_s + 0.001 * chunks) for count in ranks
                 for samples, tokens, chunks in ((8, 400, 1), (16, 1600, 1), (16, 800, 4), (32, 1600, 8)))


def profile(actor_token_s=1e-4, unit=1, memory=(), lengths=(20,) * 30 + (256,) * 2, transfers=None, switch_s=0.0):
    roles = {
        "rollout": RoleProfile("rollout", decoding=tuple(DecodePoint(1, k, 0.01 + 1e-4 * k) for k in (1, 8, 32)), slots=32,
                               devices_per_rank=unit, onload_s=switch_s, offload_s=switch_s),
        "reward": RoleProfile("reward", batches(1e-7, ranks=(1,)), needs_device=False),
        "reference": RoleProfile("reference", batches(actor_token_s / 3)),
        "actor": RoleProfile("actor", batches(actor_token_s), memory=memory, onload_s=switch_s, offload_s=switch_s),
    }
    return Profile("reasoning", roles, lengths, 4, transfers or {}, 0.01, device_memory=80e9)


def problem(*arguments, devices=4, **measured):
    config = config_of(*arguments)
    return problem_for(config, roles_of(config), devices, profile(**measured))


# ---- what is searched for ----


def test_roles_become_stages():
    found = problem("algorithm.kl_coef=0.1", "rollout.staleness=2")
    assert [(stage.name, stage.after) for stage in found.stages] == [
        ("rollout", ()), ("reward", ("rollout",)), ("reference", ("reward",)), ("actor", ("reference",))]
    assert (found.samples, found.group, found.staleness, found.devices) == (32, 4, 2, 4)
    assert [stage.needs_device for stage in found.stages] == [True, False, True, True]
    assert found.stage("reward").cost.most_ranks == 1
    assert found.stage("actor").trains


def test_a_critic_is_a_stage_that_passes_on_what_it_has_valued():
    """It trains as well, but generation waits for the actor only."""
    config, measured = config_of("algorithm.name=ppo", "algorithm.kl_coef=0.1"), profile()
    critic = RoleProfile("critic", batches(2e-4))
    found = problem_for(config, roles_of(config), 4, replace(measured, roles={**measured.roles, "critic": critic}))
    assert [(stage.name, stage.after) for stage in found.stages[2:]] == [
        ("reference", ("reward",)), ("critic", ("reference",)), ("actor", ("critic",))]
    assert [(stage.name, stage.trains, stage.streams) for stage in found.stages[3:]] == [
        ("critic", False, True), ("actor", True, False)]
    assert found.stage("critic").needs_device


def test_what_flowed_decides_who_takes_from_whom():
    flowed = {("rollout", "reward"): 1e-4, ("rollout", "reference"): 1e-4, ("reward", "actor"): 1e-4,
              ("reference", "actor"): 1e-4}
    found = problem("algorithm.kl_coef=0.1", transfers=flowed)
    assert [stage.after for stage in found.stages] == [(), ("rollout",), ("rollout",), ("reward", "reference")]
    assert found.transfer_s[("reward", "actor")] == 1e-4


def test_roles_that_were_measured_as_one_are_one_stage():
    joined = profile(transfers={("rollout", "reward"): 1e-4, ("reward", "rollout"): 1e-4, ("reward", "actor"): 2e-4})
    roles = {"rollout+reward": joined.roles["rollout"], "actor": joined.roles["actor"]}
    found = problem_for(config_of(), roles_of(config_of()), 4, replace(joined, roles=roles))
    first, second = found.stages
    assert (first.name, first.members, first.after) == ("rollout+reward", ("rollout", "reward"), ())
    assert (second.after, found.transfer_s) == (("rollout+reward",), {("rollout+reward", "actor"): 2e-4})
    placement = placement_of(Plan(parse("rollout+reward 2 | actor 2")), found, roles_of(config_of()))
    assert dict(placement) == {"rollout": ((0,), (1,)), "reward": ((0,),), "actor": ((2,), (3,))}


@pytest.mark.parametrize(("arguments", "streams"), [
    ((), True), (("deterministic=true",), False), (("algorithm.epochs=2",), False), (("algorithm.minibatches=2",), False),
    (("algorithm.rounds=3",), False), (("algorithm.normalize=batch",), False), (("algorithm.normalize=none",), True),
])
def test_a_trainer_streams_where_the_worker_does(arguments, streams):
    from rlinf_cli.workers.algorithm import build_algorithm
    from rlinf_cli.workers.streaming import can_stream

    config = config_of("algorithm.minibatches=1", *arguments)
    (actor,) = [node for node in nodes_of(config, roles_of(config), profile()) if node.name == "actor"]
    assert actor.streams is streams
    assert can_stream(build_algorithm(config), config) is streams


def test_roles_in_one_process_have_one_copy_of_the_weights():
    weights = {stage.name: stage.weights for stage in problem("cluster.fused=true", "algorithm.kl_coef=0.1").stages}
    assert weights == {"rollout": "policy", "reward": "", "reference": "", "actor": "policy"}
    assert {stage.weights for stage in problem().stages} == {""}


def test_a_profile_of_other_roles_is_refused():
    config = config_of("algorithm.kl_coef=0.1")
    measured = profile()
    without = Profile("reasoning", {name: role for name, role in measured.roles.items() if name != "reference"})
    with pytest.raises(UsageError, match=r"has no role 'reference' \(it has rollout, reward, actor\).*rlinf profile"):
        problem_for(config, roles_of(config), 2, without)


# ---- choosing ----


def chosen(*arguments, devices=4, kind="cpu", **measured):
    config = config_of(*arguments)
    placement, found = choose(problem_for(config, roles_of(config), devices, profile(**measured)), roles_of(config), kind)
    return placement, found.best, found


def test_equal_lengths_and_free_switches_are_temporal():
    placement, plan, found = chosen(lengths=(60,) * 32)
    assert placement.mode == plan.mode == "temporal"
    assert describe(placement) == "temporal: rollout, reward, actor share cpu:0-3"
    assert found.best is plan
    assert plan.prediction.step_s > 0


def test_a_run_finds_its_own_chunks_where_their_cost_was_not_measured():
    config, known = config_of(), profile(switch_s=30.0)
    one = tuple(BatchPoint(1, samples, 20 * samples, 1, 0.002 * samples) for samples in (8, 16, 32))
    unknown = replace(known, roles={**known.roles, "actor": replace(known.roles["actor"], batches=one)})
    placement, found = choose(problem_for(config, roles_of(config), 2, unknown), roles_of(config))
    assert (placement.mode, placement.granularity) == ("spatial", {})
    assert "actor" not in found.best.chunk
    placement, found = choose(problem_for(config, roles_of(config), 2, known), roles_of(config))
    assert placement.granularity.keys() == {"actor"}


def test_dear_switches_are_avoided():
    placement, _plan, _ = chosen(lengths=(60,) * 32, switch_s=30.0)
    assert placement.mode == "spatial"
    assert not set(placement.devices("rollout")) & set(placement.devices("actor"))


def test_the_reward_sits_beside_the_rollout():
    placement, _, _ = chosen(switch_s=30.0)
    assert placement["reward"] == (placement["rollout"][0],)
    assert placement.fixed == {"reward"}


def test_replicas_have_as_many_devices_as_were_measured():
    placement, _, _ = chosen(unit=2, switch_s=30.0)
    assert all(len(rank) == 2 for rank in placement["rollout"])
    assert all(len(rank) == 1 for rank in placement["actor"])


def test_a_choice_of_devices_a_rank_is_in_the_placement_and_comes_back_from_it():
    found = problem(devices=4)
    large = Spread(replace(found.stage("rollout").cost, devices_per_replica=2), found.stage("rollout").memory)
    found = replace(found, stages=(replace(found.stages[0], spreads=(large,)), *found.stages[1:]))
    for units, ranks in (({}, ((0,), (1,))), ({"rollout": 2}, ((0, 1),))):
        placement = placement_of(Plan(parse("rollout 2 | reward | actor 2"), units=units), found, roles_of(config_of()))
        assert placement["rollout"] == ranks
        assert dict(plan_of(placement, found).units) == {"rollout": len(ranks[0])}


def test_without_enough_memory_nothing_is_chosen():
    with pytest.raises(CapacityError, match="actor needs"):
        chosen(memory=(MemoryPoint(1, 500e9, 0), MemoryPoint(2, 400e9, 0)))


# ---- plans and placements ----


def placed(tree, chunk=None, **measured):
    found = problem("algorithm.kl_coef=0.1", devices=8, **measured)
    return placement_of(Plan(parse(tree), chunk or {}), found, roles_of(config_of("algorithm.kl_coef=0.1")), "cpu")


@pytest.mark.parametrize(("tree", "line"), [
    ("rollout 8, reward, reference 8, actor 8", "temporal: rollout, reward, reference, actor share cpu:0-7"),
    ("rollout 5 | reward | (reference 3, actor 3)", "hybrid: rollout | reward | reference, actor on cpu:0-4 | cpu:0 | cpu:5-7"),
    ("(rollout 4 | reward | reference 4), actor 8",
     "hybrid: rollout | reward | reference | actor on cpu:0-3 | cpu:0 | cpu:4-7 | cpu:0-7"),
])
def test_a_plan_is_placed(tree, line):
    words = describe(placed(tree))
    assert words.partition(": ")[2] == line.partition(": ")[2]


def test_ranks_of_several_devices_are_neighbours():
    assert placed("rollout 4 | reward | (reference 4, actor 4)", unit=2)["rollout"] == ((0, 1), (2, 3))


def test_chunks_bound_who_works_beside_what_it_takes():
    bounds = placed("rollout 4 | reward | (reference 4, actor 4)",
                    {"rollout": 4, "reward": 4, "reference": 16, "actor": 16}).granularity
    assert bounds == {"reference": (2, 8), "actor": (2, 8)} or bounds == {"reference": (2, 8)}
    assert placed("rollout 4, reward, reference 4, actor 4", {"reference": 16, "actor": 16}).granularity == {}
    assert placed("rollout 4 | reward | reference 2 | actor 2", {"reference": 4, "actor": 32}).granularity == {
        "reference": (1, 2), "actor": (4, 8)}


@pytest.mark.parametrize(("ranks", "tree"), [
    ({"rollout": (0, 1, 2, 3), "reward": (0,), "reference": (0, 1, 2, 3), "actor": (0, 1, 2, 3)},
     "(rollout 4 | reward), reference 4, actor 4"),
    ({"rollout": (0, 1), "reward": (0,), "reference": (2,), "actor": (3,)}, "rollout 2 | reward | reference 1 | actor 1"),
    ({"rollout": (0, 1), "reward": (0,), "reference": (2, 3), "actor": (2, 3)}, "rollout 2 | reward | (reference 2, actor 2)"),
    ({"rollout": (0, 1), "reward": (0,), "reference": (2, 3), "actor": (0, 1, 2, 3)},
     "(rollout 2 | reward | reference 2), actor 4"),
    ({"rollout": (2, 3), "reward": (0,), "reference": (0,), "actor": (0, 1)}, "rollout 2 | reward | (reference 1, actor 2)"),
])
def test_a_placement_amounts_to_a_plan(ranks, tree):
    placement = Placement({role: tuple((device,) for device in devices) for role, devices in ranks.items()})
    assert text(plan_of(placement, problem("algorithm.kl_coef=0.1")).tree) == tree


def test_ranks_that_would_never_get_a_group_are_left_out():
    placement = Placement({"rollout": tuple((device,) for device in range(16)), "reward": ((0,),),
                           "actor": tuple((d,) for d in range(4))})
    assert text(plan_of(placement, problem(devices=16)).tree) == "(rollout 8 | reward), actor 4"


@pytest.mark.parametrize("tree", ["rollout 3 | reward | (reference 1, actor 1)", "rollout 2 | reward | reference 1 | actor 1",
                                  "(rollout 2 | reward | reference 2), actor 4"])
def test_a_plan_comes_back_from_its_placement(tree):
    found = problem("algorithm.kl_coef=0.1")
    placement = placement_of(Plan(parse(tree)), found, roles_of(config_of("algorithm.kl_coef=0.1")))
    assert text(plan_of(placement, found).tree) == tree


def test_granularity_becomes_chunks():
    placement = Placement({"rollout": ((0,),), "reward": ((0,),), "actor": ((1,),)}, granularity={"actor": (1, 2)})
    assert plan_of(placement, problem()).chunk == {"actor": 8}


def test_a_role_without_devices_and_producers_sits_where_its_consumer_does():
    found = problem_for(config_of(), [Role("reward", "x:Y", "one"), Role("actor", "x:Y", stateful=True)], 2, profile())
    assert placement_of(Plan(parse("reward | actor 2")), found,
                        [Role("reward", "x:Y", "one"), Role("actor", "x:Y")])["reward"] == ((0,),)


# ---- plan files ----


def test_a_plan_file_is_a_placement(tmp_path):
    config = config_of()
    roles, path = roles_of(config), tmp_path / "plan.yaml"
    problem = problem_for(config, roles, 4, profile(unit=2, switch_s=30.0))
    placement, found = choose(problem, roles, "cpu")
    plan_file.save(file_of(found.best, placement, "mine.json", problem), path)
    assert placement_from(path, config, roles, 4, "cpu", profile(unit=2)) == placement
    without_profile = placement_from(path, config, roles, 4, "cpu")
    assert without_profile.ranks == placement.ranks


@pytest.fixture
def checked(tmp_path, monkeypatch):
    """Prepare a run on two CPU slots with `placement=` a plan file of this text."""
    monkeypatch.chdir(tmp_path)

    def check(words, *arguments):
        (tmp_path / "plan.yaml").write_text(words)
        return prepare(resolve([], ["placement=plan.yaml", "cluster.devices=cpu:2", *arguments], {}, PLUGINS), PLUGINS)

    return check


def test_training_takes_a_plan_file(checked):
    assert dict(checked("tree: rollout 1 | actor 1\n").placement) == {"rollout": ((0,),), "reward": ((0,),), "actor": ((1,),)}


def test_training_takes_the_devices_that_were_edited(checked):
    words = "tree: rollout 1 | reward | actor 1\nroles:\n  rollout: 1\n  reward: 0\n  actor: 0\nchunk: {actor: 16}\n"
    placement = checked(words, "rollout.group_size=8").placement
    assert dict(placement) == {"rollout": ((1,),), "reward": ((0,),), "actor": ((0,),)}
    assert placement.granularity == {"actor": (1, 4)}


@pytest.mark.parametrize(("words", "error", "message"), [
    ("tree: rollout 2 | actor 1\n", CapacityError, r"plan\.yaml:1: the plan needs 3 devices side by side, but there are 2"),
    ("tree: rollout 1 | actor 1\nroles: {actor: 0}\n", CapacityError,
     r"plan\.yaml:2: device 0 is given to 'rollout' and 'actor'"),
    ("tree: rollout 1 | critic 1\n", UsageError, "there is no role 'critic'"),
    ("tree: rollout 1 | actor 1\nstaleness: 1\n", UsageError, r"rollout\.staleness=0"),
])
def test_training_refuses_a_plan_that_cannot_be_executed(checked, words, error, message):
    with pytest.raises(error, match=message):
        checked(words)
