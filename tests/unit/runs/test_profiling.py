"""A measurement before it starts, and what becomes of what it came to."""

import json
from dataclasses import replace

import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.errors import UsageError
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.runs.profiling import Batches, Wanted, keep, open_profile, stored_as
from rlinf_cli.scheduling.profile import Profile
from rlinf_cli.scheduling.profile_file import load
from rlinf_cli.workers.generation import doubling

INSTALLED = load_plugins(None)
PROFILE = Profile("reasoning", {}, hardware="2 cpu", versions={"torch": "2"}, settings={"rollout.max_new_tokens": "64"})


@pytest.fixture(autouse=True)
def _cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def config(*settings):
    return resolve([], ["cluster.devices=cpu:2", "rollout.prompts=10", *settings], {}, INSTALLED)


@pytest.mark.parametrize(("devices", "expected"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_numbers_of_devices(devices, expected):
    assert doubling(devices) == expected


@pytest.mark.parametrize(("settings", "asked", "batches"), [
    ((), (), [2, 5, 10]), (("rollout.prompts=1",), (), [1]), ((), (12, 3, 3), [3, 12])])
def test_sizes_of_batches(settings, asked, batches):
    session = open_profile(config(*settings), Wanted(asked), INSTALLED)
    assert session.batches == batches
    assert session.prepared.config.rollout.prompts == batches[-1]


def test_steps_are_measured_alone():
    """Whatever the run itself would do beside them, or at once."""
    session = open_profile(config("rollout.staleness=2", "placement=spatial", "cluster.fused=true", "eval.every=1",
                                  "checkpoint.every=1", "log.loggers=[tensorboard]"), Wanted(), INSTALLED)
    measured = session.prepared.config
    assert (measured.rollout.staleness, measured.placement, measured.cluster.fused) == (0, "temporal", False)
    assert (measured.eval.every, measured.checkpoint.every, measured.log.loggers) == (0, 0, [])
    assert session.prepared.evaluation is None


def test_a_role_that_there_is_not():
    said = "--roles: the workflow has no role 'actr'; did you mean 'actor'; it has rollout, reward, actor"
    with pytest.raises(UsageError, match=said):
        open_profile(config(), Wanted(roles=("actr",)), INSTALLED)


def test_batches_of_several_sizes_from_one_stream():
    session = open_profile(config(), Wanted(), INSTALLED)
    stream = Batches(session.prepared.stream, [10, 2, 5, 2], session.prepared.config)
    batches = [stream.batch(number) for number in range(4)]
    assert [len(batch) for batch in batches] == [10, 2, 5, 2]
    assert batches[0] == session.prepared.stream.batch(0)
    assert len({item.id for batch in batches for item in batch}) == 19


def test_a_profile_lies_where_its_configuration_says(tmp_path):
    path = stored_as(PROFILE)
    assert path.parent == tmp_path / "cache/rlinf/profiles"
    assert stored_as(replace(PROFILE, made="later", lengths=(3,))) == path
    for other in (replace(PROFILE, hardware="4 cpu"), replace(PROFILE, versions={"torch": "3"}), replace(PROFILE, settings={})):
        assert stored_as(other) != path


def test_what_is_kept(tmp_path):
    assert load(keep(PROFILE, None, is_whole=True)) == PROFILE
    assert keep(PROFILE, tmp_path / "mine.json", is_whole=False) == tmp_path / "mine.json"
    assert json.loads((tmp_path / "mine.json").read_text())["hardware"] == "2 cpu"
    assert keep(PROFILE, None, is_whole=False) is None
