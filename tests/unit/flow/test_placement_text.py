"""Placements as people write them: files, and texts of one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlinf_cli.errors import CapacityError, UsageError
from rlinf_cli.flow.placement import Placement, RoleSpec, temporal
from rlinf_cli.flow.placement_text import is_file, is_line, load_placement, parse_placement

ROLES = [RoleSpec("rollout"), RoleSpec("reward", "one", chunked=True), RoleSpec("actor", trains=True, chunked=True)]


@pytest.fixture
def load(tmp_path):
    def from_text(text, devices=2, roles=ROLES):
        path = tmp_path / "place.yaml"
        path.write_text(text)
        return load_placement(path, roles, devices)

    return from_text


def text(rollout="0-1", reward="0", actor="0-1"):
    return f"rollout: {rollout}\nreward: {reward}\nactor: {actor}\n"


def parse(line, devices=4, roles=ROLES):
    return parse_placement(line, roles, devices)


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


@pytest.mark.parametrize(("line", "ranks"), [
    ("rollout+reward:0-2,actor:3", {"rollout": ((0,), (1,), (2,)), "reward": ((0,),), "actor": ((3,),)}),
    ("actor:3,rollout:0+2,reward:1", {"rollout": ((0,), (2,)), "reward": ((1,),), "actor": ((3,),)}),
    ("rollout:0-1+3,reward:2,actor:3+0", {"rollout": ((0,), (1,), (3,)), "reward": ((2,),), "actor": ((3,), (0,))}),
    ("rollout:0+0,reward:0,actor:1", {"rollout": ((0,), (0,)), "reward": ((0,),), "actor": ((1,),)}),
    ("rollout+reward+actor:1-2", {"rollout": ((1,), (2,)), "reward": ((1,),), "actor": ((1,), (2,))}),
])
def test_a_line_places_roles(line, ranks):
    placement = parse(line)
    assert dict(placement) == ranks
    assert list(placement) == ["rollout", "reward", "actor"]


@pytest.mark.parametrize(("line", "message"), [
    ("rolout+reward:0,actor:1", r"placement=rolout\+reward:0,actor:1: there is no role 'rolout'; did you mean 'rollout'"),
    ("xyz:0,rollout:0", "there is no role 'xyz'; the roles are rollout, reward, actor"),
    ("rollout:0,actor:1", "role 'reward' has no devices: add ,reward:0"),
    ("rollout:0,rollout:1", "role 'rollout' is there twice"),
    ("rollout:0,1,reward:0", "'1' is no ROLES:DEVICES.*joined by \\+"),
    ("rollout:0,,actor:1", "'' is no ROLES:DEVICES"),
    ("rollout:x", "role 'rollout': 'x' is no device or range of devices: write 0, 0-3 or 0\\+2"),
    ("rollout:", "'' is no device or range"),
    ("rollout:2-1", "'2-1' is no device or range"),
    ("rollout:0:1", "'0:1' is no device or range"),
    (":0", "there is no role ''"),
    ("rollout +reward:0,actor:0", "there is no role 'rollout '; did you mean 'rollout'"),
])
def test_what_is_no_such_line(line, message):
    with pytest.raises(UsageError, match=message):
        parse(line)


def test_a_line_with_more_devices_than_there_are():
    with pytest.raises(CapacityError, match="role 'actor' is placed on device 4, but there are only devices 0 to 3: raise"):
        parse("rollout+reward:0-3,actor:4")


def test_a_line_with_too_few_ranks_for_a_role():
    roles = [RoleSpec("critic", 2)]
    assert parse("critic:1-3", roles=roles)["critic"] == ((1,), (2,))
    with pytest.raises(UsageError, match="role 'critic' runs on 2 ranks, but has 1 here"):
        parse("critic:1", roles=roles)


names = st.permutations(["rollout", "reward", "actor"])
devices = st.lists(st.integers(0, 3), min_size=1, max_size=4)


@given(names, st.lists(devices, min_size=3, max_size=3))
def test_any_line_is_read_as_it_is_written(order, numbers):
    line = ",".join(f"{name}:{'+'.join(map(str, mine))}" for name, mine in zip(order, numbers, strict=True))
    placement = parse(line)
    for name, mine in zip(order, numbers, strict=True):
        assert placement[name] == tuple((device,) for device in (mine[:1] if name == "reward" else mine))


@pytest.mark.parametrize(("word", "file", "line"), [
    ("place.yaml", True, False), ("C:/place.yml", True, True), ("p.json", True, False), ("rollout:0", False, True),
    ("spatial", False, False),
])
def test_what_a_placement_is_given_as(word, file, line):
    assert (is_file(word), is_line(word)) == (file, line)


def test_fused_roles_are_named_in_a_file(load):
    placement = load(text(reward="0") + "fused: [[actor, rollout]]\n")
    assert placement.fused == (("rollout", "actor"),)
    assert set(placement) == {"rollout", "reward", "actor"}


@pytest.mark.parametrize(("written", "message"), [
    ("[[rollout, reward]]", r"place.yaml:4: fused roles run on the same ranks, but 'rollout' on \[\[0\], \[1\]\] and "
                            r"'reward' on \[\[0\]\]"),
    ("[[rollout, actr]]", "fused: there is no role 'actr'; did you mean 'actor'"),
    ("[[rollout, actor], [actor, reward]]", "fused names role 'actor' twice"),
    ("[[rollout, rollout]]", "fused names role 'rollout' twice"),
    ("[[rollout]]", "a list of lists of two roles or more"),
    ("[rollout, actor]", "a list of lists of two roles or more"),
    ("rollout", "a list of lists of roles"),
    ("[]", "a list of lists of roles"),
    ("true", "a list of lists of roles"),
])
def test_roles_that_cannot_be_fused(load, written, message):
    with pytest.raises(UsageError, match=message):
        load(text() + f"fused: {written}\n")


def test_granularity_is_given_in_a_file(load):
    placement = load(text() + "granularity: {reward: 4-64, actor: 8}\n")
    assert placement.granularity == {"reward": (4, 64), "actor": (8, 8)}


@pytest.mark.parametrize(("written", "message"), [
    ("{rollout: 4}", "place.yaml:4: role 'rollout' takes no chunks, so it has no granularity .those that do: reward, actor."),
    ("{rewrd: 4}", "granularity: there is no role 'rewrd'; did you mean 'reward'"),
    ("{reward: 0}", "granularity of 'reward' is a number of items or a range of them, 1 or more, as in 8 or 4-64"),
    ("{reward: 8-4}", "granularity of 'reward' is a number of items"),
    ("{reward: few}", "granularity of 'reward' is a number of items"),
    ("{reward: [1, 2]}", "granularity of 'reward' is a number of items"),
    ("4", "granularity is a mapping from role to the items of a chunk"),
])
def test_what_is_no_granularity(load, written, message):
    with pytest.raises(UsageError, match=message):
        load(text() + f"granularity: {written}\n")


def test_a_misspelt_key_is_not_taken_for_a_role(load):
    with pytest.raises(UsageError, match="there is no role 'granularty'; did you mean 'granularity'"):
        load(text() + "granularty: {reward: 4}\n")


def test_the_written_form_is_read_back(load):
    placement = temporal(ROLES, 2, "cpu")
    written = placement.to_yaml()
    assert written == ("# temporal: rollout, reward, actor share cpu:0-1\n"
                       "rollout: [[0], [1]]\nreward: [[0]]\nactor: [[0], [1]]\n")
    assert load(written) == placement


CHUNKED = [RoleSpec(name, chunked=True) for name in ("rollout", "actor", "critic")]
ranks = st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=4, unique=True).map(tuple), min_size=1, max_size=4).map(tuple)
bounds = st.tuples(st.integers(1, 99), st.integers(0, 99)).map(lambda pair: (pair[0], sum(pair)))


@given(st.lists(ranks, min_size=3, max_size=3), st.dictionaries(st.sampled_from(["rollout", "actor", "critic"]), bounds),
       st.booleans())
def test_any_placement_is_read_back(tmp_path_factory, given_ranks, granularity, fused):
    if fused:
        given_ranks[2] = given_ranks[0]
    placement = Placement(dict(zip(("rollout", "actor", "critic"), given_ranks, strict=True)),
                          fused=(("rollout", "critic"),) * fused, granularity=granularity)
    path = tmp_path_factory.mktemp("place") / "plan.yaml"
    path.write_text(placement.to_yaml())
    assert load_placement(path, CHUNKED, 8) == placement
