"""Each logger on its own: what one raises is told, and the others go on."""

import json

import pytest

from rlinf_cli.api import ChosenLogger, RunEnd, RunStart, StepEnd
from rlinf_loggers import on_run_end, on_run_start, on_step_end
from rlinf_loggers.trackers import Trackers


class Fake:
    """Notes what it gets; raises in what `fails` names."""

    def __init__(self, run, made, fails=""):
        self.run, self.fails, self.steps, self.status = run, fails, [], None
        self.tracker_id = run.tracker_id or "made-up"
        made.append(self)
        self._fail("open")

    def log(self, step, metrics):
        self._fail("log")
        self.steps.append((step, metrics))

    def close(self, status):
        self._fail("close")
        self.status = status

    def _fail(self, what):
        if self.fails == what:
            raise ConnectionError("no route to\nhost")


@pytest.fixture
def made():
    return []


@pytest.fixture
def start(made, run_directory):
    """A start of loggers, NAME=WHAT_FAILS."""
    said = []

    def call(step=0, **loggers):
        chosen = [ChosenLogger(name, lambda run, fails=fails: Fake(run, made, fails)) for name, fails in loggers.items()]
        return RunStart("run-1", run_directory, {"seed": 1}, step, 9, run_directory, chosen, said.append)
    call.said = said
    return call


METRICS = {"reward/mean": 0.5}


def test_all_get_every_step_and_the_end(start, made):
    trackers = Trackers(start(a="", b=""))
    trackers.log(0, METRICS)
    trackers.log(1, METRICS)
    trackers.close("interrupted")
    assert [(one.steps, one.status) for one in made] == [([(0, METRICS), (1, METRICS)], "interrupted")] * 2
    assert start.said == ["a: made-up", "b: made-up"]


def test_the_next_attempt_knows_identity_and_last_step(start, made, run_directory):
    trackers = Trackers(start(a=""))
    for step in (1, 2, 3):
        trackers.log(step, METRICS)
    Trackers(start(step=2, a="", b=""))
    first, again, new = (one.run for one in made)
    assert (first.tracker_id, first.logged, first.step, first.name, first.config) == ("", -1, 0, "run-1", {"seed": 1})
    assert (again.tracker_id, again.logged, again.step) == ("made-up", 3, 2)
    assert (new.tracker_id, new.logged) == ("", -1)


def test_the_last_step_is_the_highest(start, run_directory):
    trackers = Trackers(start(a=""))
    for step in (3, 1, 2):
        trackers.log(step, METRICS)
    assert json.loads((run_directory / "trackers.json").read_text()) == {"a": {"id": "made-up", "step": 3}}
    assert [path.name for path in run_directory.iterdir()] == ["trackers.json"]


@pytest.mark.parametrize(("fails", "steps"), [("open", []), ("log", []), ("close", [(1, METRICS), (2, METRICS)])])
def test_one_that_fails_is_told_once_and_the_others_go_on(start, made, run_directory, fails, steps):
    trackers = Trackers(start(good="", bad=fails, fine=""))
    trackers.log(1, METRICS)
    trackers.log(2, METRICS)
    trackers.close("finished")
    good, bad, fine = made
    assert good.steps == fine.steps == [(1, METRICS), (2, METRICS)]
    assert (good.status, fine.status, bad.status) == ("finished", "finished", None)
    assert bad.steps == steps
    told = [line for line in start.said if line.startswith("bad gets")]
    assert told == ["bad gets nothing more of this run: ConnectionError: no route to host "
                    f"(traceback: {run_directory}/loggers.log)"]
    assert "raise ConnectionError" in (run_directory / "loggers.log").read_text()


def test_one_that_fails_keeps_what_is_known_of_it(start, run_directory):
    Trackers(start(a="")).log(5, METRICS)
    Trackers(start(a="open")).log(6, METRICS)
    assert json.loads((run_directory / "trackers.json").read_text())["a"] == {"id": "made-up", "step": 5}


class TestHooks:
    def test_open_feed_and_close_the_loggers(self, start, made):
        on_run_start(start(a=""))
        on_step_end(StepEnd(1, METRICS, ()))
        on_run_end(RunEnd("failed", 1, "out of luck"))
        assert [(one.steps, one.status) for one in made] == [([(1, METRICS)], "failed")]
        on_step_end(StepEnd(2, METRICS, ()))
        assert made[0].steps == [(1, METRICS)]

    def test_do_nothing_without_loggers(self, start, run_directory):
        on_run_start(start())
        on_step_end(StepEnd(1, METRICS, ()))
        on_run_end(RunEnd("finished", 1, "finished"))
        assert list(run_directory.iterdir()) == []
