"""Steps that overlap, on real processes whose work is to sleep: who is trained, how old it is, where the time went."""

from __future__ import annotations

import time
from itertools import pairwise
from types import SimpleNamespace

import pytest

from rlinf_cli.flow.errors import WorkerError
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.flow.worker import Worker, concurrent, control
from rlinf_cli.runs.flow import RunFlow
from rlinf_cli.workers.result import TrainResult

pytestmark = pytest.mark.integration

PROMPTS = 4
QUICK_S, SLOW_S = 0.004, 0.04


class Maker(Worker):
    """Answers slow prompts (every second one) in ten times the time of the others; a sample is (prompt, oldest version)."""

    def __init__(self):
        self.version = 0

    @concurrent
    def generate(self, prompts: In[object], samples: Out[object]) -> None:
        for prompt in prompts:
            version = self.version
            time.sleep(SLOW_S if is_slow(prompt.id) else QUICK_S)
            samples.put((prompt.id, version))

    @control
    def update_weights(self, version: int) -> None:
        self.version = version


class Learner(Worker):
    def __init__(self, fails_in: int = -1):
        self.version, self.fails_in = 0, fails_in

    def train(self, samples: In[object]) -> TrainResult:
        if self.version + 1 == self.fails_in:
            raise ValueError("numbers are not finite")
        found = list(samples)
        ages = [self.version - version for _, version in found]
        self.version += 1
        time.sleep(0.03)
        return TrainResult({"rollout/staleness/max": float(max(ages))}, sorted(one for one, _ in found), 1, len(found))

    def publish(self, maker) -> None:
        maker.update_weights(self.version).wait()


def is_slow(name):
    return int(name.partition("-")[2]) % 2 == 1


class Workflow:
    def run(self, flow):
        maker, learner = flow.groups("maker", "learner")
        for step in flow.steps():
            prompts, samples = step.channels("prompts", "samples")
            step.feed(prompts)
            maker.generate(prompts, samples)
            learner.train(samples)
            learner.publish(maker)

    def evaluate(self, flow, step):
        (maker,) = flow.groups("maker")
        prompts, samples = step.channels("prompts", "samples")
        step.feed(prompts)
        maker.generate(prompts, samples)
        return samples


class Evaluation:
    """After every third step; `versions` has those that answered."""

    workflow = Workflow()

    def __init__(self):
        self.versions = []

    def is_due(self, number):
        return number > 0 and number % 3 == 0

    def prompts(self):
        return [SimpleNamespace(id=f"eval-{row}") for row in range(6)]

    def results(self, groups, version):
        assert len(groups) == 6
        self.versions.append((version, {made for _, made in groups}))
        return []


class Stream:
    def batch(self, number):
        row = SimpleNamespace(text="", messages=None, answer=None, columns={}, target=None)
        return [SimpleNamespace(id=f"0-{number * PROMPTS + place}", row=row) for place in range(PROMPTS)]

    def epoch(self, batches):
        return 0.0


@pytest.fixture
def go(launch):
    """`go(staleness, steps)`: the reports of a run."""
    lives = iter(range(1000, 2000))

    def run(staleness, steps, evaluation=None, **learner):
        rollout = SimpleNamespace(staleness=staleness, prompts=PROMPTS, group_size=1, overprovision=0.0)
        config = SimpleNamespace(steps=steps, cluster=SimpleNamespace(call_timeout_s=60.0), rollout=rollout,
                                 log=SimpleNamespace(samples=9))
        groups = {"maker": launch(Maker, role="maker"), "learner": launch(Learner, role="learner", **learner)}
        for group in groups.values():
            group.ready()
        reports = []
        flow = RunFlow(config, groups, Stream(), 0, 0, reports.append, evaluation, life=next(lives))
        try:
            Workflow().run(flow)
        except BaseException as error:
            flow.cancel(str(error), 10.0)
            raise
        return reports

    return run


def check(reports, steps, staleness):
    """Every step has trained its own prompts, none too old; the times are those of the run, and each is explained."""
    assert [report.number for report in reports] == list(range(1, steps + 1))
    for index, report in enumerate(reports):
        assert report.samples == sorted(f"0-{row}" for row in range(index * PROMPTS, (index + 1) * PROMPTS))
        assert report.metrics["rollout/staleness/max"] <= min(staleness, index)
        spent = report.time
        for states in spent.devices.values():
            assert sum(states.values()) == pytest.approx(spent.seconds, rel=1e-9)
    for before, after in pairwise(reports):
        gap = after.time.began - (before.evaluation[1] if before.evaluation else before.time.ended)
        assert gap == 0.0 or after.time.opened == after.time.began


def test_slow_prompts_keep_their_share_and_no_sample_is_too_old(go):
    """Scenario S2: half of the prompts are ten times slower, S=1."""
    reports = go(1, 6)
    check(reports, 6, 1)
    trained = [name for report in reports for name in report.samples]
    assert sum(map(is_slow, trained)) / len(trained) >= 0.45
    assert any(report.time.opened < report.time.began for report in reports)  # they did overlap
    assert max(report.metrics["rollout/staleness/max"] for report in reports) == 1
    drawn = [(placed.call.role, placed.call.method) for report in reports for placed in report.time.calls]
    for call in (("maker", "generate"), ("maker", "update_weights"), ("learner", "train"), ("learner", "publish")):
        assert drawn.count(call) == 6, call
    # what is called idle is the time in which no call was under way, whatever step it was of (scenario C2)
    busy = union((placed.call.timing.began, placed.call.timing.began + placed.call.timing.total)
                 for report in reports for placed in report.time.calls)
    idle = sum(report.time.devices[0]["idle"] for report in reports)
    assert busy + idle == pytest.approx(sum(report.time.seconds for report in reports), abs=0.002)


def union(intervals):
    """Seconds that are covered."""
    covered, last = 0.0, float("-inf")
    for began, ended in sorted(intervals):
        covered += max(0.0, ended - max(began, last))
        last = max(last, ended)
    return covered


def test_an_evaluation_in_the_middle_has_one_version_and_loses_no_step(go):
    """Scenario S3."""
    evaluation = Evaluation()
    reports = go(2, 6, evaluation)
    check(reports, 6, 2)
    assert evaluation.versions == [(3, {3}), (6, {6})]
    assert [report.number for report in reports if report.evaluation is not None] == [3, 6]


def test_a_failure_in_a_later_step_is_raised_while_an_earlier_one_is_waited_for(go):
    with pytest.raises(WorkerError, match="numbers are not finite"):
        go(3, 6, fails_in=2)
