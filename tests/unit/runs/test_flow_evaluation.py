"""Evaluations between the steps of a run, apart from the processes that answer."""

from types import SimpleNamespace

import pytest

from rlinf_cli.errors import RunError
from rlinf_cli.flow.errors import ChannelBrokenError
from rlinf_cli.runs.flow import LaunchedFlow, RunFlow
from rlinf_cli.runs.step import StepReport

CONFIG = SimpleNamespace(cluster=SimpleNamespace(call_timeout_s=5.0), log=SimpleNamespace(samples=2), steps=4,
                         rollout=SimpleNamespace(staleness=0, prompts=1, overprovision=0.0))


class Evaluation:
    """Due after even steps; `results` is called with the number of the step that is evaluated, twice."""

    def __init__(self, results):
        self.results = results

    def is_due(self, number):
        return number % 2 == 0


@pytest.fixture
def flow(monkeypatch):
    """`flow(results)`: and what it reported."""

    def make(results):
        reports, phases = [], []
        made = RunFlow(CONFIG, {}, None, 0, 0, reports.append, Evaluation(results), phases.append)
        monkeypatch.setattr(made, "evaluate", lambda evaluation, number: number)
        return made, reports, phases

    return make


def result(number, version, samples=("a", "b", "c")):
    assert version == number
    return [SimpleNamespace(metrics=lambda: {"eval/x/mean@1": number / 10}, samples=list(samples), videos={})]


def test_a_step_is_reported_with_its_evaluation(flow):
    made, reports, phases = flow(result)
    made._evaluated(StepReport(2, {"reward/mean": 0.5}))
    (report,) = reports
    assert report.metrics["eval/x/mean@1"] == 0.2
    assert report.metrics["reward/mean"] == 0.5
    assert report.metrics["timing/eval_s"] >= 0
    assert report.evaluated == ["a", "b"]  # no more than log.samples
    assert phases == ["evaluating"]


def test_where_none_is_due_there_is_none(flow):
    made, reports, phases = flow(result)
    made._evaluated(StepReport(3, {"reward/mean": 0.5}))
    assert reports == [StepReport(3, {"reward/mean": 0.5})]
    assert phases == []


def test_before_the_first_step_only_the_evaluation_is_reported(flow):
    made, reports, _ = flow(result)
    made._evaluated(StepReport(0))
    assert set(reports[0].metrics) == {"eval/x/mean@1", "timing/eval_s"}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RunError("a reward process died")])
def test_a_step_whose_evaluation_fails_is_reported_nevertheless(flow, error):
    def fail(number, version):
        raise error

    made, reports, _ = flow(fail)
    with pytest.raises(type(error)):
        made._evaluated(StepReport(2, {"reward/mean": 0.5}))
    assert reports == [StepReport(2, {"reward/mean": 0.5})]
    with pytest.raises(type(error)):
        made._evaluated(StepReport(0))
    assert len(reports) == 1  # nothing is known before the first step


class TestAnswers:
    """`LaunchedFlow.evaluate`, with channels that are lists."""

    @pytest.fixture
    def launched(self):
        made = LaunchedFlow(CONFIG, {})
        made.settled = 0

        def settle(handles):
            made.settled += 1

        made._settle = settle
        return made

    def evaluation(self, chunks):
        def evaluate(flow, step):
            assert flow.training is False
            step.drop = lambda: None
            return SimpleNamespace(chunks=chunks)

        return SimpleNamespace(workflow=SimpleNamespace(evaluate=evaluate), prompts=list)

    def test_are_gathered_until_the_channel_closes(self, launched):
        groups = launched.evaluate(self.evaluation(lambda n, at_least, timeout: iter([["a"], ["b", "c"]])), 7)
        assert groups == ["a", "b", "c"]
        assert launched.settled == 1
        assert launched._evaluating is launched._issuing is None

    def test_a_broken_channel_raises_what_broke_it(self, launched):
        def chunks(n, at_least, timeout):
            yield ["a"]
            raise ChannelBrokenError("reward[0] died")

        def settle(handles):
            raise RunError("reward[0] on node-0 died (signal 9)")

        launched._settle = settle
        with pytest.raises(RunError, match="signal 9"):
            launched.evaluate(self.evaluation(chunks), 7)
        assert launched._evaluating is not None  # so that `cancel` can end it
