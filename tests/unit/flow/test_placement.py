"""Who runs where, from a rule or from a file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlinf_cli.errors import CapacityError, UsageError
from rlinf_cli.flow.placement import Placement, RoleSpec, describe, load_placement, temporal

ROLES = [RoleSpec("rollout"), RoleSpec("reward", "one"), RoleSpec("actor")]


@pytest.fixture
def load(tmp_path):
    def from_text(text, devices=2, roles=ROLES):
        path = tmp_path / "place.yaml"
        path.write_text(text)
        return load_placement(path, roles, devices)

    return from_text


def text(rollout="0-1", reward="0", actor="0-1"):
    return f"rollout: {rollout}\nreward: {reward}\nactor: {actor}\n"


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


@pytest.mark.parametrize(("written", "ranks"), [
    ("0", ((0,),)),
    ("1", ((1,),)),
    ("0-2", ((0,), (1,), (2,))),
    ("0-1,3", ((0,), (1,), (3,))),
    ("'3, 0'", ((3,), (0,))),
    ("[0, 2]", ((0,), (2,))),
    ("[[0], [1]]", ((0,), (1,))),
    ("[[0, 1], [2, 3]]", ((0, 1), (2, 3))),
    ("[0-1, 2-3]", ((0, 1), (2, 3))),
    ("[[0, 2-3]]", ((0, 2, 3),)),
    ("[0, [1, 2]]", ((0,), (1, 2))),
    ("[[0], [0]]", ((0,), (0,))),
    ("\n- [0, 1]\n- [2]", ((0, 1), (2,))),
])
def test_ways_to_write_ranks(load, written, ranks):
    assert load(text(rollout=written), devices=4)["rollout"] == ranks


@pytest.mark.parametrize(("written", "message"), [
    ("x", "role 'rollout': 'x' is no device or range of devices: write 0, 0-3 or 0,2"),
    ("1-0", "'1-0' is no device or range"),
    ("-1", "'-1' is no device or range"),
    ("0.5", "'0.5' is no device"),
    ("''", "'' is no device"),
    ("", "'' is no device"),
    ("cpu:0", "'cpu:0' is no device"),
    ("[]", "role 'rollout' has no rank: give it a device"),
    ("[[]]", "role 'rollout', rank 0 has no device"),
    ("[[0], []]", "role 'rollout', rank 1 has no device"),
    ("[[0, 0]]", r"role 'rollout', rank 0 names a device twice: \[0, 0\]"),
    ("[[0-1, 1]]", "rank 0 names a device twice"),
    ("[[[0]]]", "a rank is a device or a list of devices"),
    ("[{0: 1}]", "a rank is a device or a list of devices"),
    ("{0: 1}", r"role 'rollout': write devices, as in 0-1 or \[\[0, 1\], \[2, 3\]\]"),
])
def test_what_are_no_ranks(load, written, message):
    with pytest.raises(UsageError, match=message) as caught:
        load(text(rollout=written))
    assert "place.yaml:1" in str(caught.value)


@pytest.mark.parametrize("written", ["0-6", "[[0], [1], [2]]", "2", "[[0, 2]]", "0-999999999"])
def test_more_devices_than_there_are(load, written):
    message = r"role 'rollout' is placed on device \d+, but there are only devices 0 to 1"
    with pytest.raises(CapacityError, match=message) as caught:
        load(text(rollout=written))
    assert caught.value.exit_code == 4
    assert "place.yaml:1" in str(caught.value)


def test_the_only_device_is_called_so(load):
    with pytest.raises(CapacityError, match="there is only device 0: raise cluster"):
        load(text(), devices=1)


def test_a_role_that_can_have_one_rank_only(load):
    with pytest.raises(UsageError, match="role 'reward' runs on 1 rank, but has 2 here"):
        load(text(reward="0-1"))


def test_a_role_with_a_fixed_number_of_ranks(load):
    roles = [RoleSpec("critic", 2)]
    assert load("critic: 0-1", roles=roles)["critic"] == ((0,), (1,))
    with pytest.raises(UsageError, match="role 'critic' runs on 2 ranks, but has 1 here"):
        load("critic: 0", roles=roles)


def test_an_unknown_role_and_the_nearest_one(load):
    with pytest.raises(UsageError, match=r"place.yaml: there is no role 'rolout'; did you mean 'rollout'"):
        load(text() + "rolout: 0\n")


def test_an_unknown_role_like_no_other(load):
    with pytest.raises(UsageError, match=r"there is no role 'xyz'; the roles are rollout, reward, actor"):
        load(text() + "xyz: 0\n")


def test_a_role_that_is_left_out(load):
    with pytest.raises(UsageError, match=r"role 'actor' has no devices: add a line 'actor: 0'"):
        load("rollout: 0\nreward: 0\n")


def test_a_role_that_is_there_twice(load):
    with pytest.raises(UsageError, match=r"place.yaml:4: role 'actor' is there twice"):
        load(text() + "actor: 1\n")


@pytest.mark.parametrize(("content", "message"), [
    ("", "a mapping from role to devices is needed"),
    ("- 0\n", "a mapping from role to devices is needed"),
    ("rollout: [0\n", "not valid YAML"),
])
def test_what_is_no_placement_file(load, content, message):
    with pytest.raises(UsageError, match=message):
        load(content)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match=r"placement=.*gone.yaml: cannot be read: No such file"):
        load_placement(tmp_path / "gone.yaml", ROLES, 2)


def test_a_file_that_is_no_text(tmp_path):
    (tmp_path / "place.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not UTF-8"):
        load_placement(tmp_path / "place.yaml", ROLES, 2)


@pytest.mark.parametrize(("placement", "line"), [
    (temporal(ROLES, 2, "cpu"), "temporal: rollout, reward, actor share cpu:0-1"),
    (temporal(ROLES, 1, "cuda"), "temporal: rollout, reward, actor share cuda:0"),
    (temporal(ROLES, 2), "temporal: rollout, reward, actor share devices 0-1"),
    (Placement({"rollout": ((0,),), "actor": ((1,),)}, "cpu"), "custom: rollout | actor on cpu:0 | cpu:1"),
    (Placement({"rollout": ((0, 1), (2, 3)), "reward": ((5,),), "actor": ((5,), (7,))}, "cuda"),
     "custom: rollout | reward | actor on cuda:0-3 | cuda:5 | cuda:5,7"),
    (Placement({"rollout": ((0,), (1,)), "reward": ((2,),), "critic": ((2,),)}, "cpu"),
     "custom: rollout | reward, critic on cpu:0-1 | cpu:2"),
    (Placement({"rollout": ((0,), (1,)), "actor": ((0, 1),)}, "cpu"), "custom: rollout, actor share cpu:0-1"),
])
def test_a_placement_in_a_line(placement, line):
    assert describe(placement) == line


def test_the_written_form_is_read_back(load):
    placement = temporal(ROLES, 2, "cpu")
    written = placement.to_yaml()
    assert written == ("# temporal: rollout, reward, actor share cpu:0-1\n"
                       "rollout: [[0], [1]]\nreward: [[0]]\nactor: [[0], [1]]\n")
    assert load(written) == placement


ranks = st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=4, unique=True).map(tuple), min_size=1, max_size=4).map(tuple)


@given(st.dictionaries(st.sampled_from(["rollout", "actor", "critic"]), ranks, min_size=1))
def test_any_placement_is_read_back(tmp_path_factory, given_ranks):
    placement = Placement(given_ranks)
    path = tmp_path_factory.mktemp("place") / "plan.yaml"
    path.write_text(placement.to_yaml())
    assert load_placement(path, [RoleSpec(name) for name in given_ranks], 8) == placement
