"""A rollout that serves agents: single requests as they come, answered as they end."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rlinf_cli.contracts.engine import Completion, Request
from rlinf_cli.flow.channel import Lease
from rlinf_cli.flow.errors import ChannelClosedError
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.workers.engine_share import SLICE_S, EngineShare, Stake

_IDLE_S = 0.05
"""Between two looks for requests where there are none."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of an agent. `evaluation`: it sees one version of the weights, with all others of its kind."""

    request: Request
    evaluation: bool = False


@dataclass
class _Open:
    """A request under way, and the leases that its completion settles: an agent that was started again asks once more."""

    request: Request
    leases: list[Lease]
    later: list[Lease] = field(default_factory=list)
    """Of the same name, with another prompt: an agent that was started again has read something else."""


class Serving:
    """One call. `key`: of the requests that are for this replica."""

    def __init__(self, share: EngineShare, requests: In[Asked], turns: Out[Completion], key: int) -> None:
        self._share, self._requests, self._turns, self._key = share, requests, turns, key
        self._come: queue.SimpleQueue[list[Lease] | Exception | None] = queue.SimpleQueue()
        self._open: dict[str, _Open] = {}
        self._room = threading.Semaphore(0)

    def run(self) -> None:
        """Until no more requests can come and all are answered. Raises what the channels raise."""
        with self._share.stake() as stake, self._reader():
            is_over = False
            while self._open or not is_over:
                if self._open:
                    for completion in self._share.collect(stake, SLICE_S):
                        self._answer(stake, completion)
                is_over = self._take(stake, wait=not self._open and not is_over) or is_over
                self._share.tell(stake, wants=False)

    def _take(self, stake: Stake, wait: bool) -> bool:
        """Submit what has come; whether nothing more can come."""
        with contextlib.suppress(queue.Empty):
            while True:
                found = self._come.get(timeout=_IDLE_S) if wait else self._come.get_nowait()
                if isinstance(found, Exception):
                    raise found
                if found is None:
                    return True
                self._submit(stake, found)
                wait = False
        return False

    def _submit(self, stake: Stake, leases: Sequence[Lease]) -> None:
        new: list[Request] = []
        for lease in leases:
            asked: Asked = lease.item
            request = asked.request
            if asked.evaluation:
                self._share.begin_evaluation(stake)
            known = self._open.get(request.id)
            if known is None:
                self._open[request.id] = _Open(request, [lease])
                new.append(request)
            elif known.request.prompt_ids.tobytes() == request.prompt_ids.tobytes():
                known.leases.append(lease)
            else:
                known.later.append(lease)
        if new:
            self._share.submit(stake, new)

    def _answer(self, stake: Stake, completion: Completion) -> None:
        done = self._open.pop(completion.id)
        self._turns.put(completion, weight=len(completion.token_ids), settles=done.leases)
        for _ in done.leases:
            self._room.release()
        if done.later:
            self._submit(stake, done.later)

    @contextlib.contextmanager
    def _reader(self) -> Iterator[None]:
        """Another thread waits for requests, so that the engine never does; it takes no more than the engine has slots, twice
        over: what waits in the channel is there for this replica's successor, should it die."""
        for _ in range(2 * self._share.engine.capacity):
            self._room.release()
        reader = threading.Thread(target=self._read, name="rlinf-requests", daemon=True)
        reader.start()
        yield

    def _read(self) -> None:
        try:
            while True:
                count = self._slots()
                leases = self._requests.lease(count, at_least=1, key=self._key)
                for _ in range(count - len(leases)):
                    self._room.release()
                self._come.put(leases)
        except ChannelClosedError:
            self._come.put(None)
        except Exception as error:  # it belongs to the call
            self._come.put(error)

    def _slots(self) -> int:
        """So many requests may be taken, one at least: waits for it."""
        self._room.acquire()
        count = 1
        while self._room.acquire(blocking=False):
            count += 1
        return count

