"""What is seen of the steps of a measurement, whose processes are played."""

from types import SimpleNamespace

import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.flow.timeline import Call, CallTiming, Switch
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.runs import profiling_steps
from rlinf_cli.runs.breakdown import Placed, StepTime
from rlinf_cli.runs.profiling_steps import Observed
from rlinf_cli.runs.step import StepReport
from rlinf_cli.scheduling.graph import Called, Flowed
from rlinf_cli.scheduling.profile import BatchPoint, DecodePoint, MemoryPoint
from rlinf_cli.workers.engine_share import Usage
from rlinf_cli.workflows.base import Role

CONFIG = resolve([], ["rollout.prompts=2", "rollout.group_size=2"], {}, load_plugins(None))
ROLES = [Role("environment", "rlinf_cli.workers.reward:RewardWorker"), Role("rollout", "rlinf_cli.workers.rollout:RolloutWorker"),
         Role("actor", "rlinf_cli.workers.actor:ActorWorker", stateful=True)]
RANKS = {"environment": 1, "rollout": 2, "actor": 2}
CHAIN = [Called("environment", "reset", (), ("tasks",)), Called("rollout", "generate", ("tasks",), ("samples",)),
         Called("actor", "train", ("samples",)), Called("actor", "publish_weights", groups=("rollout",))]
CIRCLE = [Called("environment", "interact", ("actions",), ("seen",)), Called("rollout", "act", ("seen",), ("actions", "samples")),
          Called("actor", "train", ("samples",))]


def usage(decoding, mixed=()):
    return Usage(8, {active: list(entry) for active, entry in decoding.items()}, dict(mixed))


def handle(role, memory=(), switches=(), device=None):
    group = SimpleNamespace(seats=[SimpleNamespace(kind="cpu" if device is None else "cuda")])
    return SimpleNamespace(role=role, group=group, peak_memory=lambda: list(memory), switches=lambda: [tuple(switches)],
                           device_memory=lambda: list(device or ()))


def step(calls=(), handles=(), flowed=()):
    return SimpleNamespace(handles=list(handles), calls=lambda: list(calls), flowed=lambda: dict(flowed))


def report(calls=(), usages=(), samples=()):
    made = StepReport(1, count=4, lengths=[3, 4, 5, 6], time=StepTime(0.0, 9.0, calls, {}), samples=list(samples),
                      usage={"rollout": list(usages)} if usages else {})
    return made


def call(role, rank, began, total, waits=0.0, beside=False, lock=0.0):
    spans = ((0.0, lock, "wait_lock"),) * (lock > 0) + ((lock, lock + waits, "wait_data"),) * (waits > 0)
    return Placed(Call(role, rank, "run", CallTiming(began, total, spans), beside), (rank,))


@pytest.fixture
def observed(monkeypatch):
    monkeypatch.setattr(profiling_steps, "memory", lambda: (8e9, 4e9))
    monkeypatch.setattr(profiling_steps, "gpu_memory", lambda: 80e9)
    return Observed(CONFIG, ROLES)


def test_the_graph_is_compared_with_what_flowed_in_the_first_step(observed):
    observed.look(RANKS, step(CHAIN, flowed={"samples": Flowed({"rollout": 2}, {})}))
    observed.look(RANKS, step(CHAIN, flowed={"tasks": Flowed()}))
    assert [node.name for node in observed.graph.nodes] == ["environment", "rollout", "actor"]
    assert observed.differences == ["actor declares that it takes from 'samples', but took none of 2 items"]


def test_what_only_some_steps_do_belongs_to_the_graph(observed):
    for calls in (CHAIN[:3], CHAIN[:3], CHAIN):
        observed.look(RANKS, step(calls))
    assert observed.graph.publications == (("actor", "rollout"),)
    assert observed.graph.edges == (("environment", "rollout"), ("rollout", "actor"))


def test_edges_are_kept_with_what_a_sample_takes_along_them(observed, monkeypatch):
    seconds = iter((3.0, 1.0, 2.0))
    monkeypatch.setattr(profiling_steps, "transfer_s", lambda samples: next(seconds))
    observed.look(RANKS, step(CHAIN))
    for _ in range(3):
        observed.add(report(samples=["a sample"]), RANKS)
    assert observed.profile("cpu", 2).transfers == {("environment", "rollout"): 2.0, ("rollout", "actor"): 2.0}


def test_memory_is_the_most_of_any_process_and_what_is_left_when_room_is_made(observed):
    observed.look(RANKS, step(CHAIN, [handle("actor", (5e9, 6e9), [Switch("offload", 2 * 10**9, 0.1)])]))
    observed.look(RANKS, step(CHAIN, [handle("actor", (4e9, 3e9), [Switch("onload", 2 * 10**9, 0.1)])]))
    observed.look({**RANKS, "actor": 1}, step(CHAIN, [handle("actor", (9e9,))]))
    profile = observed.profile("cpu", 2)
    assert profile.roles["actor"].memory == (MemoryPoint(1, 9e9, 9e9), MemoryPoint(2, 6e9, 4e9))
    assert profile.device_memory == 4e9
    assert observed.profile("cuda", 2).device_memory == 80e9


def test_memory_of_a_gpu_is_the_gpu_s_own(observed):
    observed.look(RANKS, step(CHAIN, [handle("actor", (5e9, 6e9), device=(40e9, 41e9)),
                                      handle("environment", (1e9,), device=(0,))]))
    roles = observed.profile("cuda", 2).roles
    assert (roles["actor"].memory[0].loaded, roles["environment"].memory[0].loaded) == (41e9, 0.0)


def test_between_two_steps_is_what_passes_with_as_many_processes_as_there_can_be(observed):
    alone = dict.fromkeys(RANKS, 1)
    for works, ranks in ((8.0, alone), (8.5, RANKS), (8.3, RANKS), (2.0, RANKS)):
        observed.add(report([call("actor", 0, 0.0, works)]), ranks)
    assert observed.profile("cpu", 2).step_s == pytest.approx(0.7)


def test_a_circle_is_measured_as_a_whole(observed):
    observed.look(RANKS, step(CIRCLE))
    observed.add(report([call("environment", 0, 1.0, 2.0, waits=1.5), call("rollout", 1, 2.0, 5.0), call("actor", 0, 7.0, 1.0),
                         call("rollout", 0, 8.0, 1.0, beside=True)]), RANKS)
    roles = observed.profile("cpu", 2).roles
    assert roles["environment+rollout"].batches == (BatchPoint(2, 2, 9, 1, 6.0),)
    assert set(roles) == {"environment", "rollout", "actor", "environment+rollout"}


def test_decode_steps_of_all_replicas_are_one_point_of_each_number(observed):
    observed.add_decoding("rollout", [usage({1: (10, 1.0), 4: (30, 6.0)}), usage({1: (30, 5.0), 8: (3, 9.0)})])
    assert observed.profile("cpu", 2).roles["rollout"].decoding == (DecodePoint(2, 1, 6.0 / 40), DecodePoint(2, 4, 0.2))


def test_what_a_response_takes_besides_its_decode_steps(observed):
    """Of a batch, and of each response; several replicas slow each other down."""
    observed.add_decoding("rollout", [usage({1: (50, 5.0), 4: (50, 10.0)})])
    observed.add_decoding("rollout", [usage({1: (50, 10.0), 4: (50, 20.0)})] * 2)
    one = {**RANKS, "rollout": 1}
    observed.add(report([call("rollout", 0, 0.0, 4.0, waits=0.5)], [usage({4: (5, 1.5)}, {4: [4, 2.0], 1: [1, 0.5]})]), one)
    halves = [call("rollout", 0, 0.0, 4.4), call("rollout", 1, 0.0, 4.0, waits=3.0)]
    told = [usage({4: (5, 9.0)}), usage({4: (5, 9.0)})]
    told[0].occupied, told[1].occupied = 4.4, 4.0  # one goes on while its call waits
    observed.add(report(halves, told), RANKS)
    role = observed.profile("cpu", 2).roles["rollout"]
    assert role.batches == (BatchPoint(1, 4, 18, 1, 3.5), BatchPoint(2, 2, 9, 1, 4.4))
    of_four, of_two = 3.5 - 9 * 0.2 - 1 * 0.1, 4.2 / 2 - 5 * 0.2
    assert role.prefill_s == pytest.approx((of_four - of_two) / 2)
    assert role.call_s == pytest.approx(of_two - 2 * role.prefill_s)
    assert DecodePoint(2, 4, 0.4) in role.decoding


def test_what_an_engine_made_by_itself_while_nobody_drove_it_is_not_taken_for_something_else(observed):
    observed.add_decoding("rollout", [usage({4: (50, 10.0)})])
    told = usage({4: (5, 1.0)})
    told.undriven = {4: 10}
    observed.add(report([call("rollout", 0, 0.0, 3.4)], [told]), {**RANKS, "rollout": 1})
    assert observed.profile("cpu", 2).roles["rollout"].prefill_s == pytest.approx((3.4 - 15 * 0.2) / 4)


def test_nobody_generates(observed):
    observed.add(report([call("rollout", 0, 0.0, 4.0)]), RANKS)
    role = observed.profile("cpu", 2).roles["rollout"]
    assert (role.decoding, role.prefill_s, len(role.batches)) == ((), 0.0, 1)
