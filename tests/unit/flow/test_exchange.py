import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from rlinf_cli.flow import exchange
from rlinf_cli.flow.exchange import END, Block, Caller, LinkLost, Listener, close_all, size_of

THERE = {"observation": ((2, 3), "float32"), "done": ((2,), "bool")}
BACK = {"action": ((2,), "int64")}
WANTED = ((THERE, THERE), (BACK, BACK))


class Over(Exception):
    pass


@pytest.fixture(params=["same node", "other node"])
def node(request, monkeypatch, tmp_path):
    """Where the caller is; both find their run's address."""
    here = SimpleNamespace(address=SimpleNamespace(directory_on=lambda node: str(tmp_path), token="secret"), node="one",
                           host="127.0.0.1")
    monkeypatch.setattr(exchange, "client", lambda: here)
    return request.param


@pytest.fixture
def listen(node):
    made = []

    def start(callers=(0,)):
        listener = Listener(callers, elsewhere=node == "other node")
        if node == "other node":  # the caller takes it for one
            listener.address = exchange.Address("two", "", listener.address.host, listener.address.port)
        made.append(listener)
        return listener

    yield start
    for listener in made:
        listener.close()


def patience(seconds=20.0):
    until = time.monotonic() + seconds

    def alive():
        if time.monotonic() > until:
            raise Over

    return alive


def meet(listener, *callers, again=False):
    """Links of the listener, and of each caller."""
    found = {}

    def call(caller):
        found[caller] = caller.meet({0: WANTED}, lambda listener_: listener.address, patience(), again)

    threads = [threading.Thread(target=call, args=(caller,)) for caller in callers]
    for thread in threads:
        thread.start()
    mine = listener.meet(patience(), again)
    for thread in threads:
        thread.join(20)
    return mine, [found[caller] for caller in callers]


class TestBlock:
    def test_arrays_lie_side_by_side_without_touching_each_other(self):
        memory = bytearray(size_of(THERE))
        arrays = Block(THERE, memory).arrays
        arrays["observation"][:] = 7
        arrays["done"][:] = True
        assert (arrays["observation"] == 7).all()
        assert arrays["observation"].shape == (2, 3)
        assert arrays["done"].dtype == bool


class TestLink:
    def test_what_one_end_writes_the_other_reads_half_by_half(self, listen):
        listener = listen()
        mine, [theirs] = meet(listener, Caller(0))
        there, here = theirs[0], mine[0]
        for turn in range(3):
            for half in (0, 1):
                there.out[half].arrays["observation"][:] = 10 * turn + half
                there.out[half].arrays["done"][:] = [True, False]
                there.send(half)
                assert here.receive(patience()) == half
                assert (here.into[half].arrays["observation"] == 10 * turn + half).all()
                assert here.into[half].arrays["done"].tolist() == [True, False]
                here.out[half].arrays["action"][:] = turn
                here.send(half)
                assert there.receive(patience()) == half
                assert there.into[half].arrays["action"].tolist() == [turn, turn]
        there.end()
        assert here.receive(patience()) == END
        close_all(mine)
        close_all(theirs)

    def test_an_end_that_goes_is_noticed(self, listen):
        mine, [theirs] = meet(listen(), Caller(0))
        close_all(theirs)
        with pytest.raises(LinkLost):
            mine[0].receive(patience())
        close_all(mine)

    def test_who_waits_in_vain_looks_up(self, listen):
        mine, [theirs] = meet(listen(), Caller(0))
        with pytest.raises(Over):
            mine[0].receive(patience(0.1))
        close_all(mine)
        close_all(theirs)


class TestAttempts:
    def test_after_a_loss_all_meet_again_under_one_number(self, listen):
        listener, first, second = listen((0, 1)), Caller(0), Caller(1)
        mine, [one, other] = meet(listener, first, second)
        close_all(one)  # the process of the first caller dies; another one follows, which has seen nothing
        with pytest.raises(LinkLost):
            mine[0].receive(patience())
        close_all(mine)
        with pytest.raises(LinkLost):
            other[0].receive(patience())
        follower = Caller(0)
        found = {}

        def call(caller, again):
            found[caller] = caller.meet({0: WANTED}, lambda listener_: listener.address, patience(), again)

        threads = [threading.Thread(target=call, args=args) for args in ((follower, False), (second, True))]
        for thread in threads:
            thread.start()
        mine = listener.meet(patience(), True)
        for thread in threads:
            thread.join(20)
        assert set(mine) == {0, 1}
        for number, caller in enumerate((follower, second)):
            link = found[caller][0]
            link.out[0].arrays["observation"][:] = number
            link.send(0)
            assert mine[number].receive(patience()) == 0
            assert (mine[number].into[0].arrays["observation"] == number).all()
            close_all(found[caller])
        close_all(mine)

    def test_who_does_not_know_the_secret_gets_no_link(self, listen, monkeypatch):
        listener = listen()
        here = exchange.client()
        stranger = SimpleNamespace(**{**vars(here), "address": SimpleNamespace(**{**vars(here.address), "token": "guessed"})})
        with monkeypatch.context() as patch:
            patch.setattr(exchange, "client", lambda: stranger)
            refused = []

            def call():
                try:
                    Caller(0).meet({0: WANTED}, lambda listener_: listener.address, patience(1.0), False)
                except Over:
                    refused.append(True)

            thread = threading.Thread(target=call)
            thread.start()
            with pytest.raises(Over):
                listener.meet(patience(1.5), False)
            thread.join(20)
            assert refused

    def test_a_caller_waits_until_somebody_listens(self, node, listen):
        listener = listen()
        places = iter([exchange.Address("one", "/nowhere", "127.0.0.1", 1)])
        caller, found = Caller(0), {}

        def call():
            found[0] = caller.meet({0: WANTED}, lambda listener_: next(places, listener.address), patience(), False)

        thread = threading.Thread(target=call)
        thread.start()
        mine = listener.meet(patience(), False)
        thread.join(20)
        np.testing.assert_array_equal(list(mine), [0])
        close_all(found[0])
        close_all(mine)
