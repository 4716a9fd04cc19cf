"""`rlinf train --dry-run`: what would run where, or why it cannot, before anything starts."""

import json

import pytest
from click.testing import CliRunner

from rlinf_cli.commands import main

FILE = "rollout: 0\nreward: 0\nactor: 0\nfused: [[rollout, actor]]\ngranularity: {actor: 2-4}\n"


@pytest.fixture
def dry_run(tmp_path, monkeypatch):
    """`dry_run("--placement", "spatial")` in a directory with a placement file; nothing is left there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "place.yaml").write_text(FILE)
    yield lambda *words: CliRunner().invoke(main, ["train", "--dry-run", "--devices", "cpu:2", *words])
    assert [one.name for one in tmp_path.iterdir()] == ["place.yaml"]


@pytest.mark.parametrize(("words", "line"), [
    ((), "temporal: rollout, reward, actor share cpu:0-1   (no profile yet: the first 5 steps are measured as they are trained)"),
    (("placement=temporal",), "temporal: rollout, reward, actor share cpu:0-1"),
    (("deterministic=true",), "temporal: rollout, reward, actor share cpu:0-1"),
    (("--algo", "sft", "eval.every=5"), "temporal: examples, rollout, reward, actor share cpu:0-1"),
    (("--placement", "spatial"), "spatial: rollout, reward | actor on cpu:0 | cpu:1"),
    (("placement=rollout+reward:0-1,actor:1",), "hybrid: rollout | reward | actor on cpu:0-1 | cpu:0 | cpu:1"),
    (("--placement", "place.yaml"), "temporal: rollout+actor, reward share cpu:0 (+: in one process)"),
    (("cluster.fused=true",), "temporal: rollout+actor, reward share cpu:0-1 (+: in one process)"),
])
def test_the_plan_is_a_line(dry_run, words, line):
    done = dry_run(*words)
    assert done.exit_code == 0, done.output
    assert f"plan       {line}\n" in done.stdout


def test_as_json_it_says_all(dry_run):
    document = json.loads(dry_run("--placement", "place.yaml", "--json").stdout)
    assert document["placement"] == {"rollout": [[0]], "reward": [[0]], "actor": [[0]]}
    assert document["fused"] == [["rollout", "actor"]]
    assert document["granularity"] == {"actor": [2, 4]}
    assert document["plan"].startswith("temporal: rollout+actor")


def test_a_wrong_placement_is_one_sentence(dry_run):
    done = dry_run("--placement", "rolout+reward:0,actor:1")
    assert done.exit_code == 2
    assert done.stderr == "Error: placement=rolout+reward:0,actor:1: there is no role 'rolout'; did you mean 'rollout'\n"
