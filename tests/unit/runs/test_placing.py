"""What a run begins with: a placement that is named, the best by a profile that fits, or all in turn."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.errors import CapacityError, UsageError
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.runs.conditions import hardware, settings, versions
from rlinf_cli.runs.placing import begin
from rlinf_cli.scheduling import profile_file
from rlinf_cli.scheduling.profile import BatchPoint, DecodePoint, MemoryPoint, Profile, RoleProfile
from rlinf_cli.workflows.reasoning import Reasoning
from rlinf_cli.workflows.supervised import Supervised

PLUGINS = load_plugins(None)
IN_TURN = {"rollout": ((0,), (1,)), "reward": ((0,),), "actor": ((0,), (1,))}
APART = {"rollout": ((0,),), "reward": ((0,),), "actor": ((1,),)}
MEASURES = "the first 5 steps are measured as they are trained"


def config_of(*arguments):
    return resolve([], ["rollout.prompts=8", "rollout.group_size=4", *arguments], {}, PLUGINS)


def profile_of(config, **changes):
    """One by which devices apart are best: to change hands takes long."""
    points = tuple(BatchPoint(ranks, size, 100 * size, 1, 0.001 + 0.01 * size) for ranks in (1, 2) for size in (4, 8, 16))
    roles = {"rollout": RoleProfile("rollout", (), (DecodePoint(1, 1, 0.01), DecodePoint(1, 32, 0.02)), 32, onload_s=9),
             "reward": RoleProfile("reward", points[:1], needs_device=False), "actor": RoleProfile("actor", points, onload_s=9)}
    fields = {"hardware": hardware("cpu", 2), "versions": versions(), "settings": settings(config),
              "made": "2026-11-30T10:15:00+00:00"}
    return Profile(**({"workflow": "reasoning", "roles": roles, "lengths": (10, 20, 200, 20), "group": 4} | fields | changes))


@pytest.fixture
def beginning(tmp_path, monkeypatch):
    """`beginning(*arguments, stored, own)` on two CPU slots; `stored`: changes of a stored profile, `own`: of the run's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def make(*arguments, stored=None, own=None, roles=None, devices=2):
        config = config_of(*arguments)
        for changes, path in ((stored, profile_file.directory() / "one.json"), (own, tmp_path / "own.json")):
            if changes is not None:
                profile_file.save(profile_of(config, **changes), path)
        return begin(config, roles or Reasoning().roles(config), devices, "cpu", tmp_path / "own.json")

    return make


def test_without_a_profile_it_begins_in_turn_and_measures(beginning):
    found = beginning()
    assert dict(found.placement) == IN_TURN
    assert (found.adapts, found.profile, found.why) == (True, None, f"no profile yet: {MEASURES}")
    assert found.line == f"temporal: rollout, reward, actor share cpu:0-1   (no profile yet: {MEASURES})"


def test_with_a_profile_that_fits_it_begins_with_the_best(beginning):
    found = beginning(stored={})
    assert dict(found.placement) == APART
    assert found.adapts
    assert found.profile.lengths == (10, 20, 200, 20)
    assert found.why.startswith("by the profile of 2026-11-30 10:15: predicted ")
    assert ", temporal " in found.why


def test_what_has_changed_since_is_said_in_the_line(beginning):
    found = beginning(stored={"hardware": "4 cpu", "versions": versions() | {"torch": "1.0"}})
    assert dict(found.placement) == IN_TURN
    assert found.why == (f"no profile fits, hardware: 4 cpu → {hardware('cpu', 2)}, torch 1.0 → {versions()['torch']}: "
                         f"{MEASURES}")


def test_a_run_that_goes_on_knows_what_it_has_measured(beginning):
    found = beginning(stored={"lengths": (1, 1, 1, 1)}, own={})
    assert dict(found.placement) == APART
    assert found.profile.lengths == (10, 20, 200, 20)
    assert found.why.startswith("by this run's own profile: predicted ")
    assert beginning(own={"hardware": "4 cpu"}, stored={}).why.startswith("by the profile of ")


def test_a_profile_that_lacks_a_role_is_no_reason_not_to_begin(beginning):
    found = beginning("algorithm.kl_coef=0.1", stored={})
    assert found.placement.mode == "temporal"
    assert "the profile has no role 'reference'" in found.why
    assert found.why.endswith(MEASURES)


@pytest.mark.parametrize("arguments", [("deterministic=true",), ("cluster.fused=true",), ("placement=temporal",)])
def test_where_nothing_is_to_be_chosen_nothing_is_said(beginning, arguments):
    found = beginning(*arguments, stored={})
    assert dict(found.placement) == IN_TURN
    assert (found.adapts, found.why) == (False, "")


def test_one_device_leaves_no_choice(beginning):
    assert not beginning(devices=1).adapts


@pytest.mark.parametrize("every", [0, 5])
def test_supervised_training_has_one_role_that_computes(beginning, every):
    arguments = ("algorithm.name=sft", "workflow=supervised", f"eval.every={every}")
    found = beginning(*arguments, roles=Supervised().roles(config_of(*arguments)))
    assert (found.adapts, found.why) == (False, "")


# ---- plan files and the profile that they name ----


@pytest.fixture
def planned(beginning, tmp_path):
    """`planned(tree, profile, *arguments)`: begin with a plan file that names a profile, with changes."""

    def make(tree, profile="mine.json", *arguments, **changes):
        config = config_of(*arguments)
        if profile == "mine.json":
            profile_file.save(profile_of(config, **changes), tmp_path / profile)
        (tmp_path / "plan.yaml").write_text(f"tree: {tree}\nprofile: {profile}\n")
        return beginning("placement=plan.yaml", *arguments)

    return make


def heavy(**changes):
    roles = profile_of(config_of()).roles
    roles = roles | {"actor": replace(roles["actor"], memory=(MemoryPoint(1, 8e9, 0),))}
    return {"roles": roles, "device_memory": 4e9} | changes


def test_a_plan_is_checked_for_memory_by_the_profile_that_it_names(planned):
    with pytest.raises(CapacityError, match=r"plan\.yaml:1: actor needs 8\.0 GB on each of devices 1-1.*have 4\.0 GB"):
        planned("rollout 1 | actor 1", **heavy())
    found = planned("rollout 1 | actor 1", **heavy(device_memory=9e9))
    assert dict(found.placement) == APART
    assert (found.notes, found.adapts) == ((), False)


@pytest.mark.parametrize(("profile", "changes", "note"), [
    ("gone.json", {}, "plan.yaml was made with gone.json, which is not there: its memory is not checked"),
    ("analytic:h100", {}, "plan.yaml was made with analytic:h100, which says nothing of this run (there is no analytic profile"),
    ("mine.json", heavy(versions={"torch": "1.0"}), "plan.yaml was made with mine.json, and this has changed since: torch 1.0 →"),
    ("mine.json", {"hardware": "2 cpu · Z80 · 1 GB"}, "mine.json was measured under other conditions: hardware: 2 cpu · Z80"),
])  # fmt: skip
def test_what_holds_no_more_is_noted(planned, profile, changes, note):
    found = planned("rollout 1 | actor 1", profile, **changes)
    assert dict(found.placement) == APART
    assert found.notes[0].startswith(note)


def test_a_damaged_profile_is_refused_with_the_reason(planned, tmp_path):
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(UsageError, match=r"bad\.json is no profile that can be used: it is no JSON"):
        planned("rollout 1 | actor 1", "bad.json")
