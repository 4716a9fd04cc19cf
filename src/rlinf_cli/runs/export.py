"""A checkpoint's policy as a Hugging Face directory of its own; needs no accelerator and builds no model.

Where a run trained an adapter, that is merged into the model beneath it, or exported as it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rlinf_cli.errors import RunError, UsageError
from rlinf_cli.models.dtypes import DTYPES, cast, set_dtype
from rlinf_cli.models.merge import ADAPTER_CONFIG, merge_adapter, read_adapter
from rlinf_cli.runs.checkpoints import Checkpoint, Checkpoints
from rlinf_cli.runs.directory import RunDirectory
from rlinf_cli.runs.files import explained, files_below, remove_tree, storage_trouble, sync_tree
from rlinf_cli.runs.naming import CHECKPOINTS, locate
from rlinf_cli.runs.policy import CONFIG, base_model, has_adapter, whole_model

_INDEX = "model.safetensors.index.json"
_ASIDE = ".rlinf-export"
_OF_A_MODEL = re.compile(r".*\.(json|safetensors|txt|model|jinja|md)|\.gitattributes|additional_chat_templates")


@dataclass(frozen=True)
class Exported:
    """What an export wrote."""

    directory: Path
    run: Path
    step: int
    dtype: str
    """Of most of the weights: `float32`, `bfloat16`, ..."""
    files: Mapping[str, int]
    """Size of each file (bytes)."""


def export_model(run: str | Path, directory: Path, step: int | None = None, dtype: str | None = None,
                 overwrite: bool = False, runs: Path = Path("runs"), adapter: bool = False,
                 critic: bool = False) -> Exported:
    """Write the policy of a checkpoint (the latest, if `step` is None) to `directory`.

    `run` is a run's directory or name, or one of its checkpoints. With `dtype` floating-point weights are converted.
    With `adapter` the adapter alone is written, in peft's layout, instead of being merged into its model; with `critic` the
    critic in place of the policy.
    The directory must be new or empty, or, with `overwrite`, hold a model and nothing else. Files are written aside
    first; `config.json`, without which nothing loads, comes last.

    Raises UsageError: no such run, checkpoint or type; checkpoint damaged (every checksum is compared); directory in
    use. RunError: the disk refuses.
    """
    if dtype is not None and dtype not in DTYPES:
        raise UsageError(f"cannot export as {dtype!r}: --dtype is one of {', '.join(DTYPES)}")
    checkpoint, run_path = _find_checkpoint(run, step, runs)
    _check_target(directory, run_path, overwrite)
    checkpoint.verify(full=True)
    if critic:
        write = _model(_critic_of(checkpoint), dtype)
    else:
        write = _adapter_alone(checkpoint, dtype) if adapter else _whole(checkpoint, run_path, dtype)
    with _aside(directory) as aside:
        write(aside)
        weights = _weights(aside)
        files = {name: (aside / name).stat().st_size for name in files_below(aside)}
        sync_tree(aside)
        _publish(aside, directory)
    return Exported(directory, run_path, checkpoint.step, weights.dtype, files)


def _whole(checkpoint: Checkpoint, run: Path, dtype: str | None) -> Callable[[Path], None]:
    """What writes the model to a directory; what is missing is told now."""
    if has_adapter(checkpoint):
        stored = read_adapter(checkpoint.adapter)
        config = yaml.safe_load(RunDirectory(run).config.read_text(encoding="utf-8"))
        base = base_model(stored, config["model"]["name"], config["seed"])
        return lambda target: merge_adapter(base, stored, target, dtype or "float32")
    return _model(whole_model(checkpoint), dtype)


def _critic_of(checkpoint: Checkpoint) -> Path:
    if not checkpoint.critic.is_dir():
        raise UsageError(f"checkpoint {checkpoint.path} has no critic, its run trained none: leave out --critic")
    return checkpoint.critic


def _model(model: Path, dtype: str | None) -> Callable[[Path], None]:
    if dtype is None:
        return lambda target: _copy(model, target, files_below(model))
    return lambda target: _convert(model, target, dtype)


def _adapter_alone(checkpoint: Checkpoint, dtype: str | None) -> Callable[[Path], None]:
    if dtype is not None:
        raise UsageError("an adapter is exported as it was saved: leave out --dtype, or --adapter")
    if not has_adapter(checkpoint):
        raise UsageError(f"checkpoint {checkpoint.path} has no adapter, its run trained the weights themselves: "
                         "leave out --adapter")
    return lambda target: _copy(checkpoint.adapter, target, files_below(checkpoint.adapter))


def _find_checkpoint(run: str | Path, step: int | None, runs: Path) -> tuple[Checkpoint, Path]:
    reference = locate(run, runs)
    if None not in (step, reference.step) and step != reference.step:
        raise UsageError(f"{run} is the checkpoint of step {reference.step}, but --step says {step}: name one of them")
    directory = RunDirectory.open(reference.run)
    checkpoints = Checkpoints(directory.checkpoints)
    wanted = reference.step if step is None else step
    found = checkpoints.latest() if wanted is None else checkpoints.open(wanted)
    if found is None:
        raise UsageError(f"run {reference.run} has no checkpoint yet: one is written every checkpoint.every steps "
                         "and at the end of training")
    return found, reference.run


def _check_target(directory: Path, run: Path, overwrite: bool) -> None:
    inside = directory.resolve()
    if (run / CHECKPOINTS).resolve() in (inside, *inside.parents):
        raise UsageError(f"{directory} is among the checkpoints of the run: choose another directory")
    if not os.path.lexists(directory):
        return
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory: choose another one")
    names = os.listdir(directory)
    if names and not overwrite:
        raise UsageError(f"{directory} is not empty: choose another directory, "
                         "or replace the model in it with --overwrite")
    if names:
        _check_replaceable(directory, names)


def _check_replaceable(directory: Path, names: list[str]) -> None:
    """Whether all of it belongs to a model, or to an export that was killed, so that nothing else is lost."""
    foreign = sorted(name for name in names if name != _ASIDE and not _OF_A_MODEL.fullmatch(name))
    if foreign or not (_ASIDE in names or _is_model(directory)):
        why = f"it holds {foreign[0]}" if foreign else f"it has no {CONFIG} of a model"
        raise UsageError(f"{directory} is not replaced, since it is more than an exported model ({why}): "
                         "choose another directory, or empty it yourself")


def _is_model(directory: Path) -> bool:
    return _has_key(directory / CONFIG, "model_type") or _has_key(directory / ADAPTER_CONFIG, "peft_type")


def _has_key(path: Path, key: str) -> bool:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and key in config


@contextlib.contextmanager
def _aside(directory: Path) -> Iterator[Path]:
    """A directory to write to inside the target, so that the files only need to be renamed; gone afterwards."""
    existed, aside = os.path.lexists(directory), directory / _ASIDE
    with explained(f"cannot export to {directory}", UsageError):
        remove_tree(aside)
        aside.mkdir(parents=True)
    try:
        yield aside
    except BaseException as error:
        trouble = storage_trouble(error, directory) if isinstance(error, Exception) else None
        remove_tree(aside if existed else directory)
        if trouble is None:
            raise
        raise RunError(f"cannot export to {directory}: {trouble}") from error
    aside.rmdir()


def _publish(aside: Path, directory: Path) -> None:
    """Replace what is in the directory. What loads a model reads its configuration first: it goes first and comes last."""
    first = (CONFIG, ADAPTER_CONFIG)
    old = sorted(set(os.listdir(directory)) - {_ASIDE}, key=lambda name: name not in first)
    for name in old:
        path = directory / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    for name in sorted(os.listdir(aside), key=lambda name: name in first):
        os.rename(aside / name, directory / name)
    sync_tree(directory)


def _copy(source: Path, target: Path, names: Iterable[str]) -> None:
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, target / name)


def _convert(source: Path, target: Path, dtype: str) -> None:
    """Copy a model with its weights in another type, one file at a time; the configuration says so."""
    _copy(source, target, (name for name in files_below(source) if not name.endswith(".safetensors")))
    for path in sorted(source.glob("*.safetensors")):
        _convert_file(path, target / path.name, dtype)
    _edit_json(target / CONFIG, lambda config: set_dtype(config, dtype))
    if (target / _INDEX).exists():
        size = _weights(target).size
        _edit_json(target / _INDEX, lambda index: index.setdefault("metadata", {}).update(total_size=size))


def _convert_file(source: Path, target: Path, dtype: str) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    wanted = getattr(torch, dtype)
    converted = {name: cast(name, tensor, wanted) for name, tensor in load_file(source).items()}
    save_file(converted, target, metadata={"format": "pt"})


def _edit_json(path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    edit(content)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class _Weights:
    dtype: str
    size: int


def _weights(directory: Path) -> _Weights:
    """Type (of most of the bytes) and size (bytes) of all weights, from the headers of their files."""
    sizes: Counter[str] = Counter()
    for path in directory.glob("*.safetensors"):
        for tensor in _header(path).values():
            begin, end = tensor["data_offsets"]
            sizes[tensor["dtype"]] += end - begin
    names = {code: name for name, code in DTYPES.items()}
    code = max(sizes, key=lambda code: sizes[code], default="none")
    return _Weights(names.get(code, code), sizes.total())


def _header(path: Path) -> dict[str, Any]:
    """Name, type and place of each tensor: a safetensors file begins with the length of this JSON in eight bytes."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header: dict[str, Any] = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return header
