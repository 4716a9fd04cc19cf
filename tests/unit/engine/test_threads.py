"""Control calls from another thread take effect between two steps and wait for one step at most."""

import statistics
import threading
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rlinf_cli.api import Request, Sampling
from rlinf_torch.turns import FairLock


@pytest.fixture
def engine(build, tiny):
    return build(tiny, max_sequence=2000, slots=8)


def requests(count=8, new=1500):
    return [Request(f"{n}", np.array([5, 6, 7 + n], np.int32), Sampling(new)) for n in range(count)]


class Collector(threading.Thread):
    """The thread that submits and collects."""

    def __init__(self, engine):
        super().__init__(daemon=True)
        self.engine, self.done = engine, []

    def run(self):
        torch.set_num_threads(1)
        while self.engine.pending():
            self.done += self.engine.collect()


@pytest.fixture
def collecting(engine):
    engine.submit(requests())
    collector = Collector(engine)
    collector.start()
    while engine.stats()["steps"] < 3:
        time.sleep(0.001)
    yield collector
    engine.resume()
    engine.abort()
    collector.join(20)
    assert not collector.is_alive()


def wait_for(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_updates_land_between_steps(engine, collecting, tiny):
    """Every token carries the version that made it; versions never go back, and none is skipped over a whole step."""
    weights = load_file(tiny / "model.safetensors")
    for version in range(1, 6):
        engine.update_weights(version, weights.items())
        steps = engine.stats()["steps"]
        wait_for(lambda steps=steps: engine.stats()["steps"] >= steps + 2)
    engine.abort()
    collecting.join(20)
    assert len(collecting.done) == 8
    changes = {tuple(np.flatnonzero(np.diff(done.versions)).tolist()) for done in collecting.done}
    assert len(changes) == 1, "all requests change version at the same step"
    assert all(sorted(set(done.versions.tolist())) == [0, 1, 2, 3, 4, 5] for done in collecting.done)
    assert all((np.diff(done.versions) >= 0).all() for done in collecting.done)


def test_control_calls_do_not_starve(engine, collecting):
    """A loop that takes its lock again at once would keep them out for many steps."""
    waits = []
    for _ in range(21):
        before = engine.stats()["steps"]
        engine.abort(["nobody"])
        waits.append(engine.stats()["steps"] - before)
    # the median: a busy machine may hold this thread up between two lines
    assert statistics.median(waits) <= 2


def test_pause_holds_and_resume_goes_on(engine, collecting):
    engine.pause()
    steps = engine.stats()["steps"]
    time.sleep(0.05)
    assert engine.stats()["steps"] == steps
    engine.resume()
    wait_for(lambda: engine.stats()["steps"] > steps)


def test_abort_wakes_a_paused_collector(engine, collecting):
    engine.pause()
    engine.abort()
    collecting.join(20)
    assert sorted(done.id for done in collecting.done) == [str(n) for n in range(8)]
    assert {done.finish for done in collecting.done} == {"abort"}


def test_a_bad_update_does_not_disturb(engine, collecting):
    with pytest.raises(ValueError, match="missing"):
        engine.update_weights(1, [])
    steps = engine.stats()["steps"]
    wait_for(lambda: engine.stats()["steps"] > steps)
    assert engine.version == 0


def test_the_checksum_can_be_asked_for_at_any_time(engine, collecting):
    assert len({engine.weights_checksum() for _ in range(5)}) == 1


def test_waiting_threads_come_next():
    lock, taken, stop = FairLock(), [], threading.Event()

    def busy():
        while not stop.is_set():
            with lock:
                taken.append("busy")
                time.sleep(0.002)

    loop = threading.Thread(target=busy, daemon=True)
    loop.start()
    try:
        waits = []
        for _ in range(11):
            before = len(taken)
            wait_for(lambda before=before: len(taken) > before)
            before = len(taken)
            with lock:
                waits.append(len(taken) - before)
        assert statistics.median(waits) <= 1
    finally:
        stop.set()
        loop.join(10)


def test_a_lock_is_given_back_after_an_error():
    lock = FairLock()
    with pytest.raises(KeyError), lock:
        raise KeyError
    with lock:
        pass
