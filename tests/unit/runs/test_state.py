from __future__ import annotations

import json

import pytest

from rlinf_cli.runs.state import RunState


def test_a_state_is_what_was_saved():
    state = RunState(7, 1000, 56, 9, 8, "digest", {"reward/mean": 0.5, "actor/kl": None})
    saved = json.loads(json.dumps(state.to_json()))
    assert RunState.of(saved) == state
    assert RunState.of(saved | {"of_a_plugin": 1}) == state


@pytest.mark.parametrize(("prompts", "batches"), [(8, 5), (4, 10), (16, 3), (40, 1), (41, 1), (1, 40), (7, 6)])
def test_other_batches_go_on_behind_what_was_taken(prompts, batches):
    state = RunState(step=5, batches=5, prompts=8)
    assert state.batches_of(prompts) == batches
    assert 40 <= batches * prompts < 40 + prompts


def test_a_run_that_has_not_begun_has_taken_nothing():
    assert RunState().batches_of(16) == 0
