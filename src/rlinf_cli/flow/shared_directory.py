"""The directory under /dev/shm in which a run keeps its shared-memory files, and how nothing of it is left behind."""

from __future__ import annotations

import fcntl
import glob
import os
import secrets
import shutil
import tempfile
import time

_PREFIX = "rlinf-"
_LOCK = "lock"


class SharedDirectory:
    """A directory (mode 0700) that this process made and removes; a lock shows others that it lives.

    Raises FileExistsError when the path exists.
    """

    def __init__(self, path: str = "") -> None:
        self.path = path or os.path.join(shared_memory_root(), _PREFIX + secrets.token_hex(6))
        os.mkdir(self.path, 0o700)
        unlocked = os.path.join(self.path, _LOCK + ".new")
        self._fd = os.open(unlocked, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        os.rename(unlocked, os.path.join(self.path, _LOCK))

    def size(self) -> int:
        """Bytes of the whole file system."""
        stat = os.statvfs(self.path)
        return stat.f_blocks * stat.f_frsize

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def shared_memory_root() -> str:
    return "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()


def remove_if_abandoned(path: str, patience: float = 0.0) -> None:
    """Remove a SharedDirectory whose maker was killed before it could do so; leave one in use alone.

    `patience`: seconds to try, since a process that is killed closes its connections before it lets go of its lock.
    """
    deadline = time.monotonic() + patience
    while not _try_to_remove(path) and time.monotonic() < deadline:
        time.sleep(0.02)


def _try_to_remove(path: str) -> bool:
    """False when the directory is in use."""
    try:
        fd = os.open(os.path.join(path, _LOCK), os.O_RDWR)
    except (FileNotFoundError, PermissionError):  # removed, or not ours
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        shutil.rmtree(path, ignore_errors=True)
        return True
    finally:
        os.close(fd)


def sweep() -> None:
    """Remove what runs that were killed have left under /dev/shm."""
    for path in glob.glob(os.path.join(shared_memory_root(), _PREFIX + "*")):
        remove_if_abandoned(path)
