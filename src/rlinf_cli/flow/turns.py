"""A worker's turns on its devices, where other roles compute on them too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rlinf_cli.flow.worker import Worker


class Turns:
    """Of one worker. A turn is asked for by the ticket that its call was issued with."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    @contextmanager
    def taken(self, ticket: int) -> Iterator[None]:
        """The group holds its devices inside, and what the worker needs is on them."""
        yield
