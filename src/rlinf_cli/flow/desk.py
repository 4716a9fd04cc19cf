"""The controller's desk: messages of clients -> events of state machines -> instructions -> messages to clients.

The server behind it knows sockets and frames only, the machines (`rlinf_cli.state`) know neither. Everything here runs on
the server's thread, one message after the other, so that no machine needs a lock.

A state machine is put behind the desk as a `Service`, in the constructor of `Controller`:

    state = TurnsState()

    def execute(instruction: Instruction) -> None:
        match instruction:
            case Grant(client, request):
                desk.tell(client, ("ok", request, None))       # the answer to a request, see below
            case Yield(client, group):
                desk.tell(client, ("yield", group))            # pushed: the client has a handler for it

    desk.register(Service("turns", state, Joined, Gone, execute, {"take": Take, "give": Give}))

Then a message `("take", request, ...)` of a client becomes `state.handle(Take(client, request, ...))`. An event that needs
more than the message holds is made by a function: `"take": lambda client, *rest: Take(client, *rest, time.monotonic())`.
Every machine is handed the coming and going of every client as `Joined(client, identity)` and `Gone(client, how)`, where
`identity` is `rollout[0]`, several joined by `+` where roles share a process, `driver`, or `node-store@NODE`, and
`IDENTITY HOW` is a sentence. A client number is never used again.

In the client's process (`rlinf_cli.flow.client.Client`):
- `client.request(kind, *arguments)` sends `(kind, request, *arguments)` and waits for `("ok", request, value)`, which it
  returns, or `("fail", request, error_kind, text)`, which it raises;
- `client.send(kind, *arguments)` sends `(kind, *arguments)` and waits for nothing;
- `client.register(kind, handler)`: `handler(*arguments)` is called with each pushed message `(kind, *arguments)`, on the
  receiving thread and with the client's lock held: it sets an event or starts a thread, and never waits.
Messages of one client arrive in the order in which it sent them, and those to it likewise.

What a machine is told and answers can be kept in a journal (`rlinf_cli.state.journal`): events and instructions are
dataclasses of `rlinf_cli.state`, made of numbers, texts, tuples, lists and mappings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlinf_cli.flow.frames import Message
from rlinf_cli.flow.journal_file import JournalFile
from rlinf_cli.state.journal import Machine, Record

_IDLE = frozenset(("get", "cancel", "qsize", "release", "removed"))
"""Messages that a client also sends while it gets nowhere."""


@dataclass(frozen=True)
class Service:
    """A state machine behind the desk."""

    name: str
    machine: Machine
    joined: Callable[[int, str], Any] | None
    """None where the machine is told in another way who is there."""
    gone: Callable[[int, str], Any]
    execute: Callable[[Any], None]
    """Carries an instruction out. It must not bring a further event to a machine."""
    events: Mapping[str, Callable[..., Any]]
    """Kind of a message -> the event of `(client, *arguments)`."""


@dataclass(frozen=True, slots=True)
class Guest:
    """A client, as it has introduced itself."""

    identity: str
    node: str
    stores: bool
    """Removes the shared-memory files of its node when told to."""

    @property
    def works(self) -> bool:
        return self.identity != "driver" and not self.stores


class Desk:
    """`tell(client, message)` has a message sent to a client with all others of this round; one that is gone is skipped.

    `journal`: where all events and instructions are written down.
    """

    def __init__(self, tell: Callable[[int, Message], None], journal: JournalFile | None = None) -> None:
        self.tell, self._journal = tell, journal
        self.guests: dict[int, Guest] = {}
        self._workers: set[int] = set()
        self.activity = 0
        """Counts what workers have sent, but for what they send while they only wait: while it stands still, so does the
        run."""
        self._services: list[Service] = []
        self._handlers: dict[str, Callable[..., None]] = {}
        self._listeners: dict[str, list[Callable[..., None]]] = {}
        self._joined = 0

    def register(self, service: Service) -> None:
        self._services.append(service)
        for kind, event in service.events.items():
            self.on(kind, self._bringer(service, event))

    def on(self, kind: str, handler: Callable[..., None]) -> None:
        """A kind of message that is no event as it stands: `handler(client, *arguments)`."""
        assert kind not in self._handlers, f"messages of kind '{kind}' are handled already"
        self._handlers[kind] = handler

    def listen(self, kind: str, listener: Callable[..., None]) -> None:
        """Call `listener(client, *arguments)` with each message of a kind, once it has been handled."""
        self._listeners.setdefault(kind, []).append(listener)

    def handle(self, service: Service, event: Any) -> None:
        """Bring an event to a machine and carry out what follows."""
        instructions = service.machine.handle(event)
        if self._journal is not None:
            instructions = tuple(instructions)
            self._journal.write(Record(service.name, event, instructions))
        for instruction in instructions:
            service.execute(instruction)

    def _bringer(self, service: Service, event: Callable[..., Any]) -> Callable[..., None]:
        return lambda client, *arguments: self.handle(service, event(client, *arguments))

    # ---- for the server ----

    def receive(self, client: int, message: Message) -> None:
        kind = message[0]
        if kind not in _IDLE and client in self._workers:
            self.activity += 1
        self._handlers[kind](client, *message[1:])
        if kind in self._listeners:
            for listener in self._listeners[kind]:
                listener(client, *message[1:])

    def number(self) -> int:
        """For the next client."""
        self._joined += 1
        return self._joined

    def join(self, client: int, guest: Guest) -> None:
        self.guests[client] = guest
        if guest.works:
            self._workers.add(client)
        for service in self._services:
            if service.joined is not None:
                self.handle(service, service.joined(client, guest.identity))

    def leave(self, client: int, how: str) -> None:
        """The client's connection has ended, after all that it sent was received."""
        for service in self._services:
            self.handle(service, service.gone(client, how))
        del self.guests[client]
        self._workers.discard(client)

    def close(self) -> None:
        """Nothing more will come."""
        if self._journal is not None:
            self._journal.close()
