"""Where a process of the cluster writes: everything, C libraries' words included, goes to a file of its own."""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TextIO

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def hear_signals() -> None:
    """In this thread, as processes that it starts inherit what it does not hear: they could not be ended by SIGTERM."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def obey_signals() -> None:
    """The process has done its work: what would end it may end it, without a word."""
    for number in _SIGNALS:
        faulthandler.unregister(number)


def log_to(path: Path) -> TextIO:
    """From now on. Fatal signals leave the stacks of all threads there, and so do SIGINT and SIGTERM, which do nothing else.
    RLINF_LOG_LEVEL=DEBUG adds every call."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a", buffering=1)
    sys.stdout.flush()
    sys.stderr.flush()
    for standard in (1, 2):
        os.dup2(file.fileno(), standard)
    faulthandler.enable(file)
    for number in _SIGNALS:  # they are for the driver: here it is noted, with the stacks, that they came
        faulthandler.register(number, file)
    level = logging.getLevelName(os.environ.get("RLINF_LOG_LEVEL", "").upper())
    logging.basicConfig(level=level if isinstance(level, int) else logging.INFO, stream=sys.stderr, force=True,
                        format="%(asctime)s %(levelname).1s %(name)s: %(message)s")
    return file
