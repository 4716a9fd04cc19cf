from __future__ import annotations

import errno
import gc
import mmap
import os
import threading
import time

import numpy as np
import pytest
import torch

from rlinf_cli.flow import segments
from rlinf_cli.flow.errors import ChannelBrokenError, ChannelFullError
from rlinf_cli.flow.frames import dump, load
from rlinf_cli.flow.segments import (
    Mappings,
    NoSpaceError,
    SegmentPool,
    Slot,
    Span,
    layout,
    read_segment,
    remove_files_of,
    slot_size,
    views,
)

MB = 1024 * 1024


@pytest.fixture
def directory(tmp_path_factory):
    import tempfile

    with tempfile.TemporaryDirectory(dir="/dev/shm") as path:
        yield path


@pytest.fixture
def pool(directory) -> SegmentPool:
    return SegmentPool(directory, 1, 64 * MB)


def store(pool: SegmentPool, item: object) -> Slot:
    pickled = dump(item)
    used, stream, spans = layout(pickled, stream_outside=True)
    slot = pool.acquire(used, 1.0)
    pool.write(slot, stream, pickled.pieces)
    for span, buffer in zip(spans, pickled.buffers, strict=True):
        pool.write(slot, span, [buffer.raw()])
    return Slot("node", slot, used, stream, spans)


class Reader:
    """A consumer that notes what it has released."""

    def __init__(self, directory: str) -> None:
        self.released: list = []
        self.mappings = Mappings(directory, self.released.append)

    def read(self, slot: Slot):
        return load(*self.mappings.open(slot))


class TestSizes:
    @pytest.mark.parametrize("size", [1, 100, 4096, 4097, 100_000, 10 * MB, 10 * MB + 1, 2**33 + 1])
    def test_classes_waste_little(self, size):
        rounded = slot_size(size)
        assert size <= rounded < size * 1.25 + mmap.PAGESIZE
        assert rounded % mmap.PAGESIZE == 0
        assert slot_size(rounded) == rounded

    def test_parts_are_aligned_and_apart(self):
        pickled = dump([np.zeros(100_001, np.uint8), torch.zeros(100_001, dtype=torch.uint8)])
        used, stream, spans = layout(pickled, stream_outside=True)
        assert stream == Span(0, pickled.stream_size, False)
        assert [span.start % 64 for span in spans] == [0, 0]
        assert [span.writable for span in spans] == [False, True]
        assert spans[0].start >= stream.length
        assert spans[1].start >= spans[0].start + spans[0].length
        assert used >= spans[1].start + spans[1].length

    def test_a_stream_that_stays_in_the_message_takes_no_place(self):
        used, stream, spans = layout(dump(np.zeros(100_000, np.uint8)), stream_outside=False)
        assert stream is None
        assert (spans[0].start, used) == (0, 100_032)


class TestPool:
    def test_a_slot_given_back_is_used_again(self, pool):
        first = pool.acquire(10 * MB, 1)
        pool.give_back([first])
        assert pool.acquire(10 * MB, 1) == first
        assert len(os.listdir(pool.directory)) == 1

    def test_small_slots_share_a_file(self, pool):
        slots = {pool.acquire(64 * 1024, 1) for _ in range(64)}
        assert len(slots) == 64
        assert len({slot.file for slot in slots}) == 1

    def test_files_grow_with_the_pool(self, directory):
        pool = SegmentPool(directory, 1, 1024 * MB)
        for _ in range(4000):
            pool.acquire(64 * 1024, 1)
        assert len(os.listdir(directory)) < 40
        pool.give_back([])

    def test_the_limit_holds_and_a_full_pool_says_so(self, pool):
        slots = [pool.acquire(10 * MB, 1) for _ in range(6)]
        assert pool.total <= pool.limit
        began = time.monotonic()
        with pytest.raises(ChannelFullError, match="no shared memory is left"):
            pool.acquire(10 * MB, 0.1)
        assert 0.1 <= time.monotonic() - began < 2
        pool.give_back(slots[:1])
        assert pool.acquire(10 * MB, 0.1) == slots[0]

    def test_a_waiting_put_goes_on_when_a_slot_comes_back(self, pool):
        slots = [pool.acquire(10 * MB, 1) for _ in range(6)]
        got: list = []
        thread = threading.Thread(target=lambda: got.append(pool.acquire(10 * MB, 10)))
        thread.start()
        time.sleep(0.05)
        assert got == []
        pool.give_back([slots[3]])
        thread.join(5)
        assert got == [slots[3]]

    def test_idle_files_make_room_for_another_size(self, pool):
        slots = [pool.acquire(10 * MB, 1) for _ in range(6)]
        pool.give_back(slots)
        pool.acquire(30 * MB, 0.1)
        assert pool.total <= pool.limit
        assert len(pool.take_removed()) >= 3
        assert pool.take_removed() == []

    def test_an_item_larger_than_the_pool_comes_alone_and_does_not_stay(self, pool):
        other = pool.acquire(MB, 1)
        with pytest.raises(ChannelFullError):
            pool.acquire(100 * MB, 0.05)
        pool.give_back([other])
        large = pool.acquire(100 * MB, 0.05)
        assert pool.total >= 100 * MB
        pool.give_back([large])
        assert pool.total == 0
        assert os.listdir(pool.directory) == []

    def test_a_full_file_system_is_an_error_and_leaves_nothing(self, pool, monkeypatch):
        def full(fd: int, offset: int, length: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "posix_fallocate", full)
        with pytest.raises(NoSpaceError):
            pool.acquire(MB, 1)
        assert os.listdir(pool.directory) == []
        assert pool.total == 0
        monkeypatch.undo()
        pool.acquire(MB, 1)

    def test_the_file_system_is_not_filled_to_the_brim(self, directory):
        with pytest.raises(NoSpaceError, match="are free"):
            SegmentPool(directory, 1, 1 << 50).acquire(os.statvfs(directory).f_bavail * 4096 - MB, 1)

    def test_a_missing_directory_is_no_space(self):
        with pytest.raises(NoSpaceError):
            SegmentPool("/dev/shm/rlinf-not-there", 1, MB).acquire(MB, 1)

    def test_failing_ends_the_wait(self, pool):
        for _ in range(6):
            pool.acquire(10 * MB, 1)
        threading.Timer(0.05, lambda: pool.fail(ChannelBrokenError("over"))).start()
        with pytest.raises(ChannelBrokenError, match="over"):
            pool.acquire(10 * MB, 10)

    def test_threads_never_share_a_slot(self, pool):
        held: set = set()
        wrong: list = []
        lock = threading.Lock()

        def work() -> None:
            for _ in range(100):
                slot = pool.acquire(MB, 10)
                with lock:
                    wrong.extend([slot] * (slot in held))
                    held.add(slot)
                with lock:
                    held.discard(slot)
                pool.give_back([slot])

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


class TestReading:
    def test_what_was_written_is_read(self, pool, directory):
        item = {"a": np.arange(50_000), "text": "x" * 100_000, "raw": [bytes(range(256)) * 1000], "none": None}
        back = Reader(directory).read(store(pool, item))
        np.testing.assert_array_equal(back["a"], item["a"])
        assert (back["text"], back["raw"], back["none"]) == (item["text"], item["raw"], None)

    def test_arrays_are_views_that_cannot_be_written_to(self, pool, directory):
        array = Reader(directory).read(store(pool, np.arange(50_000)))
        assert not array.flags.owndata
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True

    def test_a_slot_is_released_with_its_last_view(self, pool, directory):
        reader = Reader(directory)
        slot = store(pool, [np.arange(50_000), np.ones(50_000)])
        first, second = reader.read(slot)
        part = first[10:20]
        del first, second
        gc.collect()
        assert reader.released == []
        assert list(part) == list(range(10, 20))
        del part
        assert reader.released == [slot.id]

    def test_bytes_release_the_slot_at_once(self, pool, directory):
        reader = Reader(directory)
        slot = store(pool, bytes(1_000_000))
        assert reader.read(slot) == bytes(1_000_000)
        assert reader.released == [slot.id]

    def test_a_view_that_lives_in_a_cycle_is_released_by_the_collector(self, pool, directory):
        reader = Reader(directory)
        holder: dict = {"array": reader.read(store(pool, np.arange(50_000)))}
        holder["self"] = holder
        del holder
        gc.collect()
        assert len(reader.released) == 1

    def test_a_tensor_may_be_written_to_and_nobody_else_sees_it(self, pool, directory):
        slot = store(pool, torch.ones(50_000))
        mine, theirs = Reader(directory), Reader(directory)
        tensor, same = mine.read(slot), theirs.read(slot)
        tensor += 41
        assert (tensor[0], same[0]) == (42, 1)
        assert read_segment(directory, slot.id.file, slot.id.offset + slot.buffers[0].start, 4).view(np.float32)[0] == 1

    def test_what_was_written_to_a_tensor_is_gone_with_the_next_item(self, pool, directory):
        reader = Reader(directory)
        slot = store(pool, torch.ones(50_000))
        tensor = reader.read(slot)
        tensor.zero_()
        del tensor
        pool.give_back(reader.released)
        again = store(pool, torch.full((50_000,), 7.0))
        assert again.id == slot.id
        assert torch.equal(reader.read(again), torch.full((50_000,), 7.0))

    def test_a_mapped_file_shows_each_new_item(self, pool, directory):
        reader = Reader(directory)
        for value in range(20):
            slot = store(pool, np.full(50_000, value))
            assert (reader.read(slot) == value).all()
            pool.give_back(reader.released)
            reader.released.clear()
        assert len(os.listdir(directory)) == 1

    def test_a_forgotten_file_stays_readable_while_views_live(self, pool, directory):
        reader = Reader(directory)
        slot = store(pool, np.arange(50_000))
        array = reader.read(slot)
        os.unlink(os.path.join(directory, slot.id.file))
        reader.mappings.forget([slot.id.file, "unknown"])
        assert array.sum() == sum(range(50_000))

    def test_a_copy_serves_a_reader_elsewhere(self, pool, directory):
        item = [np.arange(50_000), torch.ones(50_000)]
        slot = store(pool, item)
        data = read_segment(directory, slot.id.file, slot.id.offset, slot.used)
        data.flags.writeable = False
        array, tensor = load(*views(data, slot))
        np.testing.assert_array_equal(array, item[0])
        tensor += 1
        assert tensor.sum() == 100_000


class TestFiles:
    def test_reading_stays_in_the_directory(self, directory):
        with pytest.raises(FileNotFoundError):
            read_segment(directory, "../../etc/passwd", 0, 10)

    def test_only_the_files_of_one_owner_go(self, directory):
        for name in ("1-1", "1-2", "11-1", "socket"):
            open(os.path.join(directory, name), "w").close()
        remove_files_of(directory, 1, keep=["1-2"])
        assert sorted(os.listdir(directory)) == ["1-2", "11-1", "socket"]
        segments.remove_file(directory, "1-1")

    def test_a_missing_directory_holds_nothing(self):
        remove_files_of("/dev/shm/rlinf-not-there", 1)
