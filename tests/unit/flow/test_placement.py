"""Who runs where by a rule, and how that is said."""

import pytest

from rlinf_cli.errors import CapacityError, UsageError
from rlinf_cli.flow.placement import Placement, RoleSpec, describe, fuse, spatial, temporal

ROLES = [RoleSpec("rollout"), RoleSpec("reward", "one"), RoleSpec("actor", trains=True)]
SCORED = [*ROLES[:2], RoleSpec("reference", trains=True), ROLES[2]]


def test_temporal_shares_all_devices():
    placement = temporal(ROLES, 3)
    assert dict(placement) == {"rollout": ((0,), (1,), (2,)), "reward": ((0,),), "actor": ((0,), (1,), (2,))}
    assert placement["reward"] == ((0,),)
    assert placement.devices("actor") == (0, 1, 2)
    assert list(placement) == ["rollout", "reward", "actor"]


def test_temporal_with_a_number_of_ranks():
    assert temporal([RoleSpec("critic", 2)], 4)["critic"] == ((0,), (1,))


def test_temporal_with_more_ranks_than_devices():
    with pytest.raises(CapacityError, match="role 'critic' has 3 ranks and each needs a device, but there are 2"):
        temporal([RoleSpec("critic", 3)], 2)


@pytest.mark.parametrize(("devices", "first", "second"), [
    (2, ((0,),), ((1,),)), (3, ((0,), (1,)), ((2,),)), (4, ((0,), (1,)), ((2,), (3,)))])
def test_spatial_gives_what_trains_the_second_half(devices, first, second):
    placement = spatial(SCORED, devices)
    assert dict(placement) == {"rollout": first, "reward": ((0,),), "reference": second, "actor": second}
    assert placement.mode == "spatial"


def test_spatial_needs_two_devices():
    with pytest.raises(CapacityError, match="placement=spatial needs 2 devices, but there is only 1: raise"):
        spatial(ROLES, 1)


def test_spatial_with_more_ranks_than_a_half_has():
    with pytest.raises(CapacityError, match="role 'critic' has 2 ranks and each needs a device, but there are 1"):
        spatial([RoleSpec("critic", 2, trains=True)], 2)


def test_roles_with_the_same_ranks_share_their_processes():
    placement = fuse(temporal(SCORED, 2))
    assert placement.fused == (("rollout", "reference", "actor"),)
    assert placement.processes() == [("rollout", "reference", "actor"), ("reward",)]
    assert fuse(spatial(SCORED, 2)).processes() == [("rollout", "reward"), ("reference", "actor")]
    assert placement.mode == "temporal"


def test_roles_without_partners_have_their_own_processes():
    assert temporal(ROLES, 2).processes() == [("rollout",), ("reward",), ("actor",)]


def test_a_placement_that_names_its_fused_roles_stays():
    ranks = {"rollout": ((0,),), "reward": ((0,),), "actor": ((0,),)}
    placement = Placement(ranks, fused=(("rollout", "actor"),))
    assert fuse(placement) == placement


def test_the_order_of_ranks_matters_for_sharing_a_process():
    with pytest.raises(UsageError, match="cluster.fused=true, but no two roles have the same ranks on the same devices "
                                         r"\(temporal: rollout, actor share devices 0-1\)"):
        fuse(Placement({"rollout": ((0,), (1,)), "actor": ((1,), (0,))}))


def placed(fixed=(), fused=(), kind="cpu", **roles):
    return Placement({role: tuple((device,) for device in devices) for role, devices in roles.items()}, kind, fused,
                     fixed=frozenset(fixed))


@pytest.mark.parametrize(("placement", "line"), [
    (temporal(ROLES, 2, "cpu"), "temporal: rollout, reward, actor share cpu:0-1"),
    (temporal(ROLES, 1, "cuda"), "temporal: rollout, reward, actor share cuda:0"),
    (temporal(ROLES, 2), "temporal: rollout, reward, actor share devices 0-1"),
    (temporal([RoleSpec("actor")], 2, "cpu"), "temporal: actor on cpu:0-1"),
    (spatial(ROLES, 2, "cpu"), "spatial: rollout, reward | actor on cpu:0 | cpu:1"),
    (spatial(ROLES, 4, "cpu"), "spatial: rollout | reward | actor on cpu:0-1 | cpu:0 | cpu:2-3"),
    (fuse(spatial(ROLES, 2, "cpu")), "spatial: rollout+reward | actor on cpu:0 | cpu:1 (+: in one process)"),
    (fuse(temporal(ROLES, 2, "cpu")), "temporal: rollout+actor, reward share cpu:0-1 (+: in one process)"),
    (fuse(temporal(ROLES, 1, "cpu")), "temporal: rollout+reward+actor share cpu:0 (+: in one process)"),
    (placed(rollout=[0, 1], actor=[1]), "hybrid: rollout | actor on cpu:0-1 | cpu:1"),
    (placed(rollout=[0, 1], reference=[1], actor=[1], fused=[("reference", "actor")]),
     "hybrid: rollout | reference+actor on cpu:0-1 | cpu:1 (+: in one process)"),
    (Placement({"rollout": ((0, 1), (2, 3)), "reward": ((5,),), "actor": ((5,), (7,))}, "cuda"),
     "hybrid: rollout | reward | actor on cuda:0-3 | cuda:5 | cuda:5,7"),
    (Placement({"rollout": ((0,), (1,)), "actor": ((0, 1),)}, "cpu"), "temporal: rollout, actor share cpu:0-1"),
])
def test_a_placement_in_a_line(placement, line):
    assert describe(placement) == line


@pytest.mark.parametrize(("placement", "mode"), [
    (placed(rollout=[0, 1], reward=[0], actor=[0, 1]), "hybrid"),
    (placed(rollout=[0, 1], reward=[0], actor=[0, 1], fixed=["reward"]), "temporal"),
    (placed(rollout=[0], reward=[1], actor=[0], fixed=["reward"]), "hybrid"),
    (placed(rollout=[0, 1], reward=[2], actor=[2], fixed=["reward"]), "spatial"),
    (placed(rollout=[0, 1], reward=[3], actor=[2], fixed=["reward"]), "spatial"),
    (placed(rollout=[0, 1], reward=[0], actor=[0, 1, 2]), "hybrid"),
    (placed(rollout=[0, 0], actor=[1]), "spatial"),
    (placed(rollout=[0, 0], actor=[0]), "temporal"),
    (placed(reward=[0], judge=[0], fixed=["reward", "judge"]), "temporal"),
])
def test_the_mode_is_that_of_the_roles_that_could_be_elsewhere(placement, mode):
    assert placement.mode == mode


def test_the_written_form_says_all():
    placement = Placement({"rollout": ((0,), (1,)), "reward": ((0,),), "actor": ((0,), (1,))}, "cpu", (("rollout", "actor"),),
                          {"reward": (4, 64), "actor": (1, 8)}, frozenset({"reward"}))
    assert placement.to_yaml() == ("# temporal: rollout+actor, reward share cpu:0-1 (+: in one process)\n"
                                   "rollout: [[0], [1]]\nreward: [[0]]\nactor: [[0], [1]]\n"
                                   "fused: [[rollout, actor]]\ngranularity: {reward: 4-64, actor: 1-8}\n")
