"""Profiles on disk: one JSON file each, and which of several fits a run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from rlinf_cli.errors import UsageError
from rlinf_cli.scheduling.profile import BatchPoint, DecodePoint, MemoryPoint, Profile, RoleProfile

FORMAT = 1
HARDWARE = "hardware"
"""Key of a difference of machines."""
_ARROW = " > "
_POINTS = {"batches": BatchPoint, "decoding": DecodePoint, "memory": MemoryPoint}


def directory() -> Path:
    """Where profiles are kept that nobody has put elsewhere."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlinf/profiles"


def save(profile: Profile, path: Path) -> None:
    """Write it, in one piece. Raises UsageError where it cannot be written."""
    text = json.dumps(document(profile), indent=1) + "\n"
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text)
        part.replace(path)
    except OSError as error:
        raise UsageError(f"the profile cannot be written to {path} ({error.strerror})") from error


def load(path: Path) -> Profile:
    """Raises UsageError where there is no such file, or it is no profile, with the reason."""
    try:
        document = json.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"the profile {path} cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise _damaged(path, f"it is no JSON: {error}") from error
    try:
        return _profile(document)
    except KeyError as error:
        raise _damaged(path, f"it has no {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise _damaged(path, str(error)) from error


def differences(profile: Profile, hardware: str, versions: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """What is another than when it was measured: key -> in a few words; empty where it can be used."""
    found = {} if profile.hardware == hardware else {HARDWARE: f"hardware: {profile.hardware or 'unknown'} → {hardware}"}
    for before, now in ((profile.versions, versions), (profile.settings, settings)):
        found |= {key: f"{key} {before.get(key, 'unset')} → {now.get(key, 'unset')}" for key in dict.fromkeys([*before, *now])
                  if before.get(key) != now.get(key)}
    return found


def find(where: Path, workflow: str, hardware: str, versions: Mapping[str, str],
         settings: Mapping[str, str]) -> tuple[Path | None, list[str]]:
    """The newest profile in a directory that fits. Where none does: None, and what has changed since the nearest was made."""
    nearest: list[str] = []
    for path in sorted(where.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True):
        profile = readable(path)
        if profile is None or profile.workflow != workflow:
            continue
        changed = list(differences(profile, hardware, versions, settings).values())
        if not changed:
            return path, []
        if not nearest or len(changed) < len(nearest):
            nearest = changed
    return None, nearest


def readable(path: Path) -> Profile | None:
    """None for what is no profile, or of another version."""
    try:
        return load(path)
    except UsageError:
        return None


def _damaged(path: Path, reason: str) -> UsageError:
    return UsageError(f"{path} is no profile that can be used: {reason}. Measure again with: rlinf profile")


def document(profile: Profile) -> dict[str, Any]:
    """As it is written."""
    found = asdict(profile) | {"transfers": {_ARROW.join(pair): seconds for pair, seconds in profile.transfers.items()}}
    if profile.device_memory == float("inf"):
        found["device_memory"] = None
    return {"format": FORMAT, **found}


def _profile(document: Any) -> Profile:
    if document["format"] != FORMAT:
        raise ValueError(f"it has format {document['format']}, and this version reads {FORMAT}")
    known = {field.name: document[field.name] for field in fields(Profile)}
    memory = known["device_memory"]
    return Profile(**{
        **known, "roles": {name: _role(role) for name, role in known["roles"].items()}, "lengths": tuple(known["lengths"]),
        "transfers": dict(_transfers(known["transfers"])), "device_memory": float("inf") if memory is None else float(memory)})


def _role(document: Mapping[str, Any]) -> RoleProfile:
    points = {name: tuple(kind(**point) for point in document[name]) for name, kind in _POINTS.items()}
    return RoleProfile(**{**document, **points, "spreads": tuple(map(_role, document.get("spreads", ())))})


def _transfers(document: Mapping[str, float]) -> Iterator[tuple[tuple[str, str], float]]:
    for pair, seconds in document.items():
        producer, arrow, consumer = pair.partition(_ARROW)
        if not arrow:
            raise ValueError(f"'{pair}' in its transfers is no pair of roles")
        yield (producer, consumer), seconds
