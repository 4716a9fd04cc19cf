"""Carries out, in the driver, what `state.supervisor` decides about deaths: ranks are started again, moved, or given up."""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any

import ray

from rlinf_cli.errors import RlinfError, RunError
from rlinf_cli.flow.answers import Answer, error_of
from rlinf_cli.flow.crew import Crew
from rlinf_cli.flow.devices import Device
from rlinf_cli.flow.errors import WorkerDiedError, WorkerError
from rlinf_cli.flow.group import Group
from rlinf_cli.flow.incident import Action, Incident
from rlinf_cli.flow.nodes import living_nodes
from rlinf_cli.flow.seat import Seat
from rlinf_cli.flow.watch import Watch, reason_of
from rlinf_cli.state.supervisor import (
    Died,
    Event,
    GiveUp,
    Instruction,
    Launched,
    Progressed,
    Replace,
    Restart,
    Restarted,
    RestartFailed,
    Retire,
    Stopped,
    SupervisorState,
)

log = logging.getLogger(__name__)

_SLICE_S = 0.1
"""How long to wait at once: a shutdown is looked at in between."""
_VERDICT_S = 5.0
"""How long the end of a process may take to be seen."""
_JOIN_S = 5.0


@dataclass(frozen=True)
class _Death:
    """One that is being dealt with."""

    crew: Crew
    rank: int
    error: WorkerDiedError
    seen: float
    """By `time.monotonic`."""


class _Abandoned(Exception):
    """The cluster, or the role, is ended while one of its ranks is started again."""


class _NotMade(Exception):
    """A worker's constructor raised in the new process, or what was to bring it what it needs did."""

    def __init__(self, error: WorkerError) -> None:
        super().__init__(str(error))
        self.error = error


class Supervision:
    """Its threads, one for each rank that is being started again, call `before_resume` and `on_incident`; the thread of the
    watch calls `on_incident` too."""

    def __init__(self, node_id: str, devices: Sequence[Device], restarts: int, stall_timeout: float,
                 start_timeout: float) -> None:
        self.before_resume: Callable[[Group, int], str] = lambda group, rank: ""
        self.on_incident: Callable[[Incident], None] = lambda incident: None
        self._devices, self._start_timeout = devices, start_timeout
        self._state = SupervisorState(restarts, stall_timeout)
        self._crews: dict[str, Crew] = {}
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self.watch = Watch(node_id, self._died)

    # ---- for the cluster ----

    def add(self, crew: Crew) -> None:
        """A crew was launched, for the first time or in the place of one that `leave` has taken."""
        self._crews[crew.name] = crew
        self.handle(Launched(crew.name, len(crew.actors), not crew.restartable))
        self.watch.add(crew)

    def leave(self, crew: Crew) -> list[Any]:
        """What becomes of the crew is no news any more; see `Watch.remove`."""
        crew.ended = True
        return self.watch.remove(crew)

    def stopped(self, crew: Crew) -> None:
        del self._crews[crew.name]
        self.handle(Stopped(crew.name))

    def crew_of(self, role: str) -> Crew:
        return next(crew for crew in self._crews.values() for part in crew.parts if part.role == role)

    def handle(self, event: Event) -> list[Instruction]:
        """What is to be done; the caller does it."""
        with self._lock:
            return self._state.handle(event)

    def progressed(self) -> None:
        self.handle(Progressed())

    def may_recover(self, error: BaseException) -> bool:
        """Whether a role that has died can be launched again. Waits until its end is seen here too."""
        if not isinstance(error, WorkerDiedError):
            return False
        name, deadline = self.crew_of(error.role).name, time.monotonic() + _VERDICT_S
        while time.monotonic() < deadline:
            with self._lock:
                verdict = self._state.is_recovering(name)
            if verdict is not None:
                return verdict
            time.sleep(_SLICE_S)
        return False

    def stop(self) -> None:
        self.watch.stop()
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(_JOIN_S)

    # ---- deaths ----

    def _died(self, crew: Crew, rank: int, told: BaseException) -> None:
        """On the thread of the watch."""
        if crew.ended:
            return
        if crew.restartable:
            for group in crew.groups:
                group.hold_rank(rank)
        else:
            self.watch.mourn(crew, rank, told)
        reason, pid = self.watch.fate(crew, rank, told)
        group = next((one for one in crew.groups if not one.is_idle(rank)), crew.groups[0])
        death = _Death(crew, rank, group.death(rank, reason, pid), time.monotonic())
        for instruction in self.handle(Died(crew.name, rank, *self._left(crew, rank))):
            if isinstance(instruction, Restart | Replace):
                self._in_background(death, instruction)
            else:
                self._finish(death, instruction)

    def _in_background(self, death: _Death, instruction: Instruction) -> None:
        thread = threading.Thread(target=self._restore, args=(death, instruction), daemon=True,
                                  name=f"rlinf-restart-{death.crew.name}-{death.rank}")
        with self._lock:
            self._threads = [*(one for one in self._threads if one.is_alive()), thread]
        thread.start()

    def _restore(self, death: _Death, instruction: Instruction) -> None:
        """Start a rank again until it works or that is to be left; on a thread of its own."""
        self.watch.aside()
        crew, rank = death.crew, death.rank
        try:
            while isinstance(instruction, Restart | Replace):
                failed, cause = self._attempt(death, isinstance(instruction, Replace))
                if failed is None:
                    return
                if crew.ended or self.watch.is_stopping:
                    raise _Abandoned
                instructions = self.handle(failed)
                if not instructions:
                    return
                instruction = instructions[0]
            self._finish(death, instruction, cause)
        except _Abandoned:
            crew.kill(rank)

    def _attempt(self, death: _Death, elsewhere: bool) -> tuple[RestartFailed | None, WorkerError | None]:
        """Why the rank could not be started again, with the error to raise if trying again is no use; None when it works."""
        crew, rank = death.crew, death.rank
        try:
            detail = self._bring_up(crew, rank, self._seats_elsewhere(crew, rank) if elsewhere else ())
        except _NotMade as error:
            return self._failed(crew, rank, str(error), hopeless=True), error.error
        except ray.exceptions.RayError as error:
            return self._failed(crew, rank, reason_of(error)), None
        except RlinfError as error:
            return self._failed(crew, rank, str(error)), None
        self.handle(Restarted(crew.name, rank))
        for group in crew.groups:
            group.resend_rank(rank)
        self.watch.add_rank(crew, rank)
        self._tell(death, "restarted", detail, time.monotonic() - death.seen)
        return None, None

    def _bring_up(self, crew: Crew, rank: int, seats: Sequence[Seat]) -> str:
        """A new process with its workers made, and all that they need to go on; what is to be known of it."""
        building = crew.renew(rank, seats)
        self._await(crew, building)
        for group, ref in zip(crew.groups, building, strict=True):
            failure = Answer.unpack(ray.get(ref)).failure
            if failure is not None:
                raise _NotMade(error_of(failure, group.role, rank, group.seats[rank].node))
        return " and ".join(filter(None, (self._prepare(group, rank) for group in crew.groups)))

    def _prepare(self, group: Group, rank: int) -> str:
        try:
            return self.before_resume(group, rank)
        except WorkerDiedError as error:
            if error.role == group.role:
                raise
            # the run goes back to a checkpoint, or ends: nothing that this rank makes until then is used
            return f"nothing from {error.role}, which has died too"
        except (RlinfError, ray.exceptions.RayError):
            raise
        except Exception as error:  # the hook's own code: a mistake that it would repeat
            seat, what = group.seats[rank], f"{type(error).__name__}: {error}"
            raise _NotMade(WorkerError(group.role, rank, seat.node, "before_resume", what, traceback.format_exc(),
                                       error)) from error

    def _await(self, crew: Crew, refs: Sequence[Any]) -> None:
        deadline = time.monotonic() + self._start_timeout
        while len(ray.wait(list(refs), num_returns=len(refs), timeout=_SLICE_S)[0]) < len(refs):
            if crew.ended or self.watch.is_stopping:
                raise _Abandoned
            if time.monotonic() > deadline:
                raise RunError(f"its new process was not ready within {self._start_timeout:g} s")

    def _failed(self, crew: Crew, rank: int, why: str, hopeless: bool = False) -> RestartFailed:
        return RestartFailed(crew.name, rank, why, *self._left(crew, rank), hopeless)

    def _finish(self, death: _Death, instruction: Instruction, cause: WorkerError | None = None) -> None:
        crew, rank = death.crew, death.rank
        if isinstance(instruction, Retire):
            for group in crew.groups:
                group.retire_rank(rank)
            self._tell(death, "retired", f"{len(crew.groups[0].alive)} of {len(crew.actors)} ranks")
        elif isinstance(instruction, GiveUp):
            if crew.restartable:
                crew.kill(rank)
                for group in crew.groups:
                    detail = f"{death.error.detail}; {instruction.why}"
                    self.watch.lose(group, rank, cause or group.death(rank, detail, death.error.pid))
            self._tell(death, "gave up", "", because=instruction.why)

    def _tell(self, death: _Death, action: Action, detail: str, seconds: float = 0.0, because: str = "") -> None:
        error = death.error
        what = f"{error.what}; {because}" if because else error.what
        try:
            self.on_incident(Incident(time.time(), error.role, error.rank, error.node, what, action, detail, seconds))
        except Exception:  # the hook's own code: the deaths to come are still to be seen
            log.exception("an incident could not be told: %s", what)

    # ---- nodes ----

    def _left(self, crew: Crew, rank: int) -> tuple[bool, bool]:
        """Whether the rank's node is alive, and whether another one has devices for it."""
        living, seat = living_nodes(), crew.seats[rank][0]
        return seat.node_id in living, bool(self._others(living, seat))

    def _others(self, living: Container[str], seat: Seat) -> list[list[Device]]:
        """The devices of each other node that has enough for the seat."""
        nodes: dict[str, list[Device]] = {}
        for device in self._devices:
            if device.node_id in living and device.node_id != seat.node_id:
                nodes.setdefault(device.node_id, []).append(device)
        return [devices for devices in nodes.values() if len(devices) >= len(seat.devices)]

    def _seats_elsewhere(self, crew: Crew, rank: int) -> list[Seat]:
        """The rank's seats on those devices of another node that the fewest ranks are on."""
        busy = Counter(device for other in self._crews.values() for seats in other.seats for device in seats[0].devices)
        seat = crew.seats[rank][0]
        chosen = min((sorted(devices, key=lambda device: busy[device.index])[: len(seat.devices)]
                      for devices in self._others(living_nodes(), seat)),
                     key=lambda devices: sum(busy[device.index] for device in devices), default=None)
        if chosen is None:
            raise RunError("the other nodes are gone too")
        return [seat.on(chosen) for seat in crew.seats[rank]]
