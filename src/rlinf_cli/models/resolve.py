"""From a model name to a Hugging Face directory: found, converted, built by a plugin, or fetched from the hub."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from rlinf_cli.errors import UsageError
from rlinf_cli.models.check import check_directory
from rlinf_cli.models.gguf.convert import cache_key, convert_gguf
from rlinf_cli.models.names import GGUF, Directory, Named, interpret

if TYPE_CHECKING:
    from rlinf_cli.plugins.registry import Plugins

_HUB_FILES = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.jinja", "*.model", "*.txt"]


def resolve_model(name: str, seed: int, plugins: Plugins, cache: Path | None = None) -> Path:
    """The directory of a model: `name` is a directory, a GGUF file, a plugin's NAME or NAME:VARIANT, or a hub name
    ORG/NAME.

    A file is converted and a named model built once into `cache` (`RLINF_CACHE`, or ~/.cache/rlinf/models); processes
    that ask at the same time wait for one of them. `seed` decides the content of models that are random. Raises UsageError
    or PluginError.
    """
    found = interpret(name, plugins)
    place = (cache or default_cache()).expanduser().resolve()
    if isinstance(found, Directory):
        path = found.path
    elif isinstance(found, GGUF):
        path = build_once(place, cache_key(found.path), partial(convert_gguf, found.path))
    elif isinstance(found, Named):
        source = plugins.get("model", found.name).load()(found.variant, seed)
        path = build_once(place, source.key(), source.build)
    else:
        path = _download(found.repository)
    check_directory(path)
    return path


def default_cache() -> Path:
    """Where built models are kept."""
    return Path(os.environ.get("RLINF_CACHE") or Path.home() / ".cache" / "rlinf" / "models")


def build_once(cache: Path, key: str, build: Callable[[Path], None]) -> Path:
    """The directory `cache/key`, written by `build` unless it is there: aside first, then renamed, under a lock."""
    target = cache / key
    if target.is_dir():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / f".{key}.lock"):
        if not target.is_dir():
            for abandoned in cache.glob(f".{key}-*"):
                shutil.rmtree(abandoned)
            aside = Path(tempfile.mkdtemp(prefix=f".{key}-", dir=cache))
            build(aside)
            aside.chmod(0o755)
            aside.rename(target)
    return target


def _download(repository: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    try:
        return Path(snapshot_download(repository, allow_patterns=_HUB_FILES, ignore_patterns=["*/*"]))
    except GatedRepoError as error:
        raise UsageError(f"model '{repository}' is gated: accept its terms on https://huggingface.co/{repository} and "
                         "log in with `hf auth login`") from error
    except RepositoryNotFoundError as error:
        raise UsageError(f"model '{repository}' is not on the Hugging Face hub (or private: `hf auth login`), "
                         "nor is it a directory") from error
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise UsageError(f"model '{repository}' is not in the Hugging Face cache and the hub cannot be reached: give a "
                         f"directory, or fetch it where there is a network with `hf download {repository}`") from error
