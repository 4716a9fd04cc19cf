"""What the processes of a run are made with, and given when they are made again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.runs.checkpoints import Checkpoint
from rlinf_cli.runs.preflight import prepare
from rlinf_cli.runs.roles import Roles

INSTALLED = load_plugins(None)
START = Checkpoint(Path("/run/checkpoints/step_000004"), 4)


class Group(SimpleNamespace):
    def ready(self, timeout):
        self.waited = timeout

    def on(self, rank):
        return f"{self.role}[{rank}]"


class Cluster:
    """Notes what is launched."""

    def __init__(self):
        self.devices = [SimpleNamespace(kind="cpu")] * 2
        self.launched, self.restartable, self.stopped = {}, {}, []

    def launch_fused(self, parts, placement, env=None, restartable=False):
        for part in parts:
            self.launched[part.role] = part.kwargs
            self.restartable[part.role] = restartable
        return [Group(role=part.role, methods=set(dir(part.worker)), launched=1) for part in parts]

    def stop(self, group):
        self.stopped.append(group.role)

    def relaunch(self, role, arguments):
        self.launched |= arguments
        return [Group(role=name, methods={"send_weights"}, launched=2) for name in arguments]


@pytest.fixture
def roles():
    def make(*settings, start=None):
        cluster = Cluster()
        made = Roles(prepare(resolve([], ["cluster.devices=cpu:2", *settings], {}, INSTALLED), INSTALLED), cluster)
        made.launch(start)
        made.cluster = cluster
        return made

    return make


def test_what_holds_a_state_gets_the_checkpoint_and_is_not_started_again_by_itself(roles):
    made = roles(start=START)
    assert made.cluster.launched["actor"]["checkpoint"] == str(START.path)
    assert made.cluster.launched["actor"]["step"] == 4
    assert "checkpoint" not in made.cluster.launched["rollout"]
    assert made.cluster.restartable == {"rollout": True, "reward": True, "actor": False}
    assert made.trained == [made.groups["actor"]]
    assert all(group.waited == 300.0 for group in made.groups.values())


def test_roles_that_share_the_processes_of_the_state_are_recovered_with_it(roles):
    made = roles("cluster.fused=true")
    assert made.cluster.restartable["rollout"] is made.cluster.restartable["actor"] is False


@pytest.mark.parametrize(("placement", "streams"), [
    ("temporal", False), ("spatial", True), ("rollout+reward:0-1,actor:1", False)])
def test_samples_are_trained_as_they_come_where_they_are_made_on_other_devices(roles, placement, streams):
    assert roles(f"placement={placement}").cluster.launched["actor"]["stream"] is streams


def test_a_recovery_leaves_the_other_roles_as_they_are(roles):
    made = roles()
    rollout = made.groups["rollout"]
    made.relaunch(START)
    assert made.groups["rollout"] is rollout
    assert made.groups["actor"].launched == 2
    assert made.cluster.launched["actor"]["step"] == 4
    made.relaunch(None)
    assert "checkpoint" not in made.cluster.launched["actor"]


def placed(roles, text):
    return roles(f"placement={text}").placement


@pytest.mark.parametrize(("before", "after", "moved"), [
    ("temporal", "temporal", set()), ("temporal", "spatial", {"rollout", "actor"}),
    ("rollout+reward:0,actor:1", "rollout+reward:0,actor:0-1", {"actor"}),
    ("rollout+reward:0,actor:1", "rollout:0-1,reward:0,actor:1", {"rollout", "actor"})])
def test_another_placement_ends_and_launches_what_it_does_not_leave_as_it_is(roles, before, after, moved):
    """The actor trains samples as they come where they are made on other devices: that is decided when it is launched."""
    made, target = roles(f"placement={before}"), placed(roles, after)
    groups = dict(made.groups)
    made.move(target, START)
    assert set(made.cluster.stopped) == moved
    assert {name for name in groups if made.groups[name] is not groups[name]} == moved
    assert made.placement is target
    if "actor" in moved:
        assert made.cluster.launched["actor"]["step"] == 4


def test_processes_that_are_shared_are_ended_together(roles):
    made = roles("cluster.fused=true")
    made.move(placed(roles, "spatial"), START)
    assert len(made.cluster.stopped) == 1
    assert made.cluster.restartable == {"rollout": True, "reward": True, "actor": False}


@pytest.mark.parametrize(("versions", "said"), [([7], "weights v7"), ([7, -1], "weights v7"), ([-1], "")])
def test_a_new_process_gets_the_weights_that_the_others_have(roles, versions, said):
    made, asked = roles(), []

    def send_weights(targets):
        asked.append(targets)
        return SimpleNamespace(wait=lambda timeout: versions)

    made.groups["actor"].send_weights = send_weights
    assert made.send_weights(made.groups["rollout"], 1) == said
    assert made.send_weights(made.groups["reward"], 0) == ""  # it has none
    assert asked == ["rollout[1]"]


def test_actor_and_critic_go_on_from_the_same_checkpoint(roles):
    made = roles("algorithm.name=ppo", start=START)
    assert [group.role for group in made.trained] == ["critic", "actor"]
    assert made.cluster.launched["critic"] == {"checkpoint": str(START.path), "step": 4}
    assert made.cluster.restartable == {"rollout": True, "reward": True, "critic": False, "actor": False}
    rollout = made.groups["rollout"]
    made.relaunch(None)
    assert [group.launched for group in made.trained] == [2, 2]
    assert made.groups["rollout"] is rollout
    assert "checkpoint" not in made.cluster.launched["critic"]


def test_where_they_share_processes_they_are_launched_again_at_once(roles):
    made = roles("algorithm.name=ppo", "cluster.fused=true")
    asked = []
    relaunch = made.cluster.relaunch
    made.cluster.relaunch = lambda role, arguments: (asked.append((role, sorted(arguments))), relaunch(role, arguments))[1]
    made.relaunch(START)
    assert asked == [("critic", ["actor", "critic"])]
