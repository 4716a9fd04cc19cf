"""Whether a profile is of what is planned."""

from __future__ import annotations

import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.errors import UsageError
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.runs.conditions import hardware, settings, versions
from rlinf_cli.runs.profiles import read_profile
from rlinf_cli.scheduling import profile_file
from rlinf_cli.scheduling.profile import Profile, RoleProfile

PLUGINS = load_plugins(None)


@pytest.fixture
def read(tmp_path):
    """`read(*arguments, devices, hardware=..., ...)`: a file, of the default configuration with these changes, for a run."""

    def make(*arguments, devices=2, **changes):
        default = settings(resolve([], ["cluster.devices=cpu:2"], {}, PLUGINS))
        fields = {"hardware": hardware("cpu", 2), "versions": versions(), "settings": default} | changes
        path = tmp_path / "mine.json"
        profile_file.save(Profile("reasoning", {"actor": RoleProfile("actor")}, (1,), **fields), path)
        config = resolve([], ["cluster.devices=cpu:2", *arguments], {}, PLUGINS)
        return read_profile(config, [], str(path), devices, config.model.name)

    return make


def test_of_the_same_there_is_nothing_to_say(read):
    assert (read().differences, read().note) == ((), "")


@pytest.mark.parametrize(("arguments", "changes", "words"), [
    (("engine.slots=7",), {}, "engine.slots 128 → 7"), (("algorithm.name=rloo",), {}, "algorithm.name grpo → rloo"),
    ((), {"versions": versions() | {"torch": "1.0"}}, "torch 1.0 → "),
])
def test_a_stale_one_is_refused_with_what_has_changed(read, arguments, changes, words):
    with pytest.raises(UsageError, match=rf"mine\.json is stale: {words}.*rlinf profile"):
        read(*arguments, **changes)


@pytest.mark.parametrize(("arguments", "devices", "changes", "words"), [
    (("rollout.max_new_tokens=9",), 2, {}, "rollout.max_new_tokens 3 → 9"), ((), 16, {}, "hardware: 2 cpu"),
    ((), 2, {"hardware": "8 cuda · Xeon · 2000 GB", "versions": {"torch": "1.0"}}, "torch 1.0 → "),
    ((), 2, {"settings": {}, "versions": {}}, "which settings and versions it was measured with is not known"),
])
def test_what_a_plan_can_ask_for_otherwise_is_called_out(read, arguments, devices, changes, words):
    known = read(*arguments, devices=devices, **changes)
    assert words in known.note
    assert "measured under other conditions" in known.note


def test_devices_that_are_not_there_can_be_planned_for(read):
    assert "hardware: 2 cpu" in read("cluster.devices=cuda:64", devices=64).note
