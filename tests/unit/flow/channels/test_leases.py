"""Leases, limits and guarded producers through real connections, and through the deaths of real processes."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.errors import ChannelBrokenError, ChannelClosedError, ChannelFullError, ChannelTimeoutError

MB = 1024 * 1024

HOLD = """
    leases = Channel("jobs").lease(2, at_least=2)
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def jobs(run) -> Channel:
    return run.channel("jobs")


@pytest.fixture
def worker(run) -> Channel:
    """The same channel in another process."""
    return run.channel("jobs", "reward[0]")


def counts(run, channel: str = "jobs") -> dict[str, int]:
    found = run.controller.stats()["channels"][channel]
    return {name: found[name] for name in ("put", "delivered", "leased", "waiting", "offered", "dropped")}


def items(leases) -> list[object]:
    return [lease.item for lease in leases]


class TestSettling:
    def test_a_put_settles(self, run, jobs, worker):
        results = Channel("results", worker._client)
        jobs.put_many([1, 2, 3])
        for [lease] in worker_chunks(worker, 3):
            results.put(lease.item * 10, settles=[lease])
        assert results.get(3, at_least=3) == [10, 20, 30]
        assert counts(run) == {"put": 3, "delivered": 3, "leased": 0, "waiting": 0, "offered": 0, "dropped": 0}

    def test_the_last_of_several_items_settles(self, run, jobs, worker):
        results = Channel.create("results", capacity=1, via=worker._client)
        jobs.put("a", wait=True)
        leases = worker.lease()
        results.put_many(["A1", "A2"], settles=leases, timeout=5)
        results.get()
        results.flush()
        assert counts(run)["leased"] == 0

    def test_no_item_settles_at_once(self, run, jobs, worker, eventually):
        jobs.put("a")
        Channel("results", worker._client).put_many([], settles=worker.lease())
        eventually(lambda: counts(run)["delivered"] == 1)

    def test_settle_and_give_back(self, run, jobs, worker, eventually):
        jobs.put_many("abc")
        leases = worker.lease(3, at_least=3)
        worker.settle(leases[:1])
        worker.give_back(leases[1:])
        eventually(lambda: counts(run) == {"put": 3, "delivered": 1, "leased": 0, "waiting": 2, "offered": 0, "dropped": 0})
        assert items(worker.lease(2)) == ["b", "c"]

    def test_what_was_put_is_there_before_the_lease_ends(self, run, jobs, worker):
        """Whatever waits to be sent goes out before the word that a job leaves nothing to do."""
        results = Channel("results", worker._client)
        jobs.put("a")
        leases = worker.lease()
        results.put_many(range(100))
        worker.settle(leases)
        jobs.close()
        with pytest.raises(ChannelClosedError):
            jobs.get()
        assert run.controller.stats()["channels"]["results"]["put"] == 100

    @pytest.mark.parametrize("how", ["settle", "put"])
    def test_twice_is_an_error_of_the_workers_author(self, jobs, worker, how):
        jobs.put("a")
        leases = worker.lease()
        worker.settle(leases)
        results = Channel("results", worker._client)
        with pytest.raises(ValueError, match="of channel 'jobs' has been settled or given back before"):
            worker.settle(leases) if how == "settle" else results.put("A", settles=leases)
        assert results.qsize() == 0

    def test_a_lease_whose_result_is_under_way_is_settled_already(self, jobs, worker):
        results = Channel.create("results", capacity=1, via=worker._client)
        jobs.put("a")
        leases = worker.lease()
        results.put_many(["other", "A"], settles=leases)
        with pytest.raises(ValueError, match="before"):
            worker.settle(leases)

    def test_a_lease_of_another_process_is_refused(self, jobs, worker):
        jobs.put("a")
        leases = worker.lease()
        with pytest.raises(ValueError, match="another process's"):
            jobs.settle(leases)
        jobs.give_back(leases)
        worker.settle(leases)

    def test_a_put_that_fails_leaves_the_lease(self, run, jobs, worker):
        results = Channel.create("results", capacity=1, via=worker._client)
        results.put("other", wait=True)
        jobs.put("a")
        leases = worker.lease()
        with pytest.raises(ChannelFullError):
            results.put("A", settles=leases, wait=True, timeout=0.05)
        with pytest.raises(TypeError):
            results.put(threading.Lock(), settles=leases)
        assert counts(run)["leased"] == 1
        results.get()
        results.put("A", settles=leases, wait=True)
        assert counts(run)["leased"] == 0

    def test_a_put_that_is_refused_leaves_the_lease(self, run, jobs, worker):
        results = Channel("results", worker._client)
        results.close()
        jobs.put("a")
        leases = worker.lease()
        with pytest.raises(ChannelClosedError):
            results.put("A", settles=leases, wait=True)
        worker.settle(leases)
        assert worker.qsize() == 0
        assert counts(run)["delivered"] == 1

    def test_settling_what_was_dropped_is_no_error(self, jobs, worker):
        jobs.put_many("ab")
        leases = worker.lease(2, at_least=2)
        assert jobs.drop() == 2
        worker.settle(leases[:1])
        Channel("results", worker._client).put("B", settles=leases[1:], wait=True)
        assert len(worker._client.leases) == 0


class TestTaking:
    def test_chunks_until_it_is_closed_and_all_is_settled(self, jobs, worker, run):
        jobs.put_many(range(5))
        jobs.close()
        seen = []

        def work() -> None:
            for leases in worker.leases(2):
                seen.append(items(leases))
                worker.settle(leases)

        run.background(work).value()
        assert seen == [[0, 1], [2, 3], [4]]

    def test_it_ends_for_others_when_the_last_lease_is_settled(self, run, jobs, worker):
        jobs.put("a")
        jobs.close()
        leases = worker.lease()
        waiting = run.background(lambda: list(Channel("jobs", jobs._client).leases(1)))
        with pytest.raises(ChannelTimeoutError):
            jobs.lease(timeout=0.05)
        assert jobs.lease(at_least=0) == []
        worker.settle(leases)
        assert waiting.value() == []

    def test_a_lease_that_times_out_takes_nothing(self, run, jobs, worker):
        with pytest.raises(ChannelTimeoutError, match="nothing came from channel 'jobs'"):
            worker.lease(timeout=0.05)
        jobs.put("a", wait=True)
        assert counts(run)["waiting"] == 1

    def test_a_timeout_never_loses_an_item(self, run, jobs, worker):
        """Leases that are given up at the very moment an item comes."""
        got: list = []

        def consume() -> None:
            while len(got) < 200:
                try:
                    leases = worker.lease(timeout=0.0005)
                except ChannelTimeoutError:
                    continue
                got.extend(items(leases))
                worker.settle(leases)

        consuming = run.background(consume)
        for number in range(200):
            jobs.put(number)
        consuming.value()
        assert got == list(range(200))
        assert counts(run)["leased"] == 0

    @pytest.mark.parametrize(("n", "at_least"), [(0, 0), (1, 2)])
    def test_nonsense_amounts_are_refused(self, jobs, n, at_least):
        with pytest.raises(ValueError, match="n must be 1 or more"):
            jobs.lease(n, at_least=at_least)

    def test_what_a_thread_has_leased_and_not_settled(self, run, jobs, worker):
        jobs.put_many("abcd")
        first, second, third = worker.lease(3, at_least=3)
        worker.settle([first])
        Channel("results", worker._client).put("B", settles=[second], wait=True)
        elsewhere = run.background(lambda: (worker.lease(), worker._client.leases.of_this_thread()))
        other, of_other = elsewhere.value()
        assert worker._client.leases.of_this_thread() == [third.id]
        assert of_other == [other[0].id]
        worker._client.leases.give_back(worker._client.leases.of_this_thread())
        assert items(jobs.lease()) == ["c"]


class TestDeath:
    def test_what_a_killed_worker_held_returns_in_order(self, run, jobs, eventually):
        jobs.put_many([np.full(200_000, number) for number in range(3)])
        child = run.child("reward[0]", HOLD)
        assert child.stdout.readline() == b"ready\n"
        assert counts(run)["leased"] == 2
        jobs.close()
        child.kill()
        eventually(lambda: counts(run)["leased"] == 0)
        again = jobs.lease(3, at_least=3)
        assert [item[0] for item in items(again)] == [0, 1, 2]
        jobs.settle(again)
        del again
        eventually(lambda: run.controller.stats()["slots"] == 0)

    def test_each_job_has_one_result_whoever_is_killed(self, run, jobs, eventually):
        """Workers that are killed while they work, and others in their place."""
        work = """
            results = Channel("results")
            for leases in Channel("jobs").leases(4, at_least=1):
                for lease in leases:
                    time.sleep(0.002)
                    results.put((lease.item[0], np.full(20_000, lease.item[0])), settles=[lease])
        """
        jobs.put_many([(number, np.zeros(20_000)) for number in range(150)])
        jobs.close()
        results = Channel("results", jobs._client)
        results.declare(["worker[0]", "worker[1]"], guarded=True)
        children = [run.child(f"worker[{rank}]", work) for rank in range(2)]
        got = results.get(150, at_least=20)
        for rank in range(2):
            children[rank].kill()
            children[rank].wait()
            got += results.get(150, at_least=10)
            children[rank] = run.child(f"worker[{rank}]", work)
        eventually(lambda: counts(run)["delivered"] == 150, timeout=20)
        got += results.get(150, at_least=0)
        assert sorted(number for number, _ in got) == list(range(150))
        assert all((array == number).all() for number, array in got)

    def test_what_a_slot_holds_survives_its_first_reader(self, run, jobs, worker, eventually):
        jobs.put(np.full(MB, 7, np.uint8), wait=True)
        leases = worker.lease()
        assert leases[0].item[0] == 7
        ids = [lease.id for lease in leases]
        del leases
        assert run.controller.stats()["slots"] == 1
        worker._client.leases.give_back(ids)
        [lease] = jobs.lease()
        assert (lease.item == 7).all()
        jobs.settle([lease])
        del lease
        eventually(lambda: run.controller.stats()["slots"] == 0)

    def test_what_a_reader_writes_into_a_tensor_is_not_what_the_next_one_gets(self, jobs, worker):
        jobs.put(torch.ones(MB))
        [lease] = worker.lease()
        lease.item.fill_(5)
        worker.give_back([lease])
        [again] = jobs.lease()
        assert again.item.sum() == MB

    def test_a_guarded_producer_may_come_again(self, run, jobs):
        jobs.declare(["rollout[0]"], guarded=True)
        child = run.child("rollout[0]", "Channel('jobs').put('a', wait=True); print('ready', flush=True); time.sleep(60)")
        assert child.stdout.readline() == b"ready\n"
        child.kill()
        child.wait()
        assert jobs.get() == ["a"]
        run.child("rollout[0]", "Channel('jobs').put('b'); Channel('jobs').done('rollout[0]')")
        assert list(jobs) == ["b"]

    def test_a_fused_process_is_the_producer_of_each_of_its_roles(self, run, jobs):
        jobs.declare(["actor[0]#4"])
        child = run.child("rollout[0]+actor[0]", "print('ready', flush=True); time.sleep(60)")
        assert child.stdout.readline() == b"ready\n"
        child.kill()
        with pytest.raises(ChannelBrokenError, match=r"rollout\[0\]\+actor\[0\] died"):
            jobs.get(timeout=10)


class TestLimit:
    def test_the_producer_is_told_and_the_consumer_served(self, run, jobs, worker, eventually):
        jobs.declare(["reward[0]#1"])
        jobs.limit(3)
        worker.put_many("ab", wait=True)
        assert not worker.is_full
        worker.put("c")
        eventually(lambda: worker.is_full)
        assert not jobs.is_full
        assert list(jobs) == ["a", "b", "c"]

    def test_a_put_too_late_is_an_error_and_the_end_of_the_call_is_not(self, jobs, worker):
        jobs.declare(["reward[0]#1"])
        jobs.limit(2)
        with pytest.raises(ChannelClosedError, match="has accepted all the 2 items"):
            worker.put_many("abcd", wait=True)
        worker.flush()
        worker.done("reward[0]#1")
        assert list(jobs) == ["a", "b"]

    def test_a_result_too_late_leaves_its_lease(self, run, jobs, worker):
        results = Channel("results", worker._client)
        results.limit(1)
        jobs.put_many("ab")
        first, second = worker.lease(2, at_least=2)
        results.put("A", settles=[first], wait=True)
        with pytest.raises(ChannelClosedError):
            results.put("B", settles=[second], wait=True)
        worker.settle([second])

    def test_dropped_its_name_means_another(self, jobs, worker, eventually):
        jobs.declare(["reward[0]#1"])
        jobs.limit(1)
        worker.put("a")
        eventually(lambda: worker.is_full)
        jobs.drop()
        eventually(lambda: not worker.is_full)

    def test_nothing_is_no_limit(self, jobs):
        with pytest.raises(ValueError, match="a limit of 0 items lets nothing through"):
            jobs.limit(0)


def worker_chunks(channel: Channel, count: int):
    for _ in range(count):
        yield channel.lease()
