"""What is written of each step, and what of it stays when a run goes back."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace

import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.runs.directory import RunDirectory
from rlinf_cli.runs.metrics import read_metrics
from rlinf_cli.runs.progress import PlainProgress
from rlinf_cli.runs.record import DIAGNOSED_AFTER, Record
from rlinf_cli.runs.samples import read_samples
from rlinf_cli.runs.state import RunState
from rlinf_cli.runs.step import StepReport

INSTALLED = load_plugins(None)


@pytest.fixture
def directory(tmp_path):
    made = RunDirectory.create(tmp_path, "a", False, "", {})
    made.close()
    return made


@pytest.fixture
def record(directory):
    """`record(start, **more)`: `told` has the steps that plugins were told of."""

    def make(start=None, **more):
        told = []
        lifecycle = SimpleNamespace(step=lambda context: told.append(context.step))
        config = resolve([], ["steps=9"], {}, INSTALLED)
        made = Record(config, directory, PlainProgress(9, StringIO()), lifecycle, 8, start or RunState(), **more)
        made.told = told
        return made

    return make


def write(record, numbers, evaluates=False):
    with record.open({}, evaluates):
        for number in numbers:
            record.step(StepReport(number, {"reward/mean": number / 10, "actor/kl": float("nan")}, tokens=10, count=2,
                                   batches=2 * number))


def test_counters_go_on_from_the_start_and_the_state_is_that_of_the_last_step(record):
    made = record(RunState(2, 100, 10, 3, 6, "digest"))
    assert (made.report.number, made.report.batches) == (2, 3)  # three batches of 6 prompts are at most three of 8
    write(made, [3])
    assert made.report.metrics["progress/tokens"] == 110.0
    assert made.report.metrics["progress/samples"] == 12.0
    metrics = {"reward/mean": 0.3, "actor/kl": None, "progress/tokens": 110.0, "progress/samples": 12.0}
    assert made.state(3, "digest") == RunState(3, 110, 12, 6, 8, "digest", metrics)
    assert made.state(4, "digest").metrics == {}  # of a step that was not reported nothing is known


def test_a_run_that_goes_back_writes_no_step_twice_and_tells_plugins_once(record, directory, sample):
    made = record()
    write(made, [1, 2, 3, 4])
    made.rewind(RunState(2, 20, 4, 4, 8))
    write(made, [3, 4, 5])
    rows = read_metrics(directory.metrics)
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["progress/tokens"] for row in rows] == [10, 20, 30, 40, 50]
    assert made.told == [1, 2, 3, 4, 5]


def test_samples_of_steps_that_are_trained_again_are_written_once(record, directory, sample):
    made = record()
    for numbers, start in (([1, 2, 3], RunState()), ([2, 3], RunState(1))):
        made.rewind(start)
        with made.open({}, False):
            for number in numbers:
                made.step(StepReport(number, {"reward/mean": 0.5}, [sample(id=f"0-{number}/0")]))
    assert [(line["step"], line["id"]) for line in read_samples(directory.samples)] == [
        (1, "0-1/0"), (2, "0-2/0"), (3, "0-3/0")]


def test_metrics_that_are_not_of_the_step_alone(record, directory):
    restarts = iter([{}, {"progress/restarts": 1.0}])
    write(record(more=lambda: next(restarts)), [1, 2])
    assert ["progress/restarts" in row for row in read_metrics(directory.metrics)] == [False, True]


@pytest.mark.parametrize("before", [False, True])
def test_evaluated_samples_have_a_file_where_there_are_some(record, directory, before):
    if before:
        directory.eval_samples.write_text("")
    write(record(), [1])
    assert directory.eval_samples.exists() == before
    write(record(RunState(1)), [2], evaluates=True)
    assert directory.eval_samples.exists()


def test_a_run_that_learns_nothing_is_told_so(record):
    made = record()
    with made.open({}, False):
        for number in range(1, DIAGNOSED_AFTER + 1):
            assert made.warning == ""
            made.step(StepReport(number, {"reward/mean": 0.0, "reward/min": 0.0, "reward/max": 0.0}))
    assert "every reward so far is 0" in made.warning
    assert made._progress._stream.getvalue().count("warning") == 1
