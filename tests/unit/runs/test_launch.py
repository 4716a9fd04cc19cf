"""What a run says and saves at its end, apart from the processes that train."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.runs.checkpoints import Checkpoints
from rlinf_cli.runs.directory import RunDirectory
from rlinf_cli.runs.flow import RunFlow, StepReport
from rlinf_cli.runs.launch import Stopped, TrainRun
from rlinf_cli.runs.preflight import prepare
from rlinf_cli.runs.progress import PlainProgress
from rlinf_cli.runs.state import RunState

INSTALLED = load_plugins(None)


class EndsEarly:
    """A workflow that does two steps, whatever the run asks for."""

    def run(self, flow):
        steps = flow.steps()
        for _ in range(2):
            next(steps)


@pytest.fixture
def prepared():
    config = resolve([], ["steps=5", "cluster.devices=cpu:1"], {}, INSTALLED)
    return replace(prepare(config, INSTALLED), workflow=EndsEarly())


@pytest.fixture
def begin(tmp_path, prepared):
    """An attempt at the run, with a checkpoint to go on from."""
    directory = RunDirectory.create(tmp_path, "a", False, prepared.config.to_yaml(), {})
    with Checkpoints(directory.checkpoints).write(2, RunState(2, 100, 10, 3, 8, "digest").to_json()):
        pass
    directory.close()

    def attempt(resume=True):
        found = Checkpoints(directory.checkpoints).latest() if resume else None
        return TrainRun(prepared, directory, tmp_path, found, PlainProgress(5, StringIO()))

    return attempt


def test_a_run_that_ends_before_its_steps_has_failed(begin, prepared):
    run = begin(resume=False)
    flow = RunFlow(prepared.config, {}, prepared.stream, 0, 0, lambda report: setattr(run, "_report", report))
    said = r"^the workflow ended after step 1 of 5\. Stopped before the first step was saved"
    with pytest.raises(Stopped, match=said) as caught:
        run._train(flow)
    assert caught.value.exit_code == 1


def test_counters_go_on_from_the_checkpoint(begin, prepared):
    run = begin()
    prompts = prepared.config.rollout.prompts
    assert run._report.number == 2
    assert run._report.batches == -(-3 * 8 // prompts)
    assert run._totals.add(StepReport(3, tokens=11, count=2)) == {"progress/tokens": 111.0, "progress/samples": 12.0}


def test_a_checkpoint_knows_where_the_run_stands_and_how_good_it_is(begin, prepared):
    run = begin(resume=False)
    run._report = StepReport(4, {"reward/mean": 0.5, "actor/kl": float("nan")}, batches=6)
    run._totals.add(StepReport(4, tokens=11, count=2))
    state = run._state(4)
    assert state == RunState(4, 11, 2, 6, prepared.config.rollout.prompts, prepared.fingerprint,
                             {"reward/mean": 0.5, "actor/kl": None})
    assert run._state(5).metrics == {}
