"""The one process that holds all channels: what it is, where it is, and how it is asked for its state.

Workers do not call it through Ray (a millisecond a call): it listens on a Unix socket for its own node and on TCP for
others, and every process of the run has one connection (`rlinf_cli.flow.client`).
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlinf_cli.flow.channel_desk import ChannelDesk
from rlinf_cli.flow.journal_file import JournalFile
from rlinf_cli.flow.lock_desk import LockDesk
from rlinf_cli.flow.segments import Array, read_segment
from rlinf_cli.flow.server import Server
from rlinf_cli.flow.shared_directory import SharedDirectory, sweep


@dataclass(frozen=True, slots=True)
class ControllerAddress:
    """Where a run's controller is; all that another process needs to take part. Secret: it holds the token."""

    unix_path: str
    host: str
    port: int
    token: str
    node: str
    directory: str
    """Shared-memory files of the controller's node, and the Unix socket."""
    pool_bytes: int
    """Shared memory that each producer may use."""

    def __repr__(self) -> str:
        return f"ControllerAddress({self.node}, {self.host}:{self.port})"

    def directory_on(self, node: str) -> str:
        """The directory of the shared-memory files on a node."""
        return self.directory if node == self.node else f"{self.directory}-{node}"


class Controller:
    """Holds the channels of a run and serves them from a thread of its own.

    `token`: the secret that a connection must show first · `host`: the address to listen on · `directory`: for the
    shared-memory files, made and removed here; by default a fresh one under /dev/shm · `node`: this node's name, by
    default the host's · `pool_bytes`: shared memory that each producer may use, by default half of what there is ·
    `journal`: a file for all that the state machines here are told and answer, to be replayed (`rlinf_cli.state.journal`).
    """

    def __init__(self, token: str, host: str = "127.0.0.1", directory: str = "", node: str = "",
                 pool_bytes: int = 0, journal: Path | None = None) -> None:
        sweep()
        self._directory = SharedDirectory(directory)
        node = node or socket.gethostname()
        self._server = Server(token.encode(), host, self._directory.path, JournalFile(journal) if journal else None)
        self._desk = self._server.desk
        self._channels = ChannelDesk(self._desk, self._directory.path, node)
        LockDesk(self._desk)
        self._address = ControllerAddress(
            unix_path=self._server.unix_path, host=host, port=self._server.port, token=token, node=node,
            directory=self._directory.path, pool_bytes=pool_bytes or self._directory.size() // 2)
        self._server.start()

    def address(self) -> ControllerAddress:
        return self._address

    def stats(self) -> Mapping[str, Any]:
        """`clients`: their identities · `channels`: of each, the items put, delivered, dropped, waiting, leased and offered ·
        `slots`: how many items lie in shared memory · `activity`: a count that grows as long as workers get anywhere.
        Raises what has ended the server, if something has."""
        return self._server.ask(self._stats)

    def _stats(self) -> Mapping[str, Any]:
        clients = [guest.identity for guest in self._desk.guests.values()]
        return {"clients": clients, "activity": self._desk.activity, **self._channels.stats()}

    def read_segment(self, file: str, offset: int, length: int) -> Array:
        """Bytes of a shared-memory file of this node, for a consumer on another one."""
        return read_segment(self._directory.path, file, offset, length)

    def stop(self) -> None:
        """End all connections and remove the shared memory. Gets and puts that wait raise ChannelBrokenError."""
        self._server.stop()
        self._directory.remove()
