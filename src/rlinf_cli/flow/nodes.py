"""Which nodes of the cluster are there."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

import ray

_PROBE_S = 2.0
"""How long a node may take to accept a connection."""


def living_nodes() -> set[str]:
    """Ray's ids of the nodes that can be reached: Ray itself believes in one for many seconds after its end."""
    return {node["NodeID"] for node in ray.nodes() if node["Alive"] and _answers(node)}


def _answers(node: Mapping[str, Any]) -> bool:
    try:
        socket.create_connection((node["NodeManagerAddress"], node["NodeManagerPort"]), _PROBE_S).close()
    except OSError:
        return False
    return True
