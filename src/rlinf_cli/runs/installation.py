"""What is installed, told from metadata and files: nothing of it is imported, since that is what may be broken."""

from __future__ import annotations

import importlib.util
import mmap
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

State = Literal["ok", "note", "broken"]

DISTRIBUTION = "rlinf-cli"
COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
"""Packages with native code for one build of torch, which `transformers` imports when they are there."""

_CUDA = b"libtorch_cuda.so"
_WITHOUT_CUDA = "--index-url https://download.pytorch.org/whl/cpu"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `broken`: runs will fail; `note`: something is missing that a run may want."""

    name: str
    state: State
    text: str
    fix: str = ""
    """What to do about it."""
    exit_code: int = 0
    """Of what is broken: 3 a package or a plugin, 1 the machine."""


@dataclass(frozen=True)
class TorchBuild:
    """Which torch is installed."""

    version: str
    cuda: str
    """Version of CUDA that it was built for; empty without."""

    def __str__(self) -> str:
        return f"{self.version}, {f'CUDA {self.cuda}' if self.cuda else 'without CUDA'}"


def torch_build() -> TorchBuild | None:
    """None when there is no torch."""
    folder = _package("torch")
    if folder is None:
        return None
    text = (folder / "version.py").read_text(encoding="utf-8")
    version, cuda = (re.search(rf"^{name}\b.*= '(.*)'", text, re.MULTILINE) for name in ("__version__", "cuda"))
    return TorchBuild(version[1] if version else "unknown", cuda[1] if cuda else "")


def requirements(distribution: str = DISTRIBUTION) -> Iterator[Finding]:
    """What the program needs and does not find, or finds in another version."""
    for requirement in _requires(distribution):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            found = _version(requirement.name)
            if not _is_met(requirement):
                text = "is not installed" if found is None else f"{found} is installed"
                yield Finding(requirement.name, "broken", f"{text}; {distribution} needs {_plain(requirement)}",
                              f"pip install '{_plain(requirement)}'", 3)


def extras(distribution: str = DISTRIBUTION) -> Iterator[Finding]:
    """Each extra of the program, and how to get it."""
    for extra in metadata.metadata(distribution).get_all("Provides-Extra") or []:
        if extra == "dev":
            continue
        wanted = [one for one in _requires(distribution) if one.marker and _only_with(one, extra)]
        missing = [one.name for one in wanted if not _is_met(one)]
        if missing:
            yield Finding(f"extra {extra}", "note", f"not installed ({', '.join(missing)})",
                          f"pip install '{distribution}[{extra}]'")
        else:
            yield Finding(f"extra {extra}", "ok", "installed")


def companions(torch: TorchBuild) -> Iterator[Finding]:
    """Packages that break the imports of `transformers`: they were built for another torch than the one that is there."""
    for name in COMPANIONS:
        folder, version = _package(name), _version(name)
        if folder is None or version is None:
            continue
        wanted = next((one for one in _requires(name) if one.name == "torch"), None)
        if not torch.cuda and _needs_cuda(folder):
            yield Finding(name, "broken", f"{version} needs a torch with CUDA, and torch {torch.version} has none: "
                          "transformers then cannot import its models (it says `operator torchvision::nms does not exist` "
                          "or `Could not import module`)",
                          f"pip uninstall {name}, or pip install {name} {_WITHOUT_CUDA}", 3)
        elif wanted and not wanted.specifier.contains(torch.version.partition("+")[0], prereleases=True):
            yield Finding(name, "broken", f"{version} was built for torch{wanted.specifier}, and torch {torch.version} is "
                          "installed: transformers then cannot import its models", f"pip install --upgrade {name}", 3)
        else:
            yield Finding(name, "ok", f"{version}, fits torch {torch.version}")


def namesake() -> Iterator[Finding]:
    """Another project owns the distribution and the import name `rlinf`."""
    version = _version("rlinf")
    if version is not None:
        yield Finding("rlinf", "ok", f"{version} is another project of that name; it and {DISTRIBUTION} go together")


def _requires(distribution: str) -> list[Requirement]:
    try:
        return [Requirement(text) for text in metadata.requires(distribution) or []]
    except metadata.PackageNotFoundError:
        return []


def _only_with(requirement: Requirement, extra: str) -> bool:
    assert requirement.marker is not None
    return requirement.marker.evaluate({"extra": extra}) and not requirement.marker.evaluate({"extra": ""})


def _is_met(requirement: Requirement) -> bool:
    found = _version(requirement.name)
    return found is not None and requirement.specifier.contains(found, prereleases=True)


def _plain(requirement: Requirement) -> str:
    return f"{requirement.name}{requirement.specifier}"


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _package(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _needs_cuda(folder: Path) -> bool:
    """Whether a native library of the package is linked to the CUDA part of torch."""
    for library in folder.rglob("*.so"):
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content.find(_CUDA) >= 0:
                return True
    return False
