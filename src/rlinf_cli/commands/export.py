"""`rlinf export`: a checkpoint as a Hugging Face directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlinf_cli.commands._shell import emit, table
from rlinf_cli.errors import UsageError
from rlinf_cli.runs.sparkline import data_size

if TYPE_CHECKING:
    from rlinf_cli.runs.export import Exported


@click.command()
@click.argument("run")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--step", type=click.IntRange(min=1), help="Checkpoint to take.  [default: the latest]")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float16"]),
              help="Convert the weights.  [default: as they were saved]")
@click.option("--adapter", is_flag=True, help="Write the adapter of a LoRA run alone, as peft does, without its model.")
@click.option("--critic", is_flag=True, help="Write the critic of a PPO run in place of its policy.")
@click.option("--overwrite", is_flag=True, help="Replace the model that DIRECTORY holds.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def export(run: str, directory: Path, step: int | None, dtype: str | None, adapter: bool, critic: bool, overwrite: bool,
           as_json: bool) -> None:
    """Write the policy of RUN to DIRECTORY, as transformers, vLLM and others load it.

    RUN is a run's directory, its name under runs/, or the directory of one of its checkpoints. No accelerator is
    needed.
    """
    from rlinf_cli.runs.export import export_model

    if adapter and critic:
        raise UsageError("--adapter and --critic contradict each other: an adapter is the policy's")
    exported = export_model(run, directory, step, dtype, overwrite, adapter=adapter, critic=critic)
    emit(_document(exported, critic), as_json, lambda: table(("", ""), _rows(exported, critic)))


def _document(exported: Exported, critic: bool) -> dict[str, object]:
    return {"directory": str(exported.directory), "run": str(exported.run), "step": exported.step,
            "dtype": exported.dtype, "bytes": sum(exported.files.values()), "files": dict(exported.files),
            "load": _load(exported, critic)}


def _rows(exported: Exported, critic: bool) -> list[tuple[str, str]]:
    total = data_size(sum(exported.files.values()))
    files = [f"{name}  {data_size(size)}" for name, size in exported.files.items()]
    return [("exported", f"step {exported.step} of {exported.run}"),
            ("directory", f"{exported.directory}  {exported.dtype}, {total}"),
            *zip(["files", *[""] * (len(files) - 1)], files),
            ("load", _load(exported, critic))]


def _load(exported: Exported, critic: bool) -> str:
    if critic:
        return f"transformers.AutoModelForTokenClassification.from_pretrained({str(exported.directory)!r})"
    if "adapter_config.json" in exported.files:
        return f"peft.AutoPeftModelForCausalLM.from_pretrained({str(exported.directory)!r})"
    return f"transformers.AutoModelForCausalLM.from_pretrained({str(exported.directory)!r})"
