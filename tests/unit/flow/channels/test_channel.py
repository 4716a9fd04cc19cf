from __future__ import annotations

import contextlib
import gc
import pickle
import threading
import time

import numpy as np
import pytest
import torch

from rlinf_cli.flow import timeline
from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.errors import (
    ChannelBrokenError,
    ChannelClosedError,
    ChannelError,
    ChannelFullError,
    ChannelTimeoutError,
    SerializationError,
)

MB = 1024 * 1024


class Awkward:
    def __reduce__(self):
        raise RuntimeError("not today")


class Landmine:
    """Sends well, and cannot be rebuilt."""

    def __init__(self, array: np.ndarray | None = None) -> None:
        self.array = array

    def __setstate__(self, state: object) -> None:
        raise RuntimeError("boom")


@pytest.fixture
def client(run):
    return run.join("driver")


@pytest.fixture
def channel(client) -> Channel:
    return Channel("c", client)


class TestPutGet:
    def test_in_order(self, channel):
        for number in range(100):
            channel.put(number)
        assert channel.get(200, at_least=100) == list(range(100))

    def test_put_many_keeps_order_weights_and_keys(self, channel):
        channel.put_many("abcd", weights=[1, 2, 3, 4], keys=[None, "x", None, "x"], wait=True)
        assert channel.get(4, weight=4.0, key="x") == ["b"]
        assert channel.get(4, key="x") == ["d"]
        assert channel.get(4) == ["a", "c"]

    def test_put_many_of_nothing(self, channel):
        channel.put_many([], wait=True)
        assert channel.qsize() == 0

    def test_put_many_checks_its_lengths(self, channel):
        with pytest.raises(ValueError, match="2 items, 1 weights and 2 keys"):
            channel.put_many([1, 2], weights=[1.0])

    def test_items_are_copies_as_of_the_put(self, channel):
        item, array = [1], np.arange(100_000)
        channel.put(item)
        channel.put(array)
        item.append(2)
        array[:] = 0
        assert channel.get() == [[1]]
        assert channel.get()[0][5] == 5

    def test_polling(self, channel):
        assert channel.get(3, at_least=0) == []
        channel.put(1, wait=True)
        assert channel.get(3, at_least=0) == [1]

    @pytest.mark.parametrize(("n", "at_least"), [(0, 0), (1, 2), (3, -1)])
    def test_nonsense_amounts_are_refused(self, channel, n, at_least):
        with pytest.raises(ValueError, match="n must be 1 or more"):
            channel.get(n, at_least=at_least)

    @pytest.mark.parametrize("key", [("a", 1), 1.5, b"x"])
    def test_only_text_and_integers_are_keys(self, channel, key):
        with pytest.raises(TypeError, match="a key is a str or an int"):
            channel.put(1, key=key)
        with pytest.raises(TypeError, match="a key is a str or an int"):
            channel.get(key=key)

    def test_a_get_times_out_and_takes_nothing(self, channel):
        began = time.monotonic()
        with pytest.raises(ChannelTimeoutError, match=r"nothing came from channel 'c' within 0\.05 s"):
            channel.get(timeout=0.05)
        assert time.monotonic() - began < 2
        channel.put("a", wait=True)
        with pytest.raises(ChannelTimeoutError):
            channel.get(2, at_least=2, timeout=0)
        assert channel.get() == ["a"]

    def test_a_timeout_never_loses_an_item(self, run, channel):
        """Gets that give up at the very moment an item comes."""
        consumer = run.channel("c", "consumer")
        got: list = []

        def consume() -> None:
            while len(got) < 300:
                with contextlib.suppress(ChannelTimeoutError):
                    got.extend(consumer.get(timeout=0.0005))

        consuming = run.background(consume)
        for number in range(300):
            channel.put(number)
            if number % 10 == 0:
                time.sleep(0.001)
        consuming.value()
        assert got == list(range(300))

    def test_a_get_waits_for_a_put_elsewhere(self, run, channel):
        waiting = run.background(lambda: channel.get(2, at_least=2))
        producer = run.channel("c", "producer")
        producer.put("a")
        producer.put("b")
        assert waiting.value() == ["a", "b"]

    def test_two_producers_and_two_consumers_share_all_items(self, run):
        count, got = 2000, [[], []]
        channel = run.channel("c")
        channel.declare(["p[0]", "p[1]"])

        def produce(identity: str) -> None:
            out = run.channel("c", identity)
            for number in range(count):
                out.put((identity, number))
            out.done(identity)

        def consume(index: int) -> None:
            for chunk in run.channel("c", f"c[{index}]").chunks(16, at_least=1):
                got[index].extend(chunk)

        for call in [run.background(lambda i=i: consume(i)) for i in range(2)] + \
                    [run.background(lambda i=i: produce(f"p[{i}]")) for i in range(2)]:
            call.value(30)
        assert sorted(got[0] + got[1]) == [(f"p[{p}]", n) for p in range(2) for n in range(count)]
        for items in got:
            for identity in ("p[0]", "p[1]"):
                numbers = [number for who, number in items if who == identity]
                assert numbers == sorted(numbers)

    def test_threads_of_one_process_share_a_client(self, run, channel):
        def work(key: str) -> list:
            out = []
            for number in range(200):
                channel.put((key, number), key=key)
                out += channel.get(key=key)
            return out

        for key, call in [(key, run.background(lambda key=key: work(key))) for key in "abcd"]:
            assert call.value(30) == [(key, number) for number in range(200)]

    def test_chunks_are_full_but_for_the_last(self, channel):
        channel.put_many(range(10))
        channel.close()
        assert [len(chunk) for chunk in channel.chunks(4)] == [4, 4, 2]

    def test_iteration_ends_with_the_channel(self, channel):
        channel.put_many(range(5))
        channel.close()
        assert list(channel) == list(range(5))

    def test_qsize_counts_what_was_put_before(self, channel):
        for number in range(50):
            channel.put(number, key=number % 2)
        assert channel.qsize() == 50

    def test_a_handle_is_a_name(self, channel):
        copy = pickle.loads(pickle.dumps(channel))
        assert (copy.name, repr(copy)) == ("c", "Channel('c')")


class TestPayloads:
    @pytest.mark.parametrize("item", [
        np.zeros((0, 4)), np.arange(40_000).reshape(200, 200)[:, ::2], np.asfortranarray(np.ones((300, 300))),
        np.arange(1_000_000), np.arange(3), np.zeros(100_000, [("a", "i4"), ("b", "f8")]), np.float32(2.5),
    ])  # fmt: skip
    def test_arrays(self, channel, item):
        channel.put({"nested": [item]})
        back = channel.get()[0]["nested"][0]
        np.testing.assert_array_equal(back, item)
        assert back.dtype == item.dtype

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
    @pytest.mark.parametrize("count", [0, 3, 200_000])
    def test_tensors(self, channel, dtype, count):
        tensor = torch.arange(count).to(dtype)
        channel.put([tensor])
        [[back]] = channel.get()
        assert back.dtype == dtype
        assert torch.equal(back, tensor)

    def test_bytes_of_every_size(self, channel):
        sizes = [0, 1, 1000, 65_535, 65_536, 65_537, 3 * MB]
        for size in sizes:
            channel.put(bytes([size % 251]) * size)
        assert [(len(item), set(item)) for item in channel.get(9, at_least=len(sizes))] == \
            [(size, {size % 251} if size else set()) for size in sizes]

    def test_large_arrays_are_views_and_small_ones_are_not(self, channel):
        channel.put_many([np.zeros(100_000), np.zeros(10)])
        large, small = channel.get(2, at_least=2)
        assert (large.flags.writeable, small.flags.writeable) == (False, True)

    def test_an_exception_class_travels(self, channel):
        channel.put(KeyError)
        assert channel.get() == [KeyError]

    @pytest.mark.parametrize("item", [Awkward(), {"a": [lambda: 0]}, threading.Lock()])
    def test_what_cannot_be_sent_is_refused_at_put(self, channel, item):
        with pytest.raises(SerializationError, match=type(item).__name__):
            channel.put(item)
        channel.put("next", wait=True)
        assert channel.get(2) == ["next"]

    def test_what_cannot_be_rebuilt_is_named_at_get(self, run, channel, eventually):
        channel.put_many([np.zeros(100_000), Landmine(np.ones(100_000)), np.zeros(100_000)])
        with pytest.raises(ChannelError, match="cannot be rebuilt in this process: boom"):
            channel.get(3, at_least=3)
        eventually(lambda: (gc.collect() and run.controller.stats()["slots"] == 0) or run.controller.stats()["slots"] == 0)
        channel.put("next")
        assert channel.get() == ["next"]

    def test_segments_are_used_again(self, run, channel):
        for number in range(50):
            channel.put(np.full(MB, number, np.uint8))
            [array] = channel.get()
            assert (array == number).all()
            del array
        assert len(run.files()) <= 2

    def test_a_kept_item_keeps_only_its_own(self, run, channel, eventually):
        kept = []
        for number in range(20):
            channel.put(np.full(100_000, number))
            kept += channel.get() if number % 5 == 0 else [channel.get()[0][:0].copy()]
        eventually(lambda: run.controller.stats()["slots"] == 4)
        assert [array[0] for array in kept if len(array)] == [0, 5, 10, 15]

    def test_an_unread_item_is_given_back_when_the_channel_is_dropped(self, run, channel):
        channel.put(np.zeros(100_000), wait=True)
        assert run.controller.stats()["slots"] == 1
        assert channel.drop() == 1
        assert run.controller.stats()["slots"] == 0


class TestSharedMemoryLimits:
    def test_a_full_pool_holds_puts_up(self, make_run):
        run = make_run(pool_bytes=40 * MB)
        channel = run.channel("c")
        for _ in range(4):
            channel.put(np.ones(10 * MB, np.uint8))
        with pytest.raises(ChannelFullError, match="no shared memory is left"):
            channel.put(np.ones(10 * MB, np.uint8), timeout=0.05)
        waiting = run.background(lambda: channel.put(np.full(10 * MB, 7, np.uint8)))
        channel.get()
        waiting.value()
        assert channel.get(4, at_least=4)[3][0] == 7

    def test_an_item_larger_than_the_pool_goes_through(self, make_run):
        run = make_run(pool_bytes=8 * MB)
        channel = run.channel("c")
        for value in (1, 2):
            channel.put(np.full(20 * MB, value, np.uint8))
            [array] = channel.get()
            assert array[-1] == value
            del array

    def test_a_gigabyte_is_a_limit_like_any(self, make_run):
        run = make_run(pool_bytes=1024 * MB)
        channel = run.channel("c")
        block = np.ones(64 * MB, np.uint8)
        with pytest.raises(ChannelFullError):
            channel.put_many([block] * 17, timeout=2)
        assert channel.qsize() == 16

    @pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
    def test_without_shared_memory_items_travel_inline_with_one_warning(self, run, channel, monkeypatch):
        import errno
        import os
        import warnings

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "posix_fallocate", full)
        items = [np.arange(5 * MB), torch.ones(MB), bytes(MB)]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            channel.put_many(items)
        assert [warning.category for warning in caught] == [RuntimeWarning]
        assert "large items travel through the controller" in str(caught[0].message)
        array, tensor, raw = channel.get(3, at_least=3)
        np.testing.assert_array_equal(array, items[0])
        assert torch.equal(tensor, items[1])
        assert raw == items[2]
        assert run.files() == []


class TestCapacity:
    def test_puts_stop_at_the_capacity(self, client, run):
        channel = Channel.create("c", capacity=2, via=client)
        channel.put(1, wait=True)
        channel.put(2, wait=True)
        with pytest.raises(ChannelFullError, match="channel 'c' is full: 1 items put here have found no room"):
            channel.put(3, wait=True, timeout=0.05)
        assert channel.get(5) == [1, 2]
        channel.put(4, wait=True)
        assert channel.get(5) == [4]

    def test_puts_without_wait_stop_soon_after(self, client):
        channel = Channel.create("c", capacity=2, via=client)
        channel.put(0, wait=True)
        with pytest.raises(ChannelFullError):
            channel.put_many(range(100), timeout=0.1)
        assert channel.get(100, at_least=4) == [0, 0, 1, 2]
        assert channel.qsize() == 0

    def test_a_put_that_waits_for_room_is_woken(self, client, run):
        channel = Channel.create("c", capacity=1, via=client)
        channel.put(1, wait=True)
        waiting = run.background(lambda: channel.put(2, wait=True))
        time.sleep(0.05)
        assert waiting.is_alive()
        assert channel.get() == [1]
        waiting.value()
        assert channel.get() == [2]

    def test_bytes_bound_a_channel(self, client):
        channel = Channel.create("c", capacity_bytes=3 * MB, via=client)
        for _ in range(2):
            channel.put(bytes(MB), wait=True)
        with pytest.raises(ChannelFullError):
            channel.put(bytes(MB), wait=True, timeout=0.05)

    def test_a_group_larger_than_the_capacity_arrives(self, client, run):
        channel = Channel.create("c", capacity=2, via=client)
        waiting = run.background(lambda: channel.get(8, at_least=8))
        channel.put_many(range(8), wait=True)
        assert waiting.value() == list(range(8))

    def test_one_full_channel_does_not_hold_another_up(self, client):
        full, free = Channel.create("full", capacity=1, via=client), Channel("free", client)
        for number in range(2):
            full.put(number, timeout=1)
            free.put(number, wait=True, timeout=1)
        assert free.get(2, at_least=2) == [0, 1]

    def test_an_unbounded_channel_takes_everything(self, channel):
        for number in range(20_000):
            channel.put(number)
        channel.flush()
        assert channel.qsize() == 20_000

    def test_flush_says_what_is_left(self, client):
        channel = Channel.create("c", capacity=1, via=client)
        channel.put(0, wait=True)
        channel.put(1)
        with pytest.raises(ChannelFullError):
            channel.flush(timeout=0.05)
        channel.get()
        channel.flush(timeout=5)

    def test_options_are_checked(self, client, channel):
        with pytest.raises(ValueError, match="cannot be negative"):
            Channel.create("c", capacity=-1, via=client)
        channel.put(1, wait=True)
        with pytest.raises(ChannelError, match="create it before the first put"):
            Channel.create("c", capacity=3, via=client)

    def test_waiting_is_charged(self, client, run):
        channel = Channel.create("c", capacity=1, via=client)
        channel.put(1, wait=True)
        with timeline.call() as recorder:
            with pytest.raises(ChannelFullError):
                channel.put(2, wait=True, timeout=0.05)
            channel.get()
            with pytest.raises(ChannelTimeoutError):
                channel.get(timeout=0.05)
        timing = recorder.timing
        assert timing.kinds["wait_space"] >= 0.05
        assert timing.kinds["wait_data"] >= 0.05
        assert timing.compute < 0.05 + timing.total - 0.1


class TestEnd:
    def test_closed_and_drained(self, channel):
        channel.put(1)
        channel.close()
        assert channel.get(4, at_least=4) == [1]
        with pytest.raises(ChannelClosedError, match="channel 'c' is closed and empty"):
            channel.get()

    def test_put_after_close(self, channel):
        channel.close()
        with pytest.raises(ChannelClosedError, match="takes nothing more"):
            channel.put(1, wait=True)

    def test_the_error_of_an_earlier_put_is_raised_by_the_next(self, channel, run, eventually):
        channel.close()
        channel.put(1)
        with pytest.raises(ChannelClosedError):
            channel.flush()
        with pytest.raises(ChannelClosedError):
            channel.put(2)

    def test_refused_items_give_their_shared_memory_back(self, run, channel, eventually):
        channel.close()
        with contextlib.suppress(ChannelClosedError):
            channel.put_many([np.ones(100_000)] * 20)
        eventually(lambda: run.controller.stats()["slots"] == 0)
        pool = channel._client._codec.pool
        eventually(lambda: all(file.unused for file in pool._files.values()))

    @pytest.mark.parametrize("last", ["flush", "close"])
    def test_a_lost_handle_still_tells_of_its_puts(self, client, last):
        Channel("c", client).close()
        Channel("c", client).put(1)
        gc.collect()
        with pytest.raises(ChannelClosedError):
            getattr(Channel("c", client), last)()

    def test_close_does_not_wait_for_room(self, client):
        channel = Channel.create("c", capacity=1, via=client)
        channel.put(1, wait=True)
        channel.put(2)
        channel.close()
        assert [channel.get(), channel.get()] == [[1], [2]]
        with pytest.raises(ChannelClosedError):
            channel.get()

    def test_producers_close_it_together(self, channel, run):
        channel.declare(["p[0]", "p[1]#call"])
        waiting = run.background(lambda: list(channel))
        for identity in ("p[0]", "p[1]"):
            out = run.channel("c", identity)
            out.put(identity)
            out.done(identity if identity == "p[0]" else "p[1]#call")
        assert waiting.value() == ["p[0]", "p[1]"]

    def test_done_of_a_stranger(self, channel):
        channel.declare(["p[0]"])
        with pytest.raises(ChannelError, match=r"'q\[0\]' was not declared"):
            channel.done("q[0]")

    def test_an_error_breaks_it_at_once(self, channel, run):
        channel.declare(["p[0]"])
        channel.put(1, wait=True)
        channel.done("p[0]", error="p[0] failed: boom")
        for _ in range(2):
            with pytest.raises(ChannelBrokenError, match=r"p\[0\] failed: boom"):
                channel.get()
        with pytest.raises(ChannelBrokenError):
            channel.put(2, wait=True)
        channel.done("p[0]", error="again")

    def test_a_disconnected_producer_breaks_it(self, channel, run):
        producer = run.join("p[0]")
        channel.declare(["p[0]"])
        waiting = run.background(channel.get)
        producer.close()
        with pytest.raises(ChannelBrokenError, match=r"p\[0\] left before it was done"):
            waiting.value()

    def test_drop_forgets(self, channel):
        channel.put(1)
        channel.close()
        assert channel.drop() == 1
        channel.put(2, wait=True)
        assert channel.get() == [2]

    def test_drop_forgets_errors(self, channel):
        channel.close()
        channel.put(1)
        with pytest.raises(ChannelClosedError):
            channel.flush()
        channel.drop()
        channel.put(2, wait=True)

    def test_thousands_of_channels_leave_nothing(self, run, client):
        def live() -> int:
            gc.collect()
            return len(gc.get_objects())

        def step(number: int) -> None:
            channel = Channel(f"step-{number}", client)
            channel.put(number)
            assert channel.get() == [number]
            channel.close()
            channel.drop()

        for number in range(100):
            step(number)
        before = live()
        for number in range(2000):
            step(number)
        assert live() < before + 500
        assert run.controller.stats()["channels"] == {}

    def test_handles_elsewhere_leave_nothing(self, run, client, eventually):
        """A worker never drops: what it keeps of a channel goes with its handle."""
        for number in range(300):
            Channel(f"step-{number}", client).put(number)
        client.flush()
        eventually(lambda: gc.collect() is not None and len(client._outboxes) == 0)


class TestCancel:
    def test_everything_ends(self, run, channel):
        full = Channel.create("full", capacity=1, via=run.join("p[0]"))
        full.put(1, wait=True)
        waiting = [run.background(channel.get), run.background(lambda: full.put(2, wait=True)),
                   run.background(lambda: run.channel("other", "c[0]").get())]
        time.sleep(0.1)
        run.join("admin").cancel_all("interrupted by Ctrl-C")
        for call in waiting:
            with pytest.raises(ChannelBrokenError, match="interrupted by Ctrl-C"):
                call.value()
        with pytest.raises(ChannelBrokenError, match="Ctrl-C"):
            channel.put(1, wait=True)
        with pytest.raises(ChannelBrokenError, match="Ctrl-C"):
            run.channel("new").get()

    def test_a_put_that_waits_for_shared_memory_ends(self, make_run):
        run = make_run(pool_bytes=MB)
        channel = run.channel("c")
        channel.put(np.ones(MB, np.uint8))
        waiting = run.background(lambda: channel.put(np.ones(MB, np.uint8)))
        time.sleep(0.05)
        run.join("admin").cancel_all("interrupted")
        with pytest.raises(ChannelBrokenError, match="interrupted"):
            waiting.value()

    def test_done_and_close_still_work(self, run, channel, client):
        channel.declare(["p[0]"])
        client.cancel_all("interrupted")
        channel.done("p[0]")
        channel.close()
        channel.drop()
