"""What is sent for a call, and what becomes of an exception on the way."""

import pickle
from dataclasses import replace

import pytest

from rlinf_cli.errors import PluginError, UsageError
from rlinf_cli.flow.answers import Answer, Failure, error_of, failure_of, pack_call, unpack_call
from rlinf_cli.flow.errors import CallTimeoutError, ChannelBrokenError, WorkerDiedError, WorkerError
from rlinf_cli.flow.timeline import Call, CallTiming, Switch

TIMING = CallTiming(100.0, 0.5, ((0.1, 0.2, "sync"), (0.3, 0.4, "wait_data")),
                    (Call("rollout", 1, "update_weights", CallTiming(100.1, 0.1), True),))


class Stubborn(UsageError):
    """Cannot be made again from its arguments."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


class Locked(Exception):
    def __reduce__(self):
        raise TypeError("not me")


def caught(error):
    try:
        raise error
    except BaseException as raised:
        return failure_of(raised, "generate")


def test_an_answer_arrives_as_it_was():
    answer = Answer({"a": (1, 2)}, None, TIMING, 1 << 20, 1.5, (Switch("offload", 1 << 30, 0.25), Switch("onload", 0, 0.0)))
    assert Answer.unpack(answer.pack()) == answer
    assert Answer.unpack(replace(answer, device_memory=1 << 34).pack()).device_memory == 1 << 34
    assert Answer.unpack(Answer().pack()) == Answer()
    assert Answer.unpack(Answer((None,)).pack()).value == (None,)


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, "two"), {}), ((), {"n": 3}), (((),), {"x": None})])
def test_a_call_arrives_as_it_was(args, kwargs):
    outs = [("samples-1", "rollout[0]#1.1")]
    assert unpack_call(pack_call("generate", args, kwargs, outs, 7)) == ("generate", args, kwargs, [list(outs[0])], 7)


def test_a_failure_tells_what_and_where():
    failure = caught(ValueError("no such token"))
    assert failure.summary == "ValueError: no such token"
    assert failure.method == "generate"
    assert "raise error" in failure.traceback
    assert failure.exit_code == 1


def test_our_own_errors_speak_for_themselves():
    assert caught(UsageError("data.jsonl:3: no prompt")).summary == "data.jsonl:3: no prompt"
    assert caught(KeyError()).summary == "KeyError"


@pytest.mark.parametrize(("error", "code"), [(UsageError("bad data"), 2), (PluginError("missing"), 3),
                                             (ValueError("bad"), 1), (Stubborn("a", "b"), 2)])
def test_the_exit_code_survives(error, code):
    assert error_of(caught(error), "rollout", 1, "node-0").exit_code == code


def test_the_error_that_is_raised():
    error = error_of(caught(UsageError("bad data")), "rollout", 1, "node-0")
    assert str(error) == "rollout[1] on node-0 failed in generate: bad data"
    assert isinstance(error.cause, UsageError)
    assert (error.role, error.rank, error.node, error.method) == ("rollout", 1, "node-0", "generate")
    assert "bad data" in error.remote_traceback


@pytest.mark.parametrize("error", [Stubborn("a", "b"), Locked("odd")])
def test_an_exception_that_cannot_be_sent_leaves_its_words(error):
    raised = error_of(caught(error), "actor", 0, "node-0")
    assert raised.cause is None
    assert str(error) in raised.summary


def test_an_exception_of_a_class_that_is_not_here():
    gone = Failure("train", "Odd: x", "", b"not a pickle", 1)
    assert error_of(gone, "actor", 0, "node-0").cause is None


@pytest.mark.parametrize("error", [
    WorkerError("rollout", 1, "node-0", "generate", "KeyError: 'x'", "Traceback ...", KeyError("x"), 3),
    WorkerDiedError("rollout", 1, "node-1", "generate", "signal 9: Killed", 4711, "/logs/rollout-1.log"),
    CallTimeoutError("not ended within 5 s"),
    ChannelBrokenError("rollout[1] died"),
])
def test_errors_can_be_sent_on(error):
    """A worker that calls another role's ranks fails with these."""
    sent = pickle.loads(pickle.dumps(error))
    assert type(sent) is type(error)
    assert str(sent) == str(error)
    assert {name: repr(value) for name, value in vars(sent).items()} == {
        name: repr(value) for name, value in vars(error).items()}


def test_a_death_in_words():
    error = WorkerDiedError("rollout", 1, "node-0", "generate", "signal 9: Killed", 4711, "/logs/rollout-1.log")
    assert str(error) == ("rollout[1] on node-0 died (signal 9: Killed, process 4711) while in generate; "
                          "its log: /logs/rollout-1.log")
    assert str(WorkerDiedError("a", 0, "node-0", "no call", "its node is gone")) == (
        "a[0] on node-0 died (its node is gone) while in no call")
