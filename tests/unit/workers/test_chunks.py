"""Items are taken in chunks whose size follows from what chunks have cost."""

from rlinf_cli.flow.errors import ChannelClosedError
from rlinf_cli.state.granularity import ChunkDone, Granularity
from rlinf_cli.workers import chunks as module
from rlinf_cli.workers.chunks import chunks, leased_chunks


class Told(Granularity):
    """Keeps the events."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.events = []

    def handle(self, event):
        self.events.append(event)
        return super().handle(event)


class Clock:
    """Of seconds that somebody moves."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


class Slow:
    """A channel in which each item comes after two seconds."""

    def __init__(self, clock, items):
        self.clock, self.items, self.asked = clock, list(range(items)), []

    def chunks(self, n, at_least):
        self.asked.append((n, at_least))
        if self.items:
            count = min(at_least, len(self.items))
            self.clock.now += 2.0 * count
            taken, self.items = self.items[:count], self.items[count:]
            yield taken

    def leases(self, n, at_least):
        return self.chunks(n, at_least)

    def qsize(self):
        return len(self.items)


def test_time_is_of_the_work_and_of_the_wait(monkeypatch):
    clock, granularity = Clock(), Told(2, 8)
    monkeypatch.setattr(module, "time", clock)
    channel, taken = Slow(clock, 5), []
    for chunk in chunks(channel, granularity):
        clock.now += 10.0 + len(chunk)
        taken.append(chunk)
    assert taken == [[0, 1], [2, 3], [4]]
    assert granularity.events == [ChunkDone(2, 12.0, 4.0), ChunkDone(2, 12.0, 4.0), ChunkDone(1, 11.0, 2.0)]
    assert channel.asked[:3] == [(8, 2)] * 3


def test_what_waits_is_asked_for_where_it_is_shared(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    alone, shared = Told(1, 4), Told(1, 4, sharers=2)
    for granularity in alone, shared:
        for _ in leased_chunks(Slow(clock, 3), granularity):
            pass
    assert [event.waiting for event in alone.events] == [0, 0, 0]
    assert [event.waiting for event in shared.events] == [2, 1, 0]


def test_a_chunk_that_was_not_finished_says_nothing(queue):
    granularity = Told(1, 2)
    for _ in chunks(queue(1, 2, 3), granularity):
        break
    assert granularity.events == []


def test_leases_come_as_they_are(queue):
    channel = queue("a", "b", "c")
    leases = [lease for chunk in leased_chunks(channel, Granularity(1, 2)) for lease in chunk]
    assert [lease.item for lease in leases] == ["a", "b", "c"]
    assert len(channel.leased) == 3
    channel.settle(leases)
    assert list(chunks(queue(), Granularity(1, 2))) == []


def test_a_broken_channel_is_not_a_closed_one(queue):
    class Broken:
        def chunks(self, n, at_least):
            raise ChannelClosedError("gone")
            yield

    granularity = Told(1, 2)
    try:
        list(chunks(Broken(), granularity))
    except ChannelClosedError:
        assert granularity.events == []
    else:
        raise AssertionError("what a channel raises is raised")
