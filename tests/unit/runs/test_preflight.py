"""What is checked before anything starts, over the built-in plugins."""

import inspect
import json

import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.errors import CapacityError, RlinfError, UsageError
from rlinf_cli.flow.placement import describe
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.runs.preflight import cautions, prepare
from rlinf_cli.runs.roles import load_worker


@pytest.fixture
def checked(tmp_path, monkeypatch):
    """Prepare a run of these arguments in an empty directory."""
    monkeypatch.chdir(tmp_path)
    installed = load_plugins(None)
    return lambda *arguments: prepare(resolve([], arguments, {}, installed), installed)


def data(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"data.name={path.name}"


def test_the_default_run_may_start(checked):
    prepared = checked("cluster.devices=cpu:2")
    assert list(prepared.roles) == ["rollout", "reward", "actor"]
    assert dict(prepared.placement) == {"rollout": ((0,), (1,)), "reward": ((0,),), "actor": ((0,), (1,))}
    assert len(prepared.stream.batch(0)) == 32


def test_the_devices_of_an_existing_cluster_are_not_known_yet(checked):
    assert checked("cluster.address=10.0.0.1:6379").placement is None


def test_a_placement_file_decides(checked, tmp_path):
    (tmp_path / "place.yaml").write_text("rollout: 0\nreward: 1\nactor: [[0, 1]]\n")
    prepared = checked("placement=place.yaml", "cluster.devices=cpu:2")
    assert dict(prepared.placement) == {"rollout": ((0,),), "reward": ((1,),), "actor": ((0, 1),)}


def test_more_devices_than_there_are(checked, tmp_path):
    (tmp_path / "place.yaml").write_text("rollout: 0-6\nreward: 0\nactor: 0\n")
    with pytest.raises(CapacityError, match=r"place\.yaml:1: role 'rollout' is placed on device 6.*only devices 0 to 1"):
        checked("placement=place.yaml", "cluster.devices=cpu:2")


@pytest.mark.parametrize(("arguments", "line"), [
    (("placement=spatial",), "spatial: rollout, reward | actor on cpu:0 | cpu:1"),
    (("placement=spatial", "algorithm.kl_coef=0.1"), "spatial: rollout, reward | reference, actor on cpu:0 | cpu:1"),
    (("placement=rollout+reward:0-1,actor:1",), "hybrid: rollout | reward | actor on cpu:0-1 | cpu:0 | cpu:1"),
    (("placement=rollout:0+0,reward+actor:1",), "spatial: rollout | reward, actor on cpu:0 | cpu:1"),
    (("placement=rollout+reward+actor:1",), "temporal: rollout, reward, actor share cpu:1"),
    (("cluster.fused=true",), "temporal: rollout+actor, reward share cpu:0-1 (+: in one process)"),
])
def test_modes_are_written_in_a_word_or_a_line(checked, arguments, line):
    assert describe(checked("cluster.devices=cpu:2", *arguments).placement) == line


@pytest.mark.parametrize(("arguments", "message", "code"), [
    (("placement=spatail",), r"placement=spatail \(from the command line\) is no mode, file or assignment; did you mean "
                             "'spatial': write auto, temporal, spatial", 2),
    (("placement=hybrid",), "is no mode, file or assignment: write auto, temporal, spatial, FILE.yaml, or which roles "
                              "run where", 2),
    (("placement=rolout+reward:0,actor:1",), "no role 'rolout'; did you mean 'rollout'", 2),
    (("placement=rollout:0,actor:1",), "role 'reward' has no devices", 2),
    (("placement=rollout+reward:0,actor:2",), "role 'actor' is placed on device 2", 4),
    (("placement=spatial", "cluster.devices=cpu:1"), "placement=spatial needs 2 devices", 4),
    (("placement=rollout:0,reward:1,actor:0+1", "cluster.fused=true"), "no two roles have the same ranks", 2),
])
def test_what_cannot_be_placed(checked, arguments, message, code):
    with pytest.raises(RlinfError, match=message) as caught:
        checked("cluster.devices=cpu:2", *arguments)
    assert caught.value.exit_code == code


def test_every_role_that_takes_chunks_can_be_told_how_large(checked, tmp_path):
    """And its worker knows the keyword."""
    (tmp_path / "place.yaml").write_text("rollout: 0\nreward: 0\nreference: 0\nactor: 0\n"
                                         "granularity: {reward: 2-8, reference: 4, actor: 1-2}\n")
    prepared = checked("placement=place.yaml", "cluster.devices=cpu:1", "algorithm.kl_coef=0.1")
    assert prepared.placement.granularity == {"reward": (2, 8), "reference": (4, 4), "actor": (1, 2)}
    for role in prepared.roles.values():
        assert ("granularity" in inspect.signature(load_worker(role.worker)).parameters) == role.chunked


def test_a_role_that_takes_no_chunks_has_no_granularity(checked, tmp_path):
    (tmp_path / "place.yaml").write_text("rollout: 0\nreward: 0\nactor: 0\ngranularity: {rollout: 2}\n")
    with pytest.raises(UsageError, match=r"place\.yaml:4: role 'rollout' takes no chunks.*those that do: reward, actor"):
        checked("placement=place.yaml", "cluster.devices=cpu:1")


def test_a_deterministic_run_says_so_when_its_engine_cannot_be(checked, monkeypatch):
    prepared = checked("deterministic=true")
    assert list(cautions(prepared)) == []
    monkeypatch.setattr(type(prepared.config), "settings", lambda self, section: None)
    (said,) = cautions(prepared)
    assert said.startswith("deterministic=true: engine.name=torch has no key batch_invariant")


def test_a_reward_that_compares_needs_answers(checked, tmp_path):
    rows = data(tmp_path / "d.jsonl", {"prompt": "say hello"})
    with pytest.raises(UsageError, match=r"reward\.name=exact compares with an answer, but d\.jsonl has none.*data\.answer_key"):
        checked(rows)


def test_a_function_needs_the_columns_it_names(checked, tmp_path):
    rows = data(tmp_path / "d.jsonl", {"prompt": "2 m in cm?", "answer": "200", "unit": "cm"})
    (tmp_path / "mine.py").write_text("def f(response, unti):\n    return 1.0\n")
    with pytest.raises(UsageError, match="unti"):
        checked(rows, "reward.name=mine.py:f")
    (tmp_path / "yours.py").write_text("def f(response, unit):\n    return 1.0\n")
    assert checked(rows, "reward.name=yours.py:f").config.reward.name == "yours.py:f"


def test_an_unknown_workflow_is_named(checked):
    with pytest.raises(UsageError, match="reasonning"):
        checked("workflow=reasonning")
