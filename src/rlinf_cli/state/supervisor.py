"""What is done about deaths of processes, and about a run that stands still, as a pure state machine: events in,
instructions out; no processes, no clock.

A stateless role's rank is started again where it was. When its node is gone, the other ranks go on without it, or, where
it was the only one, it moves to another node. A stateful role is recovered as a whole, by whoever runs it. Each of these
but going on with fewer ranks takes one of the role's restarts, which are counted anew with every step that is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

# ---- events ----


@dataclass(frozen=True, slots=True)
class Launched:
    """A role's processes are being started. For a role that was there before, this is its recovery."""

    role: str
    ranks: int
    stateful: bool


@dataclass(frozen=True, slots=True)
class Stopped:
    """A role was ended on purpose."""

    role: str


@dataclass(frozen=True, slots=True)
class Died:
    role: str
    rank: int
    node_alive: bool
    elsewhere: bool
    """Whether another node has devices for it."""


@dataclass(frozen=True, slots=True)
class Restarted:
    """A rank that was to be started again, or to move, works."""

    role: str
    rank: int


@dataclass(frozen=True, slots=True)
class RestartFailed:
    """It does not. `hopeless`: nor would it the next time, as its constructor raised."""

    role: str
    rank: int
    why: str
    node_alive: bool
    elsewhere: bool
    hopeless: bool = False


@dataclass(frozen=True, slots=True)
class Progressed:
    """A step was trained."""


@dataclass(frozen=True, slots=True)
class Activity:
    """Somebody got something done."""

    now: float
    """Seconds of any clock."""


@dataclass(frozen=True, slots=True)
class Tick:
    now: float
    calls_open: bool


Event = Launched | Stopped | Died | Restarted | RestartFailed | Progressed | Activity | Tick

# ---- instructions ----


@dataclass(frozen=True, slots=True)
class Restart:
    """Start the rank again on its devices."""

    role: str
    rank: int


@dataclass(frozen=True, slots=True)
class Retire:
    """Go on without the rank."""

    role: str
    rank: int


@dataclass(frozen=True, slots=True)
class Replace:
    """Start the rank again on devices of another node."""

    role: str
    rank: int


@dataclass(frozen=True, slots=True)
class Recover:
    """Raise the death to whoever can launch the role again from what it has saved."""

    role: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Raise the death: the run ends. Nothing follows for this role."""

    role: str
    rank: int
    why: str


@dataclass(frozen=True, slots=True)
class DumpStacks:
    why: str


Instruction = Restart | Retire | Replace | Recover | GiveUp | DumpStacks

# ---- state ----

_NOBODY_LEFT = "no other rank of its role is left, and no other node has devices for it"
RankState = Literal["alive", "restarting", "retired", "dead"]


@dataclass(slots=True)
class Role:
    """Changed by `SupervisorState` only."""

    stateful: bool
    ranks: list[RankState]
    spent: int = 0
    """Restarts since the last trained step."""
    recovering: bool = False
    given_up: bool = False

    def has_others(self, rank: int) -> bool:
        """Whether other ranks work, or soon will again."""
        return any(state in ("alive", "restarting") for other, state in enumerate(self.ranks) if other != rank)


@dataclass(slots=True)
class SupervisorState:
    """`handle` is the only way in. `restarts`: of each role between two trained steps · `stall_timeout`: seconds."""

    restarts: int
    stall_timeout: float
    roles: dict[str, Role] = field(default_factory=dict)
    _active: float | None = None
    """When something last happened; None while no call is open."""
    _dumped: bool = False

    def handle(self, event: Event) -> list[Instruction]:
        return list(_HANDLERS[type(event)](self, event))

    def is_recovering(self, role: str) -> bool | None:
        """Whether the death of a stateful role was answered with Recover; None while its death is not known."""
        known = self.roles.get(role)
        if known is None or not (known.recovering or known.given_up):
            return None
        return known.recovering

    def _launched(self, event: Launched) -> Iterable[Instruction]:
        before = self.roles.get(event.role)
        spent = before.spent if before is not None else 0
        self.roles[event.role] = Role(event.stateful, ["alive"] * event.ranks, spent)
        return ()

    def _stopped(self, event: Stopped) -> Iterable[Instruction]:
        self.roles.pop(event.role, None)
        return ()

    def _died(self, event: Died) -> Iterator[Instruction]:
        role = self.roles.get(event.role)
        if role is None or role.given_up or role.ranks[event.rank] == "retired":
            return
        if not role.stateful:
            yield self._answer(role, event)
        elif not role.recovering:
            yield self._recover(role, event)

    def _restart_failed(self, event: RestartFailed) -> Iterator[Instruction]:
        role = self.roles.get(event.role)
        if role is None or role.given_up or role.ranks[event.rank] != "restarting":
            return
        if event.hopeless:
            yield _give_up(role, event, event.why)
        else:
            yield self._answer(role, event)

    def _restarted(self, event: Restarted) -> Iterable[Instruction]:
        role = self.roles.get(event.role)
        if role is not None and role.ranks[event.rank] == "restarting":
            role.ranks[event.rank] = "alive"
        return ()

    def _progressed(self, event: Progressed) -> Iterable[Instruction]:
        for role in self.roles.values():
            role.spent = 0
        return ()

    def _activity(self, event: Activity) -> Iterable[Instruction]:
        self._active, self._dumped = event.now, False
        return ()

    def _tick(self, event: Tick) -> Iterator[Instruction]:
        if not event.calls_open:
            self._active, self._dumped = None, False
        elif self._active is None:
            self._active = event.now
        elif event.now - self._active >= self.stall_timeout and not self._dumped:
            self._dumped = True
            yield DumpStacks(f"nothing has happened for {self.stall_timeout:g} s")

    def _answer(self, role: Role, event: Died | RestartFailed) -> Instruction:
        """Of a stateless role."""
        if not event.node_alive and role.has_others(event.rank):
            role.ranks[event.rank] = "retired"
            return Retire(event.role, event.rank)
        if not event.node_alive and not event.elsewhere:
            return _give_up(role, event, _NOBODY_LEFT)
        if role.spent >= self.restarts:
            return _give_up(role, event, self._exhausted())
        role.spent += 1
        role.ranks[event.rank] = "restarting"
        return (Restart if event.node_alive else Replace)(event.role, event.rank)

    def _recover(self, role: Role, event: Died) -> Instruction:
        if role.spent >= self.restarts:
            return _give_up(role, event, self._exhausted())
        role.spent += 1
        role.ranks[event.rank], role.recovering = "dead", True
        return Recover(event.role)

    def _exhausted(self) -> str:
        if not self.restarts:
            return "nothing is started again, as cluster.restarts is 0"
        return f"cluster.restarts={self.restarts} of this role's have been used up since a step was last trained"

    def validate(self) -> None:
        """Assert what must hold between two events."""
        for role in self.roles.values():
            assert 0 <= role.spent <= self.restarts
            assert not (role.recovering and role.given_up)
            assert role.stateful or not role.recovering
            assert not role.stateful or not {"restarting", "retired"} & set(role.ranks)
            assert role.given_up or role.stateful or {"alive", "restarting"} & set(role.ranks), "nobody is left"


def _give_up(role: Role, event: Died | RestartFailed, why: str) -> GiveUp:
    role.ranks[event.rank], role.given_up = "dead", True
    return GiveUp(event.role, event.rank, why)


_HANDLERS: dict[type, Callable[[SupervisorState, Any], Iterable[Instruction]]] = {
    Launched: SupervisorState._launched, Stopped: SupervisorState._stopped, Died: SupervisorState._died,
    Restarted: SupervisorState._restarted, RestartFailed: SupervisorState._restart_failed,
    Progressed: SupervisorState._progressed, Activity: SupervisorState._activity, Tick: SupervisorState._tick,
}  # fmt: skip
