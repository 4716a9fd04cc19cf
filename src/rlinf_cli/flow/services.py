"""The processes of a cluster that are no workers: the controller, and the node stores of further nodes."""

from __future__ import annotations

from pathlib import Path

from rlinf_cli.flow.controller import Controller, ControllerAddress
from rlinf_cli.flow.node_store import NodeStore
from rlinf_cli.flow.process_log import log_to


class ControllerHost(Controller):
    """Ray actor: a controller with a log."""

    def __init__(self, logs: Path, token: str, host: str, directory: str, node: str, journal: Path | None = None) -> None:
        self._log = log_to(logs / "controller.log")
        super().__init__(token, host, directory, node, journal=journal)


class NodeStoreHost(NodeStore):
    """Ray actor: a node store with a log."""

    def __init__(self, logs: Path, address: ControllerAddress, node: str) -> None:
        self._log = log_to(logs / f"node-store-{node}.log")
        super().__init__(address, node)
