"""The device lock behind the controller's desk."""

from __future__ import annotations

from rlinf_cli.flow.desk import Desk, Service
from rlinf_cli.state.device_lock import DeviceLockState
from rlinf_cli.state.device_lock_events import (
    Ask,
    Derive,
    Dismiss,
    Dropped,
    Enqueue,
    Enrol,
    Enter,
    Fed,
    Gone,
    Grant,
    Instruction,
    Offload,
    Offloaded,
    Release,
    Retire,
    Retract,
)


class LockDesk:
    """Speaks with `flow.tickets` in the driver and `flow.turns` in the ranks, and listens to what becomes of channels."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self._state = desk, DeviceLockState()
        self._service = Service("device_lock", self._state, None, Gone, self._execute, {
            "lock.enrol": Enrol, "lock.dismiss": Dismiss, "lock.retire": Retire, "lock.enqueue": Enqueue,
            "lock.retract": Retract, "lock.derive": Derive, "lock.enter": Enter, "lock.ask": Ask, "lock.release": Release,
            "lock.offloaded": Offloaded,
        })  # fmt: skip
        desk.register(self._service)
        desk.listen("put", lambda client, channel, *rest: self._feed(channel))
        for kind in ("declare", "close", "break"):
            desk.listen(kind, lambda client, request, channel, *rest: self._feed(channel))
        desk.listen("drop", lambda client, request, channel: desk.handle(self._service, Dropped(channel)))

    def _feed(self, channel: str) -> None:
        if not self._state.knows(channel):
            self._desk.handle(self._service, Fed(channel))

    def _execute(self, instruction: Instruction) -> None:
        match instruction:
            case Grant(client, request, _, switch_s):
                self._desk.tell(client, ("ok", request, switch_s))
            case Offload(client, group):
                self._desk.tell(client, (offload_of(group),))


def offload_of(role: str) -> str:
    """The kind of the message that tells a role's rank to make room: several of them may share a process."""
    return f"lock.offload {role}"
