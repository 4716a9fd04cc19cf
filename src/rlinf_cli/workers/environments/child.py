"""A process of a pool: makes its instances of the simulator, then steps them whenever it is told to."""

from __future__ import annotations

import faulthandler
import os
import pickle
import socket
import traceback

from rlinf_cli.errors import RlinfError, RunError
from rlinf_cli.workers.environments.buffers import Carve, buffers
from rlinf_cli.workers.environments.line import DONE, LAYOUT, RAISED, READY, RENDER, RESET, STEP, Line, Message
from rlinf_cli.workers.environments.order import Layout, Order, fps_of, make_shares, spaces_of


def serve(descriptor: int) -> None:
    """Until the other end closes."""
    faulthandler.enable()
    os.set_inheritable(descriptor, False)
    line = Line(socket.socket(fileno=descriptor))
    order = line.receive()
    if order is None:
        return
    try:
        _Child(line, pickle.loads(order.content)).run()
    except BrokenPipeError:  # nobody wants the answer any more
        return
    except RlinfError as error:
        line.send(RAISED, 0, pickle.dumps(error))
    except Exception as error:  # whatever a simulator raises is told to the one who waits for it
        traceback.print_exc()
        line.send(RAISED, 0, pickle.dumps(RunError(f"the environment raised {type(error).__name__}: {error}")))


class _Child:
    def __init__(self, line: Line, order: Order) -> None:
        self._line, self._order = line, order
        self._shares = make_shares(order)
        one = self._shares[0].environment
        self._spaces = spaces_of(one)
        line.send(READY, 0, pickle.dumps((os.getpid(), self._spaces, fps_of(one))))

    def run(self) -> None:
        while (message := self._line.receive()) is not None:
            self._line.send(DONE, message.half, self._answer(message))

    def _answer(self, message: Message) -> bytes:
        if message.kind == LAYOUT:
            self._lay_out(pickle.loads(message.content))
            return b""
        share = self._shares[message.half]
        if message.kind == STEP:
            if message.content:
                share.expect(pickle.loads(message.content))
            share.step()
            return b"\1" if share.tells_success else b""
        if message.kind == RESET:
            share.reset(pickle.loads(message.content))
            return b""
        assert message.kind == RENDER
        return pickle.dumps(share.environment.render())

    def _lay_out(self, layout: Layout) -> None:
        memory = self._line.receive_memory()
        if memory is None:
            return
        carve = Carve(memory)
        for share in self._shares:
            share.use(buffers(*self._spaces, layout.count, self._order.chunk, carve).rows(layout.rows))
