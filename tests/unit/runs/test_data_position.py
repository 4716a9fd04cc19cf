"""A run that is stopped after any step and resumed sees the same samples as one that is not."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.flow.errors import CallTimeoutError
from rlinf_cli.flow.timeline import Switch
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.runs.flow import RunFlow
from rlinf_cli.runs.preflight import prepare
from rlinf_cli.runs.state import RunState
from rlinf_cli.workers.result import TrainResult

INSTALLED = load_plugins(None)

STEPS = 10


@pytest.fixture
def prepared(tmp_path):
    """A run of ten steps on a file of so many rows."""
    def make(rows, prompts, *arguments):
        (tmp_path / "data.jsonl").write_text("".join(json.dumps({"prompt": f"d{row}=", "answer": str(row)}) + "\n"
                                                     for row in range(rows)))
        return prepare(resolve([], [f"data.name={tmp_path / 'data.jsonl'}", f"rollout.prompts={prompts}", f"steps={STEPS}",
                                    "cluster.devices=cpu:1", *arguments], {}, INSTALLED), INSTALLED)

    return make


class Fed:
    """Takes what a step feeds, as a channel would."""

    def __init__(self):
        self.ids = []

    def put_many(self, prompts):
        self.ids += [prompt.id for prompt in prompts]

    def close(self):
        pass


def once(step):
    return 1


def uneven(step):
    """A step that fills itself generates for more than one batch of prompts."""
    return 1 + step % 3


def go(prepared, state, rounds=once):
    """The ids that each step from `state` on is fed, and the state after each."""
    states, ids = [], []
    flow = RunFlow(prepared.config, {}, prepared.stream, state.step, state.batches_of(prepared.config.rollout.prompts),
                   lambda report: states.append(RunState(report.number, batches=report.batches,
                                                         prompts=prepared.config.rollout.prompts)))
    for step in flow.steps():
        fed = Fed()
        for _ in range(rounds(step.index)):
            step.feed(fed)
        ids.append(fed.ids)
    return ids, [RunState.of(json.loads(json.dumps(state.to_json()))) for state in states]


@pytest.mark.parametrize("rounds", [once, uneven])
@pytest.mark.parametrize(("rows", "prompts"), [(20, 4), (7, 3), (3, 4), (1, 2), (1000, 4)])
@pytest.mark.parametrize("shuffle", [True, False])
def test_a_stop_after_any_step_changes_no_sample(prepared, rows, prompts, rounds, shuffle):
    arguments = (rows, prompts, f"data.shuffle={str(shuffle).lower()}")
    whole, states = go(prepared(*arguments), RunState(), rounds)
    assert [state.step for state in states] == list(range(1, STEPS + 1))
    assert len(whole) == STEPS
    for state in states[:-1]:
        rest, _ = go(prepared(*arguments), state, rounds)
        assert whole[: state.step] + rest == whole


def test_two_epochs_of_five_steps_hold_every_row_twice(prepared):
    whole, states = go(prepared(20, 4), RunState())
    for half, epoch in ((whole[:5], "0"), (whole[5:], "1")):
        ids = [one for step in half for one in step]
        assert sorted(ids) == sorted(f"{epoch}-{row}" for row in range(20))
    assert [one.partition("-")[2] for one in whole[0]] != [one.partition("-")[2] for one in whole[5]]
    assert states[4].batches == 5


def test_a_generator_goes_on_where_it_was(prepared):
    arguments = (1, 4, "data.name=digits")
    whole, states = go(prepared(*arguments), RunState(), uneven)
    ids = [one for step in whole for one in step]
    assert len(set(ids)) == len(ids)
    for state in states[:-1]:
        assert whole[: state.step] + go(prepared(*arguments), state, uneven)[0] == whole


def test_several_data_sets_go_on_where_they_were(prepared, tmp_path):
    (tmp_path / "more.jsonl").write_text("".join(json.dumps({"prompt": f"d{row}=", "answer": "1"}) + "\n" for row in range(9)))
    arguments = (20, 4, f"data.name={tmp_path / 'data.jsonl'} + 0.3*{tmp_path / 'more.jsonl'}")
    whole, states = go(prepared(*arguments), RunState(), uneven)
    assert {one.partition(".")[0] for step in whole for one in step} == {"0", "1"}
    for state in states[:-1]:
        assert whole[: state.step] + go(prepared(*arguments), state, uneven)[0] == whole


def test_more_prompts_a_step_begin_behind_what_was_taken(prepared):
    _, states = go(prepared(1000, 4, "data.shuffle=false"), RunState())
    ids, _ = go(prepared(1000, 6, "data.shuffle=false"), states[4])
    assert ids[0] == [f"0-{row}" for row in range(24, 30)]


class LateCall:
    """A call that has not ended when an interrupt looks at it, and has when it is saved."""

    role, method, ended, ranks, group = "actor", "train", False, (), SimpleNamespace(present=())

    def done(self):
        return self.ended

    def succeeded(self):
        return self.ended

    def wait(self, timeout=None):
        if not self.ended:
            raise CallTimeoutError("not ended")
        return [TrainResult(metrics={"reward/mean": 0.5}, tokens=70, count=7)]

    def calls(self):
        return []

    def peak_memory(self):
        return [2_000_000_000, 1_000_000_000]

    def switches(self):
        return [(Switch("offload", 500_000_000, 0.1), Switch("onload", 500_000_000, 0.1)), (Switch("offload", 250_000_000, 0.1),)]


def test_a_step_whose_training_outlasts_an_interrupt_counts_with_its_prompts(prepared):
    made, reports = prepared(20, 4), []
    flow = RunFlow(made.config, {}, made.stream, 0, 0, reports.append)
    step = next(flow.steps())
    step.feed(Fed())
    late = LateCall()
    step.handles.append(late)
    flow.cancel("interrupted", 0.01)
    assert reports == []
    late.ended = True
    flow.catch_up()
    flow.catch_up()
    (report,) = reports
    assert (report.number, report.batches, report.count, report.tokens) == (1, 1, 7, 70)
    assert report.metrics["memory/peak_gb"] == 2.0
    assert report.metrics["memory/offloaded_gb"] == 0.75
    assert report.metrics["rollout/samples"] == 4 * made.config.rollout.group_size
