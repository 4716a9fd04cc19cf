"""Several roles in one process a rank."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time

import pytest

from rlinf_cli.flow.crew import Part
from rlinf_cli.flow.errors import WorkerDiedError, WorkerError
from rlinf_cli.flow.handle import gather
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.flow.worker import Worker, control

pytestmark = pytest.mark.integration


class Neighbour(Worker):
    """Notes in its process when it was made, and finds there what others have noted."""

    def __init__(self, delay=0.0, fails=False):
        time.sleep(delay)
        if fails:
            raise ValueError("cannot be made")
        self.made = os.environ["MADE"] = os.environ.get("MADE", "") + self.role[0]
        self.gate = threading.Event()

    def order(self):
        return self.made, os.environ["MADE"]

    def place(self):
        return os.getpid(), self.role, self.rank, self.world, self.devices

    def meet(self):
        """The ranks' meeting place is this role's own."""
        if not self.init_method:
            return ""
        port = int(self.init_method.rpartition(":")[2])
        if self.rank == 0:
            socket.create_server(("127.0.0.1", port)).close()
        return self.init_method

    def hold(self):
        assert self.gate.wait(30), "nobody let go"

    @control
    def let_go(self):
        self.gate.set()

    @control
    def call(self, other):
        """A control call waits for one of the neighbour."""
        other.let_go().wait()

    def produce(self, count, numbers: Out[int]):
        numbers.put_many(range(count))

    def consume(self, numbers: In[int]):
        return sum(numbers)

    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)


def launched(cluster, ranks=1, **roles):
    """`launched(cluster, first={...}, second={...})`: groups of roles that share their processes."""
    parts = [Part(role, Neighbour, (), arguments) for role, arguments in roles.items()]
    return cluster.launch_fused(parts, [[rank] for rank in range(ranks)])


@pytest.fixture(scope="module")
def pair(cluster, _classes_of_tests_can_be_sent):
    """Two roles in two processes."""
    groups = launched(cluster, 2, alpha={"delay": 0.3}, beta={})
    yield groups
    cluster.stop(groups[1])


def test_roles_share_a_process_a_rank_and_nothing_else(cluster, pair):
    one, two = pair
    places = [group.place().wait() for group in (one, two)]
    assert [pid for pid, *_ in places[0]] == [pid for pid, *_ in places[1]]
    assert places[0][0][0] != places[0][1][0]
    assert [place[1:] for place in places[1]] == [("beta", 0, 2, (0,)), ("beta", 1, 2, (1,))]
    # made one after another, in the same order everywhere
    assert one.order().wait() == [("a", "ab")] * 2
    assert two.order().wait() == [("ab", "ab")] * 2
    meetings = [group.meet().wait()[0] for group in (one, two)]
    assert meetings[0] != meetings[1]
    assert {path.name for path in cluster.logs.glob("alpha*")} == {"alpha+beta-0.log", "alpha+beta-1.log"}
    assert cluster.partners("beta") == [one, two]


def test_each_role_has_queues_of_its_own(pair):
    one, two = pair
    held = [one.hold(), two.hold()]
    two.let_go().wait(20)
    held[1].wait(20)
    assert not held[0].done()
    assert two.place().wait(20)[0][1] == "beta"
    # a control call waits for one of the neighbour in the same process
    two.call(one).wait(20)
    held[0].wait(20)


def test_data_flows_between_them(pair, channel):
    one, two = pair
    numbers = channel("numbers")
    taken = two.consume(numbers)
    gather([one.produce(1000, numbers), taken])
    assert sum(taken.wait()) == 2 * sum(range(1000))


def test_a_constructor_that_fails_fails_its_role_only_and_ending_one_ends_all(cluster):
    one, two = launched(cluster, gamma={"fails": True}, delta={})
    try:
        with pytest.raises(WorkerError, match="cannot be made") as caught:
            one.ready()
        assert (caught.value.role, caught.value.method) == ("gamma", "__init__")
        two.ready()
        pid, *_ = two.place().wait()[0]
        with pytest.raises(ValueError, match="role 'delta' has been launched before"):
            cluster.launch("delta", Neighbour, [[0]])
    finally:
        cluster.stop(one)
    again = cluster.launch("delta", Neighbour, [[0]])
    try:
        assert again.place().wait()[0][0] != pid
        assert cluster.partners("delta") == [again]
    finally:
        cluster.stop(again)


def test_a_death_is_that_of_all(cluster, channel):
    one, two = launched(cluster, epsilon={}, zeta={})
    try:
        one.ready()
        two.ready()
        held = two.hold()
        with pytest.raises(WorkerDiedError, match="signal 9"):
            one.die().wait(20)
        with pytest.raises(WorkerDiedError) as caught:
            held.wait(20)
        assert caught.value.log.endswith("epsilon+zeta-0.log")
        with pytest.raises(WorkerDiedError):
            two.produce(1, channel("of-the-dead")).wait(20)
    finally:
        cluster.stop(two)
