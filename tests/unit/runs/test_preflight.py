"""What is checked before anything starts, over the built-in plugins."""

import json

import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.errors import CapacityError, UsageError
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.runs.preflight import prepare


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
