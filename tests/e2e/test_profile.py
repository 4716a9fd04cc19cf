"""`rlinf profile` measures real workers, and leaves a file behind and nothing else."""

import json
from pathlib import Path

import pytest

from rlinf_cli.flow.shared_directory import shared_memory_root
from rlinf_cli.scheduling.profile_file import load

pytestmark = pytest.mark.e2e

ON_TWO = ("profile", "--algo", "grpo", "--devices", "cpu:2", "rollout.prompts=8", "rollout.group_size=4")


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The directory for temporary files of the commands of one test: others run at the same time."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    return directory


def shared_memory(family):
    """What processes have there."""
    mapped = {one.path for process in family for one in process.memory_maps()}
    return {Path(path).parent for path in mapped if path.startswith(f"{shared_memory_root()}/rlinf-")}


def test_each_role_on_one_device_and_on_two(rlinf, tmp_path, temporary):
    done = rlinf(*ON_TWO, "--batch-sizes", "4,8", "--repeat", "2", "--budget", "6", "--json", check=True,
                 XDG_CACHE_HOME=str(tmp_path / "cache"))
    document = json.loads(done.stdout)
    assert "measuring on 2 cpu devices" in done.stderr
    assert document["graph"] == {"nodes": {"rollout": [], "reward": ["rollout"], "actor": ["reward"]},
                                 "edges": [["rollout", "reward"], ["reward", "actor"]], "publications": [["actor", "rollout"]]}
    assert document["differences"] == []
    assert not list(temporary.glob("rlinf-*"))

    (kept,) = (tmp_path / "cache/rlinf/profiles").glob("*.json")
    assert document["path"] == str(kept)
    profile = load(kept)
    assert set(profile.roles) == {"rollout", "reward", "actor"}
    sizes = {(point.ranks, point.ranks * point.samples) for point in profile.roles["actor"].batches}
    assert sizes == {(1, 16), (1, 32), (2, 16), (2, 32)}
    assert all(point.seconds > 0 for role in profile.roles.values() for point in role.batches)
    active = {(point.replicas, point.active) for point in profile.roles["rollout"].decoding}
    assert active >= {(replicas, 2**power) for replicas in (1, 2) for power in range(6)}
    assert [point.ranks for point in profile.roles["actor"].memory] == [1, 2]
    assert len(profile.lengths) == sum(point.samples for point in profile.roles["reward"].batches)
    assert profile.sync_s > 0
    assert profile.transfers["rollout", "reward"] > 0

    planned = rlinf("plan", *ON_TWO[1:], "--json", check=True, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert json.loads(planned.stdout)
    dry = rlinf("train", *ON_TWO[1:], "--dry-run", check=True, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert "(by the profile of " in dry.stdout
    other = rlinf("plan", *ON_TWO[1:], "rollout.max_new_tokens=4", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert other.returncode == 2
    assert "rollout.max_new_tokens 3 → 4" in other.stderr


def test_an_interrupt_leaves_nothing(start, survivors, temporary):
    running = start(*ON_TWO)
    running.wait_for(lambda: "measuring on 1 cpu device: decode steps" in running.log.read_text())
    family = running.family()
    shared = shared_memory(family)
    assert shared
    running.interrupt()
    code, said = running.end()
    assert code == 130, said
    assert "Traceback" not in said
    assert not survivors(family)
    assert not list(temporary.glob("rlinf-*"))
    assert not [path for path in shared if path.exists()]


def test_what_is_wrong_is_said_before_anything_starts(rlinf):
    for words, said in ((("--batch-sizes", "4,none"), "'4,none' is no list of numbers above 0"), (("--budget", "0"), "--budget"),
                        (("--roles", "critic"), "no role 'critic'"), (("--data", "nowhere"), "nowhere")):
        done = rlinf("profile", "--algo", "grpo", *words)
        assert done.returncode == 2
        assert said in done.stderr
        assert "starting Ray" not in done.stderr
