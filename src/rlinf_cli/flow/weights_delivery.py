"""How published weights reach the engines of a group, whose processes may die and be followed by others."""

from __future__ import annotations

import logging
import time

from rlinf_cli.flow.errors import WorkerDiedError
from rlinf_cli.flow.group import Group, Ranks, ranks_of
from rlinf_cli.flow.handle import Handle, gather
from rlinf_cli.flow.weights_layout import Manifest

log = logging.getLogger(__name__)


def deliver(targets: Group | Ranks, manifest: Manifest, timeout: float) -> dict[str, str]:
    """Call `update_weights(manifest)` on ranks; the checksums that they answer with, by name.

    Ranks of a restartable group that are dead, or die meanwhile, are left out: whoever starts them again has them sent the
    weights. Raises as `Handle.wait` when a rank fails otherwise.
    """
    group, ranks = ranks_of(targets)
    calls = {rank: group.on(rank).update_weights(manifest) for rank in ranks if rank in group.alive}
    deadline = time.monotonic() + timeout
    while calls:
        try:
            gather(calls.values(), max(0.0, deadline - time.monotonic()))
            break
        except WorkerDiedError as death:
            dead = [rank for rank, call in calls.items() if _died(call)]
            if not dead or not group.restartable:
                raise
            log.warning("version %d goes on without it: %s", manifest.version, death)
            for rank in dead:
                del calls[rank]
    return {group.seats[rank].identity: call.wait()[0] for rank, call in calls.items()}


def _died(call: Handle) -> bool:
    return any(isinstance(failure, WorkerDiedError) for failure in call.failures())
