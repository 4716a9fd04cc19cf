"""Several calls of `generate`, of one replica or of several: what they take, what they drop, and that nothing is lost."""

import contextlib
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rlinf_cli.flow.channel import Lease
from rlinf_cli.flow.errors import ChannelBrokenError, ChannelClosedError
from rlinf_cli.rl.trajectory import Prompt
from rlinf_cli.workers.engine_share import EngineShare
from rlinf_cli.workers.generation import Generator

PATIENCE_S = 20.0


class Board:
    """A channel with leases for several threads. It ends for those who take when nothing waits and nothing is leased."""

    def __init__(self, items=(), is_open=False, limit=None):
        self.items, self.is_open, self.limit = list(items), is_open, limit
        self.leased, self.got, self.looks = set(), [], 0
        self.broken = None
        self._changed = threading.Condition()

    @property
    def is_full(self):
        return self.limit is not None and len(self.got) >= self.limit

    def lease(self, n, at_least=1):
        with self._changed:
            self.looks += 1
            while True:
                if self.broken:
                    raise ChannelBrokenError(self.broken)
                if self.items or (at_least == 0 and (self.is_open or self.leased)):
                    taken, self.items = self.items[:n], self.items[n:]
                    leases = [Lease(item, self, number) for number, item in enumerate(taken)]
                    self.leased.update(leases)
                    return leases
                if not (self.is_open or self.leased):
                    raise ChannelClosedError("closed")
                assert self._changed.wait(PATIENCE_S), "for ever"

    def feed(self, items, is_open=False):
        with self._changed:
            self.items += items
            self.is_open = is_open
            self._changed.notify_all()

    def break_off(self, reason):
        with self._changed:
            self.broken = reason
            self._changed.notify_all()

    def settle(self, leases):
        with self._changed:
            for lease in leases:
                self.leased.remove(lease)
            self._changed.notify_all()

    def put(self, item, weight, settles, wait=False):
        with self._changed:
            if self.broken:
                raise ChannelBrokenError(self.broken)
            if self.is_full:
                assert wait, "what is refused must be known"
                raise ChannelClosedError("full")
            self.got.append(item)
        for lease in settles:
            lease.channel.settle([lease])


def prompts(step, count, evaluation=False):
    return [Prompt(f"{step}-{number}", "d7=", evaluation=evaluation) for number in range(count)]


def ids(board):
    return [group[0].group_id for group in board.got]


@pytest.fixture
def generator(configure, tiny, scripted):
    """`generator(*settings, replicas=1, capacity, tick, length)`: with a scripted engine."""

    def make(*settings, replicas=1, **engine):
        made = Generator(configure(f"model.name={tiny}", "rollout.group_size=1", *settings), "cpu", replicas)
        made.engine = scripted(**engine)
        made.share = EngineShare(made.engine)
        return made

    return make


@pytest.fixture
def pool():
    with ThreadPoolExecutor(8) as threads:
        yield threads


def until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class TestCallsOfOneReplica:
    def test_all_of_each_step_comes_out_on_its_own_channel(self, generator, pool):
        made = generator("rollout.prompts=6", capacity=5, length=lambda name: 1 + int(name[2]) % 5 * 2)
        asked = [Board(prompts(step, 6)) for step in range(4)]
        said = [Board() for _ in asked]
        for call in [pool.submit(made.generate, *both) for both in zip(asked, said, strict=True)]:
            assert call.result(PATIENCE_S) is None
        for step, board in enumerate(said):
            assert sorted(ids(board)) == [f"{step}-{number}" for number in range(6)]
        assert made.engine.most <= 5
        assert not any(board.leased or board.items for board in asked)

    def test_the_next_step_fills_the_room_that_the_long_ones_of_this_one_leave(self, generator, pool):
        made = generator("rollout.prompts=6", capacity=6, length=lambda name: 10**6 if name == "0-0/0000" else 3)
        first, second, out = Board(prompts(0, 6)), Board(), Board(prompts(1, 6))
        long = pool.submit(made.generate, first, second)
        until(lambda: len(second.got) == 5)
        said = Board()
        pool.submit(made.generate, out, said).result(PATIENCE_S)
        assert len(said.got) == 6
        assert not long.done()
        made.engine.abort()
        long.result(PATIENCE_S)
        assert second.got[-1][0].finish == "abort"

    def test_earlier_steps_come_first(self, generator, pool):
        made = generator("rollout.prompts=4", capacity=2, length=lambda name: 4)
        asked, said = [Board(is_open=True), Board(prompts(1, 4))], [Board(), Board()]
        order = []
        for board in said:
            board.put = lambda item, put=board.put, **more: (order.append(item[0].group_id[0]), put(item, **more))
        first = pool.submit(made.generate, asked[0], said[0])
        until(lambda: asked[0].looks)
        asked[0].feed(prompts(0, 4))
        until(lambda: not asked[0].items)
        second = pool.submit(made.generate, asked[1], said[1])
        for call in (first, second):
            call.result(PATIENCE_S)
        assert "".join(order) in ("00001111", "00010111")

    def test_a_later_step_may_work_while_an_earlier_one_waits_for_prompts(self, generator, pool):
        made = generator("rollout.prompts=4", capacity=4, length=lambda name: 2)
        asked, said = Board(is_open=True), Board()
        early = pool.submit(made.generate, asked, said)
        until(lambda: asked.looks == 2)
        pool.submit(made.generate, Board(prompts(1, 4)), Board()).result(PATIENCE_S)
        asked.feed(prompts(0, 4))
        early.result(PATIENCE_S)
        assert len(said.got) == 4

    def test_an_empty_channel_is_looked_into_seldom(self, generator, pool):
        """Others still work on its prompts: some may come back, but most seldom do."""
        made = generator("rollout.prompts=2", capacity=4, length=lambda name: 400)
        asked = Board(prompts(0, 1), is_open=True)
        call = pool.submit(made.generate, asked, Board())
        until(lambda: made.engine.steps > 300)
        assert asked.looks < 20
        asked.feed([])
        call.result(PATIENCE_S)

    def test_an_evaluation_beside_training_sees_one_version(self, generator, pool):
        made = generator("rollout.prompts=4", "eval.prompts=4", capacity=3, length=lambda name: 30)

        def update():
            with made.share.updating():
                made.engine.version += 1

        said, training = Board(), Board()
        calls = [pool.submit(made.generate, Board(prompts(0, 4, evaluation=True)), said),
                 pool.submit(made.generate, Board(prompts(1, 4)), training)]
        until(lambda: made.engine.steps > 5)
        updates = [pool.submit(update) for _ in range(2)]
        for one in calls + updates:
            one.result(PATIENCE_S)
        assert made.engine.version == 2
        assert len({version for group in said.got for one in group for version in one.versions}) == 1
        assert len(said.got) == len(training.got) == 4

    def test_a_call_whose_channel_breaks_ends_and_leaves_nothing_behind(self, generator, pool):
        made = generator("rollout.prompts=4", capacity=4, length=lambda name: 10**6 if name[0] == "0" else 2)
        said = Board()
        call = pool.submit(made.generate, Board(prompts(0, 4)), said)
        until(lambda: made.engine.steps > 2)
        said.break_off("cancelled")
        made.engine.abort()
        with pytest.raises(ChannelBrokenError, match="cancelled"):
            call.result(PATIENCE_S)
        again = Board()
        pool.submit(made.generate, Board(prompts(1, 4)), again).result(PATIENCE_S)
        assert len(again.got) == 4
        assert not made.share._owners


class Lockstep:
    """Engines that step together: one takes `many` steps in the time of one step of the slowest."""

    def __init__(self, engines):
        self._barrier = threading.Barrier(engines)

    def ticks(self, many):
        steps = iter(range(10**9))

        def tick():
            time.sleep(0.002)  # longer than a visit, so that there is one between two steps
            if next(steps) % many == 0:
                with contextlib.suppress(threading.BrokenBarrierError):  # the other one has nothing to do any more
                    self._barrier.wait(0.5)

        return tick


class TestReplicas:
    SETTINGS = ("rollout.prompts=64", "rollout.max_new_tokens=256")

    def shares(self, generator, pool, speeds):
        """Prompts that each replica has answered."""
        clock, asked = Lockstep(len(speeds)), Board(prompts(0, 64))
        said = [Board() for _ in speeds]
        replicas = [generator(*self.SETTINGS, replicas=len(speeds), capacity=64, tick=clock.ticks(speed),
                              length=lambda name: 120) for speed in speeds]
        for call in [pool.submit(made.generate, asked, out) for made, out in zip(replicas, said, strict=True)]:
            call.result(PATIENCE_S)
        assert sorted(name for out in said for name in ids(out)) == sorted(prompt.id for prompt in prompts(0, 64))
        return [len(out.got) for out in said]

    def test_equal_ones_share_equally(self, generator, pool):
        assert all(26 <= share <= 38 for share in self.shares(generator, pool, (1, 1)))

    def test_a_faster_one_answers_more(self, generator, pool):
        fast, slow = self.shares(generator, pool, (4, 1))
        assert fast >= 1.4 * slow

    def test_one_that_is_at_work_already_gets_less(self, generator, pool):
        asked, said = Board(prompts(1, 64)), [Board(), Board()]
        clock = Lockstep(2)
        busy, idle = (generator(*self.SETTINGS, replicas=2, capacity=40, tick=clock.ticks(1), length=lambda name: 60)
                      for _ in range(2))
        before = pool.submit(busy.generate, Board(prompts(0, 32)), Board())
        until(lambda: len(busy.engine._running) == 32)
        for call in [pool.submit(busy.generate, asked, said[0]), pool.submit(idle.generate, asked, said[1]), before]:
            call.result(PATIENCE_S)
        assert len(said[0].got) + len(said[1].got) == 64
        assert len(said[1].got) > 1.4 * len(said[0].got)


class TestAskingMoreThanIsTrained:
    SETTINGS = ("rollout.prompts=8", "rollout.overprovision=0.5", "rollout.group_size=2")

    def length(self, name):
        """Longer the higher the number of the prompt."""
        return 3 + 10 * int(name.split("/")[0].split("-")[1])

    def test_what_is_late_is_dropped_and_told(self, generator, pool):
        made = generator(*self.SETTINGS, capacity=100, length=self.length)
        asked, said = Board(prompts(0, 12)), Board(limit=8)
        surplus = pool.submit(made.generate, asked, said).result(PATIENCE_S)
        assert ids(said) == [f"0-{number}" for number in range(8)]
        assert not asked.leased
        assert not made.share._owners
        assert (surplus.kept, surplus.dropped, surplus.begun) == (16, 8, 8)
        assert surplus.kept_tokens == 2 * sum(3 + 10 * number for number in range(8))
        metrics = surplus.metrics()
        assert metrics["rollout/overprovision/dropped"] == 8
        assert metrics["rollout/overprovision/dropped_frac"] == pytest.approx(1 / 3)
        # those that were dropped had about as many tokens as the longest that was kept
        assert metrics["rollout/overprovision/length_bias"] < -5

    def test_a_reward_that_follows_the_length_is_biased_as_the_lengths_are(self, generator, pool):
        made = generator(*self.SETTINGS, capacity=100, length=self.length)
        said = Board(limit=8)
        surplus = pool.submit(made.generate, Board(prompts(0, 12)), said).result(PATIENCE_S)
        kept = statistics.mean(len(one.response_ids) for group in said.got for one in group)
        everything = statistics.mean(self.length(prompt.id) for prompt in prompts(0, 12))
        assert kept - everything < surplus.metrics()["rollout/overprovision/length_bias"] < 0

    def test_of_several_replicas_each_tells_its_own(self, generator, pool):
        asked, said = Board(prompts(0, 12)), Board(limit=8)
        replicas = [generator(*self.SETTINGS, replicas=2, capacity=100, length=self.length) for _ in range(2)]
        told = [call.result(PATIENCE_S) for call in [pool.submit(made.generate, asked, said) for made in replicas]]
        total = told[0] + told[1]
        assert total.kept == sum(len(group) for group in said.got) == 16
        assert total.dropped + 2 * len(asked.items) == 8
        assert not asked.leased

    def test_a_group_that_comes_a_moment_too_late_counts_as_dropped(self, generator, pool):
        """Both end in the same step; there is room for one."""
        made = generator("rollout.prompts=1", "rollout.overprovision=1", capacity=100, length=lambda name: 5)
        asked, said = Board(prompts(0, 2)), Board(limit=1)
        surplus = pool.submit(made.generate, asked, said).result(PATIENCE_S)
        assert (surplus.kept, surplus.kept_tokens, surplus.dropped, surplus.dropped_tokens) == (1, 5, 1, 5)
        assert not asked.leased

    def test_an_evaluation_drops_nothing(self, generator, pool):
        made = generator(*self.SETTINGS, capacity=100, length=self.length)
        said = Board()
        assert pool.submit(made.generate, Board(prompts(0, 12, evaluation=True)), said).result(PATIENCE_S) is None
        assert len(said.got) == 12

    def test_none_asked_changes_nothing(self, generator, pool):
        made = generator("rollout.prompts=8", capacity=100, length=self.length)
        said = Board()
        assert pool.submit(made.generate, Board(prompts(0, 8)), said).result(PATIENCE_S) is None
        assert len(said.got) == 8
        assert made.tasks[False].fair == 8

    def test_a_replica_takes_its_share_of_all_that_is_asked(self, generator):
        assert generator(*self.SETTINGS, replicas=2).tasks[False].fair == 6
