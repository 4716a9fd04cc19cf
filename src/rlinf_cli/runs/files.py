"""Writing files so that a crash, a kill or a full disk leaves either the old or the new content."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rlinf_cli.errors import RlinfError, RunError


def write_atomically(path: Path, text: str) -> None:
    """Replace the file's content as a whole and wait until it is on the disk; on an error the old content stays."""
    aside = aside_of(path)
    try:
        with open(aside, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    sync(path.parent)


def aside_of(path: Path) -> Path:
    """Where `write_atomically` writes first; a kill may leave it there."""
    return path.with_name(f".{path.name}.tmp")


def sync(path: Path) -> None:
    """Wait until a file's content, or a directory's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(directory: Path) -> None:
    """`sync` every file and directory below, whoever wrote them, then the directory itself."""
    for folder, _, names in os.walk(directory, topdown=False):
        for name in names:
            sync(Path(folder, name))
        sync(Path(folder))


def remove_tree(directory: Path) -> None:
    """Remove what there is of a directory; what cannot be removed stays."""
    shutil.rmtree(directory, ignore_errors=True)


def files_below(directory: Path) -> Iterator[str]:
    """Relative paths (with `/`) of all files below, sorted."""
    found = [Path(folder, name).relative_to(directory) for folder, _, names in os.walk(directory) for name in names]
    yield from sorted(path.as_posix() for path in found)


def reason(error: Exception) -> str:
    """In the system's words, if it was the system that refused, without number and path: `no space left on device`."""
    text = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
    return text[:1].lower() + text[1:]


@contextlib.contextmanager
def explained(failed: str, kind: type[RlinfError] = RunError) -> Iterator[None]:
    """The system's refusal as one sentence: `FAILED: no space left on device`."""
    try:
        yield
    except OSError as error:
        raise kind(f"{failed}: {reason(error)}") from error


_STORAGE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


def storage_trouble(error: Exception, directory: Path) -> str | None:
    """Why the storage below `directory` refused, if that is what `error` is about; else None.

    Writers of tensors and remote workers wrap the system's error in types and words of their own; some keep nothing of
    it, so a disk that has no room left counts as the reason too.
    """
    if isinstance(error, OSError) and not isinstance(error, RlinfError):
        return reason(error)
    for number in _STORAGE_ERRORS:
        if os.strerror(number) in str(error):
            return reason(OSError(number, ""))
    with contextlib.suppress(OSError):
        if shutil.disk_usage(directory).free < 1 << 20:
            return reason(OSError(errno.ENOSPC, ""))
    return None


@contextlib.contextmanager
def logs_of(command: str) -> Iterator[Path]:
    """A directory for the logs of workers of a command that has no run; it stays when something fails: the error names a log
    in it."""
    directory = Path(tempfile.mkdtemp(prefix=f"rlinf-{command}-"))
    try:
        yield directory
    except RlinfError:
        raise
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    shutil.rmtree(directory, ignore_errors=True)
