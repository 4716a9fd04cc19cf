"""`rlinf doctor`: whether this machine and this environment can train, and what to do where they cannot."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from rlinf_cli.errors import RlinfError
from rlinf_cli.flow.devices import usable_cores, visible_gpus
from rlinf_cli.flow.shared_directory import shared_memory_root
from rlinf_cli.models.resolve import default_cache
from rlinf_cli.plugins.loader import plugins
from rlinf_cli.runs.installation import (
    Finding,
    TorchBuild,
    companions,
    extras,
    namesake,
    requirements,
    torch_build,
)
from rlinf_cli.runs.rendering import rendering
from rlinf_cli.sandbox.program import isolation

GB = 1e9
LITTLE_MEMORY = 2 * GB
LITTLE_SHARED_MEMORY = 1 * GB
LITTLE_DISK = 5 * GB
NO_DISK = 0.1 * GB
FEW_FILES = 4096
"""Open files: Ray's processes keep many connections."""

_IMPORT_S = 300.0
_MODELS = "from transformers import AutoModelForCausalLM, Qwen2ForCausalLM"


def examine(deep: bool = False) -> list[Finding]:
    """Everything that is looked at. `deep`: models are really imported and a private Ray is started, which takes longer."""
    torch = torch_build()
    found = [_python(), *requirements(), *_torch(torch), *_ray(), *_devices(torch), *_memory(), *_shared_memory(), *_files(),
             *_disk(), _sandbox(), *_plugins(), *extras(), *rendering(), *namesake(), _models()]
    if deep and not any(finding.exit_code == 3 for finding in found):
        found += [_imports(), _private_ray()]
    return found


def exit_code(findings: list[Finding]) -> int:
    """3 when a package or a plugin is broken, else 1 when the machine lacks something, else 0."""
    return max((finding.exit_code for finding in findings if finding.state == "broken"), default=0)


def _python() -> Finding:
    return Finding("python", "ok", f"{platform.python_version()}, {sys.executable}")


def _torch(torch: TorchBuild | None) -> Iterator[Finding]:
    if torch is not None:
        threads = os.environ.get("OMP_NUM_THREADS")
        yield Finding("torch", "ok", f"{torch}" + (f", OMP_NUM_THREADS={threads}" if threads else ""))
        yield from companions(torch)


def _ray() -> Iterator[Finding]:
    try:
        yield Finding("ray", "ok", metadata.version("ray"))
    except metadata.PackageNotFoundError:
        return


def _devices(torch: TorchBuild | None) -> Iterator[Finding]:
    gpus, cores = visible_gpus(), usable_cores()
    if gpus and torch is not None and not torch.cuda:
        yield Finding("devices", "note", f"{len(gpus)} GPUs, which torch {torch.version} cannot use; {cores} cores",
                      "install a torch with CUDA (see pytorch.org), or train on cores with cluster.devices=cpu:N")
    else:
        yield Finding("devices", "ok", f"{len(gpus)} GPUs, {cores} cores" if gpus else f"no GPU, {cores} cores")


def _memory() -> Iterator[Finding]:
    total, free = memory()
    little = free < LITTLE_MEMORY
    yield Finding("memory", "note" if little else "ok", f"{_gb(free)} of {_gb(total)} free",
                  "end other programs, or train a smaller model" if little else "")


def memory(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> tuple[float, float]:
    """Bytes that there are, and that are free, within the limit of the container (cgroup v2)."""
    lines = (line.split() for line in meminfo.read_text().splitlines())
    values = {words[0]: int(words[1]) * 1024.0 for words in lines}
    total, free = values["MemTotal:"], values["MemAvailable:"]
    try:
        limit, used = float((cgroup / "memory.max").read_text()), float((cgroup / "memory.current").read_text())
    except (OSError, ValueError):  # no container, or "max"
        return total, free
    return min(total, limit), min(free, max(0.0, limit - used))


def _shared_memory() -> Iterator[Finding]:
    root = shared_memory_root()
    space = shutil.disk_usage(root)
    if not _is_writable(Path(root)):
        yield Finding("shared memory", "broken", f"{root} cannot be written to, and weights and samples travel through it",
                      f"make {root} writable", 1)
    elif space.free < LITTLE_SHARED_MEMORY:
        yield Finding("shared memory", "note", f"{_gb(space.free)} of {_gb(space.total)} free in {root}; the weights of a "
                      "model pass through it", "give the container more: docker run --shm-size=8g")
    else:
        yield Finding("shared memory", "ok", f"{_gb(space.free)} of {_gb(space.total)} free in {root}")


def _files() -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = soft != resource.RLIM_INFINITY and soft < FEW_FILES
    yield Finding("open files", "note" if few else "ok", "unlimited" if soft == resource.RLIM_INFINITY else f"at most {soft}",
                  f"ulimit -n {65536 if hard == resource.RLIM_INFINITY else min(65536, hard)}" if few else "")


def _disk() -> Iterator[Finding]:
    places = {"here": Path.cwd(), "temporary files": Path(tempfile.gettempdir()), "models": _existing(default_cache())}
    for use, path in places.items():
        yield _space(use, path, shutil.disk_usage(path).free)


def _space(use: str, path: Path, free: float) -> Finding:
    name, text = f"disk, {use}", f"{_gb(free)} free in {path}"
    if not _is_writable(path):
        return Finding(name, "broken", f"{path} cannot be written to", "work in a directory of your own", 1)
    if free < NO_DISK:
        return Finding(name, "broken", text, "remove files", 1)
    return Finding(name, "note" if free < LITTLE_DISK else "ok", text,
                   "a checkpoint of a large model may not fit: remove files" if free < LITTLE_DISK else "")


def _sandbox() -> Finding:
    found = isolation()
    if found.available:
        return Finding("sandbox", "ok", "programs that a model writes have no network and see no other processes")
    return Finding("sandbox", "note", f"programs that a model writes can use the network here ({found.reason})",
                   "let a reward that runs them work in a container without one")


def _plugins() -> Iterator[Finding]:
    try:
        loaded = plugins().plugins
    except RlinfError as error:
        yield Finding("plugins", "broken", str(error), "", 3)
        return
    for info in loaded:
        if info.state in ("failed", "conflict"):
            yield Finding(f"plugin {info.name}", "broken", f"{info.distribution} {info.version}: {info.problem}",
                          f"rlinf plugins info {info.name}", 3)
        elif info.state == "needs":
            yield Finding(f"plugin {info.name}", "note", "part of it needs what is not installed", info.problem)
    good = [info.name for info in loaded if info.state == "ok"]
    yield Finding("plugins", "ok", ", ".join(good) or "none")


def _models() -> Finding:
    cache = default_cache()
    built = [path for path in cache.iterdir() if path.name[0] != "."] if cache.is_dir() else []
    return Finding("model cache", "ok", f"{len(built)} models built in {cache}")


def _imports() -> Finding:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", _MODELS], capture_output=True, text=True, check=False, timeout=_IMPORT_S)
    if done.returncode:
        return Finding("models", "broken", f"transformers cannot import its models: {done.stderr.strip().splitlines()[-1]}",
                       "install torch and transformers again, in versions that go together", 3)
    return Finding("models", "ok", f"transformers imports its models ({time.monotonic() - began:.1f} s)")


def _private_ray() -> Finding:
    from rlinf_cli.flow.cluster import Cluster

    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as directory, Cluster.start("cpu:1", directory=Path(directory)):
            pass
    except RlinfError as error:
        return Finding("private Ray", "broken", str(error), "", 1)
    return Finding("private Ray", "ok", f"starts and ends ({time.monotonic() - began:.1f} s)")


def _is_writable(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=True)


def _existing(path: Path) -> Path:
    return next(one for one in (path, *path.absolute().parents) if one.is_dir())


def _gb(size: float) -> str:
    return f"{size / GB:.1f} GB"
