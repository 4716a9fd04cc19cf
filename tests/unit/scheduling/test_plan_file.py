"""Plans as files: written, read back, edited by hand, and refused with a sentence where they cannot be executed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import yaml

from rlinf_cli.errors import CapacityError, UsageError
from rlinf_cli.scheduling.plan import Plan, Prediction
from rlinf_cli.scheduling.plan_file import PlanFile, is_plan, load, ranges, save, to_yaml, validate
from rlinf_cli.scheduling.problem import Batch, Curve, Decoding, Law, Memory, Problem, Spread, Stage
from rlinf_cli.scheduling.tree import parse, text

STAGES = (
    Stage("rollout", Decoding(Curve((1.0, 64.0), (0.01, 0.02)), 64, devices_per_replica=2), memory=Memory(40e9, 0, 5e9)),
    Stage("reward", Batch(((1, Law(sample_s=1e-3)),), most_ranks=1), ("rollout",), needs_device=False),
    Stage("reference", Batch(((1, Law(token_s=1e-4)),)), ("reward",), memory=Memory(20e9)),
    Stage("actor", Batch(((1, Law(token_s=3e-4)),)), ("reference",), memory=Memory(10e9, 160e9), trains=True),
)
WRITTEN = """\
tree: rollout 4 | (reference 4, actor 4), reward
devices: 8
roles:
  rollout: [0-1, 2-3]
  reward: 0
  reference: 4-7
  actor: 4-7
chunk: {reference: 32}
staleness: 1
profile: mine.json
"""


def problem(**changes):
    fields = {"stages": STAGES, "devices": 8, "lengths": np.full(64, 100), "group": 8, "device_memory": 80e9, "staleness": 1}
    return Problem(**(fields | changes))


@pytest.fixture
def written(tmp_path):
    """`written(text)`: what a file of this text holds."""

    def write(words):
        (tmp_path / "plan.yaml").write_text(words)
        return load(tmp_path / "plan.yaml")

    return write


def edited(old, new):
    words = "tree: (rollout 4 | reward | (reference 4, actor 4))\n" + WRITTEN.partition("\n")[2]
    assert old in words
    return words.replace(old, new)


def made(tree="rollout 4 | (reference 4, actor 4)", **fields):
    return PlanFile(Plan(parse(tree), {"reference": 32}, 1, fields.pop("prediction", None)), 8, **fields)


# ---- writing and reading ----


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "plan.yaml"
    roles = {"rollout": ((0, 1), (2, 3)), "reward": ((0,),), "reference": ((4,), (5,), (6,), (7,)), "actor": ((4, 6), (5, 7))}
    file = made(profile="analytic:h100", hardware="8 h100", roles=roles, path=path)
    save(file, path)
    assert load(path) == file


def test_ranks_say_how_many_devices_each_has_where_there_is_a_choice(written):
    rollout = replace(STAGES[0], spreads=(Spread(replace(STAGES[0].cost, devices_per_replica=4)),))
    given = problem(stages=(rollout, *STAGES[1:]))
    for words, unit in (("[0-1, 2-3]", 2), ("0-3 by 4", 4), ("[0-3]", 4)):
        plan = validate(written(edited("rollout: [0-1, 2-3]", f"rollout: {words}")), given)
        assert dict(plan.units) == {"rollout": unit}
    assert dict(validate(written("tree: rollout 4 | (reference 4, actor 4)"), given).units) == {}
    with pytest.raises(UsageError, match="ranks of 1 devices here, but was measured with 2"):
        validate(written(edited("rollout: [0-1, 2-3]", "rollout: 0-3")), given)
    with pytest.raises(CapacityError, match="'rollout' cannot run on 6 devices"):
        validate(written(edited("rollout 4 |", "rollout 6 |").replace("[0-1, 2-3]", "[0-3, 4-5]")), given)


def test_it_is_plain_yaml_that_says_what_it_is():
    prediction = Prediction(574.123456, busy={"rollout": {"rollout": 500.0, "idle": 74.0}}, memory={"rollout": 71e9},
                            bound_by="rollout tail 38 %", extrapolated=("actor on 4 ranks",), source="analytic")
    words = to_yaml(made(prediction=prediction, profile="analytic:h100", roles={"rollout": ((0,), (1,))}))
    assert words.startswith("# hybrid: 574.1 s an iteration, predicted (analytic). Edit it, and pass it back as placement=")
    assert yaml.safe_load(words) == {
        "tree": "rollout 4 | (reference 4, actor 4)", "devices": 8, "roles": {"rollout": "0-1"}, "chunk": {"reference": 32},
        "staleness": 1, "profile": "analytic:h100",
        "prediction": {"step_s": 574.12, "bound_by": "rollout tail 38 %", "source": "analytic", "memory_gb": {"rollout": 71.0},
                       "busy": {"rollout": {"rollout": 500.0, "idle": 74.0}}, "extrapolated": ["actor on 4 ranks"]}}


def test_the_prediction_is_read_to_be_compared_with(written):
    file = written("tree: a 1\nprediction: {step_s: 1.5, bound_by: a}\n")
    assert file.plan.prediction.step_s == 1.5
    assert file.devices == 1


def test_the_least_file_is_a_tree(written):
    file = written("tree: rollout 4 | (reference 3, actor 3)\n")
    assert (file.devices, file.roles, dict(file.plan.chunk), file.plan.staleness) == (7, {}, {}, 0)
    validate(file, problem())


@pytest.mark.parametrize(("ranks", "words"), [
    (((0,), (1,), (2,)), "0-2"), (((0, 1), (2, 3)), "0-3 by 2"), (((0, 2), (1, 3)), "0,2,1,3 by 2"), (((0, 1, 2),), "[0-2]"),
    (((0, 1), (2,)), "[0-1, 2]"), (((0, 2), (1,)), "[[0, 2], 1]"),
])
def test_ranks_are_written_shortly_and_read_back(written, ranks, words):
    text_of_it = to_yaml(made("a 4", roles={"a": ranks}))
    assert f"  a: {words}\n" in text_of_it
    assert written(text_of_it).roles == {"a": ranks}


@pytest.mark.parametrize(("devices", "words"), [([0], "0"), ([0, 1, 2, 5], "0-2,5"), ([3, 1], "3,1"), ([], "")])
def test_ranges(devices, words):
    assert ranges(devices) == words


def test_a_plan_is_told_from_a_placement(tmp_path):
    for name, words, expected in [("a", "tree: x 1\n", True), ("b", "rollout: 0\ntree: [0]\n", False),
                                  ("c", "rollout: 0\n", False),
                                  ("d", "tree: [", False), ("e", "- tree\n", False)]:
        (tmp_path / name).write_text(words)
        assert is_plan(tmp_path / name) == expected, name
    assert not is_plan(tmp_path / "missing")


@pytest.mark.parametrize(("words", "message"), [
    ("tree: a 1\ntree: a 2\n", r"plan\.yaml:2: 'tree' is there twice"),
    ("tree: a 1\nchunks: {}\n", r"plan\.yaml:2: there is no 'chunks' in a plan; did you mean 'chunk'"),
    ("devices: 2\n", r"plan\.yaml is no plan: it has no 'tree'"),
    ("tree: a 1, b 1 | c 1\n", r"plan\.yaml:1: tree: ',' and '\|' beside each other behind 'a 1, b 1': put what belongs"),
    ("tree: (a 1\n", r"tree: a '\)' is missing behind 'a 1'"),
    ("tree: a 1 b 1\n", "tree: 'b' is too much, behind 'a 1'"),
    ("tree: a 1 |\n", "tree: a role is missing before the end"),
    ("tree: [a]\n", "tree: a text is needed here"),
    ("tree: a 1\ndevices: many\n", r"plan\.yaml:2: devices: 'many' is no whole number from 0"),
    ("tree: a 1\nchunk: {a: 0}\n", r"chunk\.a: '0' is no whole number from 1"),
    ("tree: a 1\nchunk: 3\n", "chunk: a mapping from role is needed here"),
    ("tree: a 1\nroles:\n  a: 3-1\n", r"plan\.yaml:3: roles\.a: '3-1' is no device or range of devices"),
    ("tree: a 1\nroles:\n  a: 0-2 by 2\n", r"plan\.yaml:3: roles\.a: '0-2 by 2' are no ranks of equal size"),
    ("tree: a 1\nroles:\n  a: 0-2 by some\n", "are no ranks of equal size: write devices and how many a rank has"),
    ("tree: a 1\nroles:\n  a: {x: 1}\n", r"roles\.a: 'amapping' is no device"),
    ("tree: a 1\nstaleness: -1\n", "staleness: '-1' is no whole number"),
    ("tree: a 1\nprediction: {step_s: soon}\n", r"plan\.yaml:2: prediction: step_s is no number"),
    ("tree: [\n", "is not valid YAML"),
    ("- a\n", "is no plan: a mapping with a 'tree' is needed"),
])
def test_what_is_no_plan(written, words, message):
    with pytest.raises(UsageError, match=message):
        written(words)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        load(tmp_path / "plan.yaml")


# ---- can it be executed? ----


@pytest.mark.parametrize("tree", [
    "rollout 4 | (reference 4, actor 4)", "rollout 8, reference 8, actor 8", "rollout 4 | reference 1 | actor 3",
    "(rollout 4 | reference 4), actor 8", "rollout 2 | (reference 6, actor 6)", "(rollout 4 | reward), (reference 4 ~ actor 4)",
])
def test_what_can_be_executed(tree):
    validate(made(tree), problem())


def test_roles_without_devices_are_put_beside_what_they_work_on():
    tree = validate(made("rollout 8, reference 8, actor 8"), problem()).tree
    assert text(tree) == "(rollout 8 | reward), reference 8, actor 8"
    assert text(validate(made(text(tree)), problem()).tree) == text(tree)


def test_a_file_as_it_is_written_can_be_executed(written):
    validate(written(edited("staleness: 1", "staleness: 1")), problem())


def test_roles_may_be_moved_to_other_devices(written):
    validate(written(edited("  reference: 4-7\n  actor: 4-7", "  reference: 4,6,7,5\n  actor: 4-7")), problem())
    moved = edited("[0-1, 2-3]", "[4-5, 6-7]").replace("reference: 4-7", "reference: 0-3").replace("actor: 4-7", "actor: 0-3")
    validate(written(moved), problem())


@pytest.mark.parametrize(("tree", "error", "message"), [
    ("rollout 4 | (reference 8, actor 8)", CapacityError,
     "the plan needs 12 devices side by side, but there are 8: give its roles fewer"),
    ("rollout 16, reference 4, actor 4", CapacityError, "'rollout' is given 16 devices, but there are 8"),
    ("rollout 3 | (reference 4, actor 4)", CapacityError, r"'rollout' cannot run on 3 devices: it can have 2 or 4 or 6 or 8"),
    ("rollout 4 | reward 1 | (reference 3, actor 3)", CapacityError,
     "'reward' cannot run on 1 device: it computes beside others"),
    ("rollout 4, reference, actor 4", CapacityError, "'reference' cannot run on 0 devices: it can have any number from 1 to 8"),
    ("rollout 6 | (reference 2, actor 2)", CapacityError, r"actor needs 90.0 GB on each of devices 6-7"),
    ("rolout 4 | (reference 4, actor 4)", UsageError, "there is no role 'rolout'; did you mean 'rollout'"),
    ("rollout 4 | (reference 4, actor 4, actor 4)", UsageError, "role 'actor' is there twice"),
    ("rollout 4 | reference 4", UsageError, r"role 'actor' has no place: add it, as in '\(rollout 4 \| reference 4\), actor 1'"),
    ("actor 4 | (rollout 4, reference 4)", UsageError, "'actor' works on what 'reference' makes: write it behind 'reference'"),
])
def test_trees_that_cannot_be_executed(tree, error, message):
    with pytest.raises(error, match=message) as caught:
        validate(made(tree), problem(devices=8))
    assert str(caught.value).startswith("PLAN.yaml: ")


@pytest.mark.parametrize(("old", "new", "error", "message"), [
    ("actor: 4-7", "actor: 3-6", CapacityError, r"plan\.yaml:7: device 3 is given to 'rollout' and 'actor' at the same time"),
    ("actor: 4-7", "actor: 4-8", CapacityError, r"plan\.yaml:7: role 'actor' is placed on device 8, but there are 8"),
    ("actor: 4-7", "actor: 4-6", UsageError, r"plan\.yaml:7: role 'actor' has 3 devices here, but 4 in the tree"),
    ("actor: 4-7", "actor: 4,4,5,6", UsageError, r"plan\.yaml:7: role 'actor' names a device twice"),
    ("actor: 4-7", "critic: 4-7", UsageError, r"plan\.yaml:7: there is no role 'critic'.*the roles are rollout, reward"),
    ("[0-1, 2-3]", "0-3", UsageError, r"plan\.yaml:4: role 'rollout' has ranks of 1 devices here, but was measured with 2"),
    ("reference: 32", "reference: 12", UsageError, r"plan\.yaml:8: 'reference' cannot take 12 .* write a multiple of 8"),
    ("reference: 32", "reference: 72", UsageError, "cannot take 72 samples at once: a batch has 64"),
    ("{reference: 32}", "{refrence: 32}", UsageError, "role 'refrence' is not in the tree; did you mean 'reference'"),
    ("staleness: 1", "staleness: 2", UsageError, r"plan\.yaml:9: the plan runs ahead by 2 versions, but rollout.staleness=1"),
    ("  rollout: [0-1, 2-3]\n", "  rollout: [0-1, [2, 3]]\n  reward: 9\n", CapacityError,
     "role 'reward' is placed on device 9|is there twice"),
])
def test_edits_that_cannot_be_executed(written, old, new, error, message):
    words = edited(old, new)
    if "reward: 9" in new:
        words = words.replace("  reward: 0\n", "")
    with pytest.raises(error, match=message):
        validate(written(words), problem())


def test_turns_are_taken_on_the_same_devices(written):
    moved = "tree: rollout 4, reference 4, actor 4\nroles:\n  rollout: [0-1, 2-3]\n  reference: 2-5\n  actor: 0-3\n"
    with pytest.raises(UsageError, match=r"plan\.yaml:2: 'rollout 4' and 'reference 4' take turns in the tree"):
        validate(written(moved), problem())


def test_a_rank_that_needs_more_devices_than_there_are():
    with pytest.raises(CapacityError, match=r"'rollout' cannot run on 1 device: one rank needs 2, and there is 1"):
        validate(made("rollout 1, reference 1, actor 1"), problem(devices=1))


@pytest.mark.parametrize("tree", ["a 1 | b 2 | c 3", "a 1 | (b 2, c 2)", "(a 1 | b 2), c 3", "(a 1 ~ b 1), c 1", "a, b 2, c 3"])
def test_trees_are_written_as_they_are_read(tree):
    assert text(parse(tree)) == tree


class TestACircle:
    """Its roles share the stage's devices, or have some each."""

    STAGES = (
        Stage("environment+rollout", Batch(((1, Law(sample_s=1e-3)), (2, Law(sample_s=6e-4)))), roles=("environment", "rollout")),
        Stage("actor", Batch(((1, Law(sample_s=1e-3)),)), ("environment+rollout",), trains=True))

    def check(self, written, environment, rollout, count=2):
        words = (f"tree: environment+rollout {count}, actor 1\ndevices: 2\nroles:\n  environment: {environment}\n"
                 f"  rollout: {rollout}\n  actor: 0\nstaleness: 0\nprofile: mine.json\n")
        validate(written(words), problem(stages=self.STAGES, devices=2, staleness=0))

    @pytest.mark.parametrize(("environment", "rollout"), [("0", "1"), ("1", "0"), ("0-1", "0-1")])
    def test_is_read_back(self, written, environment, rollout):
        self.check(written, environment, rollout)

    @pytest.mark.parametrize(("environment", "rollout", "count", "told"), [
        ("0", "0", 2, "roles 'environment' and 'rollout' together have 1 devices here, but 2 in the tree"),
        ("0", "1", 1, "together have 2 devices here, but 1 in the tree"), ("0", "2", 2, "'rollout' is placed on device 2")])
    def test_that_does_not_fit_is_told(self, written, environment, rollout, count, told):
        with pytest.raises((UsageError, CapacityError), match=told):
            self.check(written, environment, rollout, count)
