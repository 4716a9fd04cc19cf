"""A rank's place: what its process is told."""

import dataclasses
import re
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlinf_cli.flow import handle
from rlinf_cli.flow.answers import Answer
from rlinf_cli.flow.errors import ChannelBrokenError, SerializationError, WorkerDiedError, WorkerError
from rlinf_cli.flow.handle import gravity
from rlinf_cli.flow.host import STREAMS, Host, concurrency, control_of, queue_of
from rlinf_cli.flow.seat import Seat
from rlinf_cli.flow.timeline import CLOCK, CallTiming
from rlinf_cli.flow.watch import reason_of

SEAT = Seat("rollout", 1, 2, (2, 3), "cpu", ("2", "3"), "node-0", "id", "127.0.0.1", Path("/logs"), Path("/run"),
            {}, 60.0, "rollout")


def seat(**changes):
    return dataclasses.replace(SEAT, **changes)


def test_names_and_files():
    assert SEAT.identity == "rollout[1]"
    assert SEAT.log == Path("/logs/rollout-1.log")
    assert SEAT.stacks == Path("/logs/rollout-1.stacks.txt")


def test_roles_that_share_a_process_share_its_files():
    actor = seat(role="actor", process="rollout+actor")
    assert actor.identity == "actor[1]"
    assert actor.host == "rollout+actor[1]" == seat(process="rollout+actor").host
    assert actor.log == Path("/logs/rollout+actor-1.log")
    assert actor.stacks == Path("/logs/rollout+actor-1.stacks.txt")


@pytest.mark.parametrize(("tenants", "queues"), [
    (1, {"host": 2, "stream": STREAMS, "control-0": 1}),
    (2, {"host": 3, "stream": 2 * STREAMS, "control-0": 1, "control-1": 1, "tenant-1": 1}),
])
def test_each_tenant_has_queues_of_its_own(tenants, queues):
    assert concurrency(tenants) == queues
    assert {control_of(number) for number in range(tenants)} <= set(queues)
    assert queue_of(0) == ""
    assert {queue_of(number) for number in range(1, tenants)} <= set(queues)


@pytest.mark.parametrize(("changes", "threads", "gpus"), [
    ({}, "2", ""),
    ({"devices": (0,), "local": ("0",)}, "1", ""),
    ({"kind": "cuda"}, "1", "2,3"),
    ({"kind": "cuda", "local": ("GPU-1a", "GPU-2b")}, "1", "GPU-1a,GPU-2b"),
    ({"kind": "cuda", "env": {"OMP_NUM_THREADS": "8"}}, "8", "2,3"),
])
def test_environment(changes, threads, gpus):
    environment = seat(**changes).environment()
    assert environment["OMP_NUM_THREADS"] == threads
    assert environment["CUDA_VISIBLE_DEVICES"] == gpus
    assert environment["OMP_WAIT_POLICY"] == "passive"


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_meeting_place_is_nobody_elses(address):
    host = Host.__new__(Host)
    host._seat, host._reserved = seat(address=address), []
    meeting = host.reserve()
    found = re.fullmatch(r"tcp://(\[::1\]|127\.0\.0\.1):(\d+)", meeting)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # a listener that says so, as torch's does, gets in; somebody who does not is kept out
    with socket.socket(family) as other, pytest.raises(OSError, match="in use"):
        other.bind((address, int(found[2])))
    with socket.create_server((address, int(found[2])), family=family):
        pass


@pytest.mark.parametrize(("text", "reason"), [
    ("The actor died unexpectedly before finishing this task.\n\tclass_name: Host\nThe actor is dead because its worker "
     "process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection "
     "error code 2. End of file.", "Worker unexpectedly exits with a connection error code 2"),
    ("The actor is dead because its node has died. Node Id: 8a", "its node is gone"),
    ("Task was killed due to the node running low on memory.", "ended by Ray because its node ran out of memory"),
    ("The actor died because of an error raised in its creation task, ray::Host.__init__()\nPermissionError: /logs",
     "its process could not be set up: PermissionError: /logs"),
    ("something new", "its process ended"),
])
def test_what_ray_knows_of_an_end(text, reason):
    assert reason_of(Exception(text)) == reason


@pytest.mark.parametrize(("node", "began"), [("node-0", 5.0), ("node-1", 105.0)])
def test_the_times_of_another_machine_are_told_in_ours(monkeypatch, node, began):
    """Its clock began 100 seconds after ours."""
    monkeypatch.setattr(handle, "client", lambda: SimpleNamespace(node="node-0"))
    answer = handle._in_our_time(Answer(timing=CallTiming(5.0, 1.0), clock=CLOCK + 100), seat(node=node))
    assert (answer.timing.began, answer.timing.total) == (pytest.approx(began), 1.0)


def failed(cause):
    return WorkerError("actor", 0, "node-0", "train", "x", "", cause)


DIED = WorkerDiedError("rollout", 0, "node-0", "generate", "signal 9")


@pytest.mark.parametrize(("error", "grade"), [
    (DIED, 2), (failed(DIED), 2), (failed(failed(DIED)), 2),
    (failed(ValueError()), 1), (failed(None), 1), (failed(SerializationError("x")), 1), (failed(failed(None)), 1),
    (failed(ChannelBrokenError("rollout[0] died")), 0), (failed(failed(ChannelBrokenError("x"))), 0),
])
def test_what_explains_more(error, grade):
    assert gravity(error) == grade
