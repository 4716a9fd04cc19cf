"""The profile that ordinary steps speak for."""

import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.flow.timeline import Call, CallTiming
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.runs.breakdown import Placed, StepTime
from rlinf_cli.runs.conditions import hardware, settings, versions
from rlinf_cli.runs.measuring import StepMeasurements
from rlinf_cli.runs.step import StepReport
from rlinf_cli.scheduling.profile import BatchPoint, DecodePoint
from rlinf_cli.scheduling.profile_file import load, save
from rlinf_cli.workers.engine_share import Usage
from rlinf_cli.workflows.reasoning import Reasoning

INSTALLED = load_plugins(None)
CONFIG = resolve([], ["rollout.prompts=2", "rollout.group_size=2"], {}, INSTALLED)
RANKS = {"rollout": 2, "reward": 1, "actor": 2}


def call(role, rank, total, spans=(), method="train", beside=False):
    return Placed(Call(role, rank, method, CallTiming(0.0, total, tuple(spans)), beside), (rank,))


def report(calls, lengths=(3, 4, 5, 6), usage=(), metrics=(), moves=()):
    made = StepReport(1, count=len(lengths), lengths=list(lengths), time=StepTime(0.0, 5.0, calls, {}),
                      usage={"rollout": list(usage)} if usage else {}, moves=dict(moves))
    made.metrics.update({"timing/idle_s": 0.25, "timing/wait_lock_s": 0.25, **dict(metrics)})
    return made


def measured(*reports):
    steps = StepMeasurements(CONFIG, Reasoning().roles(CONFIG))
    for one in reports:
        steps.add(one, RANKS)
    return steps.profile("2 cpu")


def usage(decoding, mixed=(), read=0):
    return Usage(8, {active: list(entry) for active, entry in decoding.items()}, dict(mixed), read)


def test_a_role_takes_as_long_as_its_slowest_rank_computes():
    found = measured(report([call("actor", 0, 2.0, [(0.0, 0.5, "wait_data")]), call("actor", 1, 1.0), call("reward", 0, 0.3)]))
    assert found.roles["actor"].batches == (BatchPoint(2, 2, 9, 1, 1.5),)
    assert found.roles["reward"].batches == (BatchPoint(1, 4, 18, 0, 0.3),)
    assert found.lengths == (3, 4, 5, 6)
    assert found.step_s == 5.0 - 2.0


def test_between_two_steps_is_what_passes_while_nobody_works():
    calls = [call("rollout", 0, 1.0, [(0.0, 0.2, "wait_lock"), (0.5, 0.9, "wait_data")]), call("actor", 0, 3.0, [
        (0.0, 1.5, "wait_lock"), (2.0, 2.2, "sync"), (2.2, 2.5, "wait_data")])]
    # the engine goes on while its call waits; the actor works from 1.5 to 2.2, and from 2.5 to 3
    assert measured(report(calls, usage=[usage({4: (10, 1.0)})])).step_s == pytest.approx(0.2 + 0.5 + 0.3 + 2.0)


def test_steps_that_share_the_time_tell_nothing_of_what_is_between_them():
    step = report([call("actor", 0, 2.0)])
    step.time = StepTime(1.0, 5.0, step.time.calls, {}, opened=0.5)
    assert measured(step).step_s == 0


def test_calls_beside_the_others_are_none_of_a_role_s_work():
    found = measured(report([call("actor", 0, 1.0), call("actor", 0, 9.0, method="send_weights", beside=True)]))
    assert found.roles["actor"].batches[0].seconds == 1.0


def test_chunks_are_those_that_were_trained_at_once():
    found = measured(report([call("actor", 0, 1.0)], metrics={"actor/chunk": 1.0}))
    assert found.roles["actor"].batches[0].chunks == 2


def test_chunks_of_others_are_those_that_they_tell_of():
    step = report([call("reward", 0, 0.3)])
    step.chunks = {"reward": 3}
    assert measured(step).roles["reward"].batches[0].chunks == 3


def test_new_weights_take_as_long_as_their_sender_is_busy_with_them():
    assert measured(report([call("actor", 0, 2.0, [(1.0, 1.4, "sync")])])).sync_s == pytest.approx(0.4)


def test_moves_are_those_of_the_role_itself_not_of_the_one_that_waits_for_it():
    waits = [call("rollout", 0, 1.0, [(0.0, 0.3, "offload")])]
    steps = [report(waits, moves={("actor", "offload"): seconds, ("actor", "onload"): 0.1}) for seconds in (0.2, 0.3, 0.9)]
    roles = measured(*steps).roles
    assert (roles["actor"].onload_s, roles["actor"].offload_s) == (0.1, 0.3)
    assert (roles["rollout"].onload_s, roles["rollout"].offload_s) == (0.0, 0.0)


def test_short_responses_have_few_decode_steps_of_each_number_and_are_taken_together():
    steps = [report([], usage=[usage({60: (4, 0.4), 50: (2, 0.2), 48: (2, 0.2), 2: (7, 0.7)}), usage({60: (4, 0.8)})])]
    found = measured(*steps).roles["rollout"]
    assert [(point.replicas, point.active) for point in found.decoding] == [(2, 56)]
    assert found.decoding[0].step_s == pytest.approx(1.6 / 12)


def test_decode_steps_by_active_responses_of_all_engines():
    steps = [report([], usage=[usage({4: (10, 1.0), 1: (2, 0.1)}), usage({4: (30, 3.4)})])]
    found = measured(*steps).roles["rollout"]
    assert found.decoding == (DecodePoint(2, 4, 4.4 / 40),)  # of 1 there were too few
    assert found.slots == 8


def test_reading_prompts_is_what_steps_take_longer_in_which_some_were_read():
    found = measured(report([], usage=[usage({4: (10, 1.0)}, {4: [10, 1.8]}, read=30)]))
    assert found.roles["rollout"].prefill_s == pytest.approx(0.2)


def test_who_takes_turns_on_devices():
    roles = measured(report([])).roles
    assert {name: role.needs_device for name, role in roles.items()} == {"rollout": True, "reward": False, "actor": True}


def test_it_is_a_profile_that_can_be_kept(tmp_path):
    found = measured(report([call("actor", 0, 1.0)]))
    save(found, tmp_path / "profile.json")
    assert load(tmp_path / "profile.json") == found
    assert found.settings == settings(CONFIG)


def test_what_the_numbers_depend_on():
    assert settings(CONFIG)["rollout.group_size"] == "2"
    assert not [key for key in settings(CONFIG) if key.startswith(("log.", "seed", "steps"))]
    assert set(versions()) >= {"python", "torch", "rlinf-cli"}
    assert hardware("cpu", 2).startswith("2 cpu · ")
