"""What a node other than the controller's needs: somebody who reads its shared memory for others, and clears it up."""

from __future__ import annotations

from rlinf_cli.flow.client import Client
from rlinf_cli.flow.controller import ControllerAddress
from rlinf_cli.flow.segments import Array, read_segment
from rlinf_cli.flow.shared_directory import SharedDirectory, sweep


class NodeStore:
    """One a node, in a process of its own that outlives the workers. A plain class: the cluster makes it a Ray actor.

    Start it before the node's workers connect, with the same `node` as theirs.
    """

    def __init__(self, address: ControllerAddress, node: str) -> None:
        sweep()
        self._directory = SharedDirectory(address.directory_on(node))
        self._client = Client(address, f"node-store@{node}", node, stores=True)

    def read_segment(self, file: str, offset: int, length: int) -> Array:
        """Bytes of a shared-memory file of this node. Raises FileNotFoundError when it is gone."""
        return read_segment(self._directory.path, file, offset, length)

    def stop(self) -> None:
        """Disconnect and remove the shared memory of this node."""
        self._client.close()
        self._directory.remove()
