"""Seconds that a hand-over of 16 observations and its answer take between two processes: by a channel, and by an exchange.

Run by `embodied.py`; ends with one JSON line.
"""

import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.cluster import Cluster
from rlinf_cli.flow.exchange import Address, Caller, Listener
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.flow.worker import Worker

ROUNDS, WARM = 400, 50
THERE = {"observation": ((16, 20), "float32"), "reward": ((16,), "float32")}
BACK = {"action": ((16, 7), "float32")}


def nothing() -> None:
    pass


class Asker(Worker):
    def by_channel(self, there: Out[dict], back: In[dict]) -> float:
        seconds = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            there.put({name: np.zeros(shape, dtype) for name, (shape, dtype) in THERE.items()})
            back.get()
            seconds.append(time.perf_counter() - began)
        return statistics.median(seconds[WARM:])

    def by_exchange(self, addresses: In[Address]) -> float:
        [address] = addresses.get()
        link = Caller(0).meet({0: ((THERE,), (BACK,))}, lambda _: address, nothing, False)[0]
        seconds = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            for array in link.out[0].arrays.values():
                array[:] = 0
            link.send(0)
            link.receive(nothing)
            seconds.append(time.perf_counter() - began)
        return statistics.median(seconds[WARM:])


class Answerer(Worker):
    def by_channel(self, there: In[dict], back: Out[dict]) -> None:
        for _ in range(ROUNDS):
            there.get()
            back.put({name: np.zeros(shape, dtype) for name, (shape, dtype) in BACK.items()})

    def by_exchange(self, addresses: Out[Address]) -> None:
        listener = Listener((0,), False)
        addresses.put(listener.address)
        link = listener.meet(nothing, False)[0]
        for _ in range(ROUNDS):
            link.receive(nothing)
            link.out[0].arrays["action"][:] = 0
            link.send(0)
        listener.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, Cluster.start("cpu:2", directory=Path(directory)) as cluster:
        caller, answerer = cluster.launch("caller", Asker, [[0]]), cluster.launch("answerer", Answerer, [[1]])
        there, back, addresses = Channel("there"), Channel("back"), Channel("addresses")
        answering = answerer.by_channel(there, back)
        [channel] = caller.by_channel(there, back).wait()
        answering.wait()
        answering = answerer.by_exchange(addresses)
        [exchange] = caller.by_exchange(addresses).wait()
        answering.wait()
    print(json.dumps({"channel_s": channel, "exchange_s": exchange}))


if __name__ == "__main__":
    main()
