"""Trackers that get the metrics of a run: TensorBoard, wandb, trackio; and those that other plugins register."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlinf_cli.api import Extension, hookimpl

if TYPE_CHECKING:
    from rlinf_cli.api import RunEnd, RunStart, StepEnd
    from rlinf_loggers.trackers import Trackers

_trackers: Trackers | None = None
"""Those of the run that this process trains."""


@hookimpl
def register_loggers() -> list[Extension]:
    return [
        Extension("tensorboard", target="rlinf_loggers.tensorboard:TensorBoard", config="rlinf_loggers.config:TensorBoardConfig",
                  summary="event files for TensorBoard", requires=("tensorboard",), extra="tensorboard"),
        Extension("wandb", target="rlinf_loggers.wandb:Wandb", config="rlinf_loggers.config:WandbConfig",
                  summary="Weights & Biases, also offline", requires=("wandb",), extra="wandb"),
        Extension("trackio", target="rlinf_loggers.trackio:Trackio", config="rlinf_loggers.config:TrackioConfig",
                  summary="trackio: local, or a Hugging Face Space", requires=("trackio",), extra="trackio"),
    ]


@hookimpl
def on_run_start(context: RunStart) -> None:
    global _trackers
    if context.loggers:
        from rlinf_loggers.trackers import Trackers

        _trackers = Trackers(context)


@hookimpl
def on_step_end(context: StepEnd) -> None:
    if _trackers is not None:
        _trackers.log(context.step, context.metrics)


@hookimpl
def on_run_end(context: RunEnd) -> None:
    global _trackers
    if _trackers is not None:
        trackers, _trackers = _trackers, None
        trackers.close(context.status)
