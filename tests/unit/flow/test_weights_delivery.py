"""Who is told of new weights, and what becomes of a publication when some of them die meanwhile."""

import logging
from types import SimpleNamespace

import pytest

from rlinf_cli.flow import weights_delivery
from rlinf_cli.flow.errors import WorkerDiedError, WorkerError
from rlinf_cli.flow.group import Group
from rlinf_cli.flow.weights_delivery import deliver

MANIFEST = SimpleNamespace(version=7)


def death(rank):
    return WorkerDiedError("rollout", rank, "here", "update_weights", "killed")


class Call:
    def __init__(self, answer):
        self._answer = answer

    def failures(self):
        return [self._answer] if isinstance(self._answer, Exception) else []

    def wait(self):
        return [self._answer]


class Engines(Group):
    """A group whose ranks answer what they are told to."""

    def __init__(self, answers, **options):
        super().__init__("rollout", [SimpleNamespace(identity=f"rollout[{rank}]") for rank in range(len(answers))],
                         [None] * len(answers), {}, 10.0, **options)
        self.answers, self.called = answers, []

    def on(self, rank):
        def update_weights(manifest):
            assert manifest is MANIFEST
            self.called.append(rank)
            return Call(self.answers[rank])

        return SimpleNamespace(update_weights=update_weights)


@pytest.fixture(autouse=True)
def limits(monkeypatch):
    """As `gather`: raises the first failure. The time limits that it was given."""
    seen = []

    def gather(calls, limit):
        seen.append(limit)
        for failure in [one for call in calls for one in call.failures()]:
            raise failure

    monkeypatch.setattr(weights_delivery, "gather", gather)
    return seen


def test_all_ranks_are_told_before_any_is_waited_for(limits):
    engines = Engines(["x", "y"])
    assert deliver(engines, MANIFEST, 5.0) == {"rollout[0]": "x", "rollout[1]": "y"}
    assert engines.called == [0, 1]
    assert 0 < limits[0] <= 5


def test_the_dead_are_left_out_and_named(caplog):
    engines = Engines(["x", death(1), "z", death(3)], restartable=True)
    with caplog.at_level(logging.WARNING):
        assert deliver(engines, MANIFEST, 5.0) == {"rollout[0]": "x", "rollout[2]": "z"}
    assert "version 7 goes on without it: rollout[1] on here died" in caplog.text


def test_when_all_are_dead_their_successors_are_left_to_whoever_starts_them():
    assert deliver(Engines([death(0), death(1)], restartable=True), MANIFEST, 5.0) == {}


def test_a_group_that_is_not_started_again_must_live():
    with pytest.raises(WorkerDiedError, match=r"rollout\[1\]"):
        deliver(Engines(["x", death(1)]), MANIFEST, 5.0)


def test_other_failures_are_raised_and_deaths_elsewhere():
    failed = WorkerError("rollout", 0, "here", "update_weights", "it does not fit", "", None, 1)
    with pytest.raises(WorkerError, match="it does not fit"):
        deliver(Engines([failed, "y"], restartable=True), MANIFEST, 5.0)


def test_a_death_that_is_not_one_of_theirs_is_raised(monkeypatch):
    def gather(calls, limit):
        raise WorkerDiedError("actor", 0, "here", "train", "killed")

    monkeypatch.setattr(weights_delivery, "gather", gather)
    with pytest.raises(WorkerDiedError, match="actor"):
        deliver(Engines(["x"], restartable=True), MANIFEST, 5.0)


def test_ranks_that_the_group_goes_on_without_are_not_told():
    engines = Engines(["x", "y", "z"], restartable=True, retired=frozenset({1}))
    assert deliver(engines, MANIFEST, 5.0) == {"rollout[0]": "x", "rollout[2]": "z"}
    assert engines.called == [0, 2]
