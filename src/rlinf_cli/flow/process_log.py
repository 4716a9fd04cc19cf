"""Where a process of the cluster writes: everything, C libraries' words included, goes to a file of its own."""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
from pathlib import Path
from typing import TextIO


def log_to(path: Path) -> TextIO:
    """From now on. Fatal signals leave the stacks of all threads there. RLINF_LOG_LEVEL=DEBUG adds every call."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a", buffering=1)
    sys.stdout.flush()
    sys.stderr.flush()
    for standard in (1, 2):
        os.dup2(file.fileno(), standard)
    faulthandler.enable(file)
    level = logging.getLevelName(os.environ.get("RLINF_LOG_LEVEL", "").upper())
    logging.basicConfig(level=level if isinstance(level, int) else logging.INFO, stream=sys.stderr, force=True,
                        format="%(asctime)s %(levelname).1s %(name)s: %(message)s")
    return file
