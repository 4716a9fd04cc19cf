"""What can go wrong between roles, typed, so that a workflow can catch what it means to."""

from __future__ import annotations

from typing import Any

from rlinf_cli.errors import RunError


class WorkerError(RunError):
    """A method raised in a rank. `cause` is the original exception where it could be sent, else None; a run that ends
    with it ends with `exit_code`, the original exception's."""

    def __init__(self, role: str, rank: int, node: str, method: str, summary: str, remote_traceback: str,
                 cause: BaseException | None = None, exit_code: int = RunError.exit_code) -> None:
        self.role, self.rank, self.node, self.method = role, rank, node, method
        self.summary, self.remote_traceback, self.cause = summary, remote_traceback, cause
        self.exit_code = exit_code
        super().__init__(f"{role}[{rank}] on {node} failed in {method}: {summary}")

    def __reduce__(self) -> tuple[Any, ...]:
        return WorkerError, (self.role, self.rank, self.node, self.method, self.summary, self.remote_traceback,
                             self.cause, self.exit_code)


class WorkerDiedError(RunError):
    """A rank's process is gone. `last_call` is what it was doing; `detail` what is known of its end; `pid` and the path
    of its log, where it got as far as telling them."""

    def __init__(self, role: str, rank: int, node: str, last_call: str, detail: str, pid: int = 0, log: str = "") -> None:
        self.role, self.rank, self.node, self.last_call, self.detail = role, rank, node, last_call, detail
        self.pid, self.log = pid, log
        super().__init__(self.what + (f"; its log: {log}" if log else ""))

    @property
    def what(self) -> str:
        """The message without the path of the log."""
        how = f"{self.detail}, process {self.pid}" if self.pid else self.detail
        return f"{self.role}[{self.rank}] on {self.node} died ({how}) while in {self.last_call}"

    def __reduce__(self) -> tuple[Any, ...]:
        return WorkerDiedError, (self.role, self.rank, self.node, self.last_call, self.detail, self.pid, self.log)


class CallTimeoutError(RunError, TimeoutError):
    """A call did not end within its time limit."""


class ChannelError(RunError):
    """Base of what a channel raises."""


class ChannelClosedError(ChannelError):
    """Nothing is left and nothing more will come (get), or the channel takes nothing more (put)."""


class ChannelBrokenError(ChannelError):
    """A producer of this channel failed or died, or the run was cancelled; the message says which."""


class ChannelTimeoutError(ChannelError, TimeoutError):
    """Nothing came within the time limit of a get."""


class ChannelFullError(ChannelError, TimeoutError):
    """No room within the time limit of a put."""


class SerializationError(ChannelError, TypeError):
    """The item cannot be sent to another process; raised at `put`."""
