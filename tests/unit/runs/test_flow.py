"""The bookkeeping of a step, apart from the processes it is about."""

from types import SimpleNamespace

import pytest

from rlinf_cli.flow.timeline import CallTiming
from rlinf_cli.runs.flow import timing_metrics


def call(role, *timings):
    return SimpleNamespace(role=role, timings=lambda: [CallTiming(total, kinds) for total, kinds in timings])


def test_a_step_is_explained_by_its_parts():
    handles = [call("rollout", (1.0, {"wait_data": 0.2})), call("reward", (1.5, {"wait_data": 1.4})),
               call("actor", (3.0, {"wait_data": 1.5})), call("actor", (0.5, {"sync": 0.5}))]
    metrics = timing_metrics(handles, 3.5)
    assert metrics == {"timing/step_s": 3.5, "timing/rollout_s": pytest.approx(0.8), "timing/reward_s": pytest.approx(0.1),
                       "timing/actor_s": pytest.approx(1.5), "timing/sync_s": 0.5, "timing/idle_s": pytest.approx(0.6)}


def test_ranks_are_averaged_and_weights_travel_as_long_as_the_slowest():
    handles = [call("actor", (2.0, {}), (1.0, {})), call("actor", (0.4, {"sync": 0.4}), (0.0, {}))]
    metrics = timing_metrics(handles, 2.0)
    assert metrics["timing/actor_s"] == pytest.approx(1.5)
    assert metrics["timing/sync_s"] == pytest.approx(0.4)


def test_roles_that_overlap_leave_no_negative_idle_time():
    handles = [call("rollout", (1.0, {})), call("reward", (1.0, {}))]
    assert timing_metrics(handles, 1.0)["timing/idle_s"] == 0.0
