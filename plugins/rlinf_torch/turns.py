"""A lock between one busy loop and callers that must not starve."""

from __future__ import annotations

import threading
from types import TracebackType


class FairLock:
    """A lock that nobody can take twice in a row past a waiting thread: who waits comes next.

    A plain lock that a loop gives back only to take it again at once may never reach another thread.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._turn:
            self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._lock.release()
