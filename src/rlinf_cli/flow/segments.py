"""Large items in shared memory: the producer copies once into a pooled slot, the consumer reads it where it lies.

A *file* (in a directory of the run under /dev/shm) holds slots of one size; a *slot* holds one item. Files are
allocated before they are mapped, so that a full /dev/shm is an error here and not a SIGBUS later, and their pages are
faulted in once and then used again.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.flow.errors import ChannelError, ChannelFullError
from rlinf_cli.flow.frames import Bytes, Pickled, is_tensor
from rlinf_cli.flow.timeline import spent
from rlinf_cli.state.slots import SlotId

Array = NDArray[np.uint8]

_ALIGN = 64
_SMALLEST_FILE = 4 * 1024 * 1024
_POPULATE_READ = 22  # MADV_POPULATE_READ (Linux 5.14), which the mmap module does not name


class Span(NamedTuple):
    """A part of a slot: a stream or a buffer."""

    start: int
    length: int
    writable: bool


class Slot(NamedTuple):
    """Where an item lies. The consumer gets this instead of the bytes."""

    node: str
    id: SlotId
    used: int
    """Bytes of the slot that hold the item."""
    stream: Span | None
    buffers: tuple[Span, ...]


class NoSpaceError(Exception):
    """The shared-memory file system is full, or the directory is not there (a node without a NodeStore)."""


def slot_size(size: int) -> int:
    """Round up to a size class: four of them between two powers of two, whole pages."""
    step = max(mmap.PAGESIZE, 1 << max(0, (size - 1).bit_length() - 3))
    return -(-size // step) * step


def layout(pickled: Pickled, stream_outside: bool) -> tuple[int, Span | None, tuple[Span, ...]]:
    """Bytes needed, and where the stream (unless it stays in the message) and the buffers go."""
    end, stream, spans = 0, None, []
    if stream_outside:
        stream = Span(0, pickled.stream_size, False)
        end = _aligned(pickled.stream_size)
    for buffer in pickled.buffers:
        length = buffer.raw().nbytes
        spans.append(Span(end, length, is_tensor(buffer)))
        end = _aligned(end + length)
    return end, stream, tuple(spans)


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGN) * _ALIGN


# ---- producer ----


@dataclass(slots=True)
class _File:
    name: str
    slot_size: int
    array: Array
    idle: set[int] = field(default_factory=set)
    """Offsets of the slots that are not in use."""

    @property
    def unused(self) -> bool:
        return len(self.idle) * self.slot_size == len(self.array)


class SegmentPool:
    """The slots of one producer, used again and again. Thread-safe. `limit`: bytes of all files together.

    An item larger than the limit gets a file of its own when nothing else is in use.
    """

    def __init__(self, directory: str, owner: int, limit: int) -> None:
        self.directory, self.owner, self.limit = directory, owner, limit
        self.total = 0
        self._files: dict[str, _File] = {}
        self._idle: dict[int, list[tuple[_File, int]]] = {}
        self._made = 0
        self._removed: list[str] = []
        self._failure: ChannelError | None = None
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)

    def acquire(self, size: int, timeout: float) -> SlotId:
        """A slot of at least `size` bytes; waits up to `timeout` seconds until consumers have given enough back.

        Raises NoSpaceError when the file system is full, ChannelFullError when the limit is reached and nothing comes.
        """
        wanted, deadline = slot_size(size), time.monotonic() + timeout
        with self._lock:
            while (slot := self._take(wanted)) is None:
                with spent("wait_space"):
                    if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                        raise ChannelFullError(
                            f"no shared memory is left for an item of {size} bytes: all {self.limit} bytes hold items "
                            "that wait in channels or that consumers keep")
            return slot

    def _take(self, wanted: int) -> SlotId | None:
        if self._failure is not None:
            raise self._failure
        idle = self._idle.setdefault(wanted, [])
        if not idle and not self._grow(wanted):
            return None
        file, offset = idle.pop()
        file.idle.discard(offset)
        return SlotId(self.owner, file.name, offset)

    def fail(self, error: ChannelError) -> None:
        """End all waiting: nothing will be given back any more."""
        with self._lock:
            self._failure = error
            self._changed.notify_all()

    def write(self, slot: SlotId, span: Span, pieces: Iterable[Bytes]) -> None:
        """Copy pieces of bytes, one behind the other, to their place in a slot."""
        array, end = self._files[slot.file].array, slot.offset + span.start
        for piece in pieces:
            start, end = end, end + len(piece)
            np.copyto(array[start:end], np.frombuffer(piece, np.uint8))

    def give_back(self, slots: Iterable[SlotId]) -> None:
        with self._lock:
            for slot in slots:
                file = self._files[slot.file]
                file.idle.add(slot.offset)
                self._idle[file.slot_size].append((file, slot.offset))
            if self.total > self.limit:
                self._trim(self.total - self.limit)
            self._changed.notify_all()

    def take_removed(self) -> list[str]:
        """Files removed since the last call: consumers should forget them."""
        with self._lock:
            removed, self._removed = self._removed, []
            return removed

    def _grow(self, wanted: int) -> bool:
        """Add a file. It grows with the pool, so that a large pool is not thousands of files."""
        size = max(wanted, max(_SMALLEST_FILE, self.total // 8) // wanted * wanted)
        if self.total + size > self.limit:
            size = wanted
            self._trim(self.total + size - self.limit)
        if self.total and self.total + size > self.limit:
            return False
        try:
            file = self._create(wanted, size)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.ENOMEM, errno.ENOENT):
                raise
            self._trim(self.total)
            raise NoSpaceError(str(error)) from error
        self.total += size
        self._files[file.name] = file
        file.idle = set(range(0, size, wanted))
        self._idle[wanted].extend((file, offset) for offset in sorted(file.idle, reverse=True))
        return True

    def _create(self, wanted: int, size: int) -> _File:
        stat = os.statvfs(self.directory)
        if size > stat.f_bavail * stat.f_frsize - stat.f_blocks * stat.f_frsize // 20:
            # the last twentieth is left to others (Ray's object store lives there, and dies of a full file system)
            raise OSError(errno.ENOSPC, f"less than {size} bytes are free in {self.directory}")
        self._made += 1
        name = f"{self.owner}-{self._made}"
        path = os.path.join(self.directory, name)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.posix_fallocate(fd, 0, size)
            mapping = mmap.mmap(fd, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        except OSError:
            os.unlink(path)
            raise
        finally:
            os.close(fd)
        return _File(name, wanted, np.frombuffer(mapping, np.uint8))

    def _trim(self, excess: int) -> None:
        """Remove files that are not in use until `excess` bytes are gone."""
        for file in [file for file in self._files.values() if file.unused]:
            if excess <= 0:
                return
            excess -= len(file.array)
            self.total -= len(file.array)
            del self._files[file.name]
            self._idle[file.slot_size] = [entry for entry in self._idle[file.slot_size] if entry[0] is not file]
            self._removed.append(file.name)
            remove_file(self.directory, file.name)


# ---- consumer ----


class _Mapping:
    """A file as its readers see it: what they write stays theirs and is taken back before the slot's next item."""

    def __init__(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY)
        try:
            # private, so that writing to a tensor neither faults nor shows elsewhere; pages not written to are shared
            access = mmap.PROT_READ | mmap.PROT_WRITE
            self.map = mmap.mmap(fd, os.fstat(fd).st_size, flags=mmap.MAP_PRIVATE, prot=access)
        finally:
            os.close(fd)
        self._populated: set[int] = set()

    def array(self, slot: Slot) -> Array:
        if slot.id.offset not in self._populated:
            self._populated.add(slot.id.offset)
            with contextlib.suppress(OSError):  # an older kernel: the pages are faulted in one by one
                self.map.madvise(_POPULATE_READ, slot.id.offset, slot_size(slot.used))
        return np.frombuffer(self.map, np.uint8, slot.used, slot.id.offset)

    def discard_writes(self, offset: int, size: int) -> None:
        self._populated.discard(offset)
        self.map.madvise(mmap.MADV_DONTNEED, offset, size)


class Mappings:
    """The files that a consumer has mapped, each once. `released(slot)` is called when the last view of a slot is gone.

    It may be called at any point of any thread (garbage collection), so it must take no lock.
    """

    def __init__(self, directory: str, released: Callable[[SlotId], None]) -> None:
        self.directory, self._released = directory, released
        self._maps: dict[str, _Mapping] = {}
        self._lock = threading.Lock()

    def open(self, slot: Slot) -> tuple[Bytes | None, list[Bytes]]:
        """The stream, if it is there, and the buffers: views which keep the slot from being released."""
        with self._lock:
            mapping = self._maps.get(slot.id.file)
            if mapping is None:
                mapping = self._maps[slot.id.file] = _Mapping(os.path.join(self.directory, slot.id.file))
        array = mapping.array(slot)
        writable = any(span.writable for span in slot.buffers)
        weakref.finalize(array, self._ended, slot, mapping if writable else None).atexit = False
        return views(array, slot)

    def forget(self, files: Iterable[str]) -> None:
        """Unmap files that will not be used again (one whose views still live goes with the last of them)."""
        with self._lock:
            for file in files:
                self._maps.pop(file, None)

    def _ended(self, slot: Slot, mapping: _Mapping | None) -> None:
        if mapping is not None:
            mapping.discard_writes(slot.id.offset, slot_size(slot.used))
        self._released(slot.id)


def views(array: Array, slot: Slot) -> tuple[Bytes | None, list[Bytes]]:
    """The parts of a slot's bytes; only those of tensors may be written to."""
    whole = memoryview(array)  # type: ignore[arg-type]
    parts = [whole[span.start : span.start + span.length] for span in slot.buffers]
    buffers: list[Bytes] = [part if span.writable else part.toreadonly()
                            for part, span in zip(parts, slot.buffers, strict=True)]
    return (whole[slot.stream.start : slot.stream.start + slot.stream.length] if slot.stream else None), buffers


# ---- files ----


def read_segment(directory: str, file: str, offset: int, length: int) -> Array:
    """A copy of a part of a file. Raises FileNotFoundError when it is gone."""
    path = os.path.join(directory, os.path.basename(file))
    return np.fromfile(path, np.uint8, length, offset=offset)


def remove_file(directory: str, file: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(directory, file))


def remove_files_of(directory: str, owner: int, keep: Iterable[str] = ()) -> None:
    """Remove what a producer that is gone has left, but for the files that somebody still reads."""
    kept = set(keep)
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(directory):
            if name.startswith(f"{owner}-") and name not in kept:
                remove_file(directory, name)
