"""Environments whose policy is in the same process: it steps them itself, without a word to anybody."""

from __future__ import annotations

import threading

from rlinf_cli.flow.exchange import Alive
from rlinf_cli.flow.timeline import spent
from rlinf_cli.workers.environments.simulators import Simulators

_SLICE_S = 0.2


class _Offer:
    def __init__(self, simulators: Simulators) -> None:
        self.simulators, self.done = simulators, threading.Event()


_offers: dict[str, _Offer] = {}
_changed = threading.Condition()


def lend(role: str, simulators: Simulators, alive: Alive) -> None:
    """Let the policy in this process use a role's environments, until it gives them back. Raises what `alive` raises."""
    offer = _Offer(simulators)
    with _changed:
        _offers[role] = offer
        _changed.notify_all()
    try:
        with spent("wait_data"):
            while not offer.done.wait(_SLICE_S):
                alive()
    finally:
        with _changed:
            _offers.pop(role, None)


def borrow(role: str, alive: Alive) -> Simulators:
    """The environments of a role, as soon as they are lent. Raises what `alive` raises."""
    with _changed, spent("wait_data"):
        while role not in _offers:
            if not _changed.wait(_SLICE_S):
                alive()
        return _offers[role].simulators


def give_back(role: str) -> None:
    with _changed:
        if role in _offers:
            _offers[role].done.set()
