"""Event files for TensorBoard, written without torch or TensorFlow."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from rlinf_cli.api import RunInfo
from rlinf_loggers.config import TensorBoardConfig


class TensorBoard:
    """Implements `rlinf_cli.api.Logger`. Every attempt adds an event file to the run's directory."""

    def __init__(self, config: TensorBoardConfig, run: RunInfo) -> None:
        directory = Path(config.directory).expanduser() / run.name if config.directory else run.directory / "tensorboard"
        self.tracker_id = str(directory)
        self.place = f"tensorboard --logdir {directory.parent if config.directory else directory}"
        self._writer = EventFileWriter(self.tracker_id)
        # readers then forget what earlier files say of this step and later ones
        self._add(Event(step=run.step + 1 if run.step else 0, session_log=SessionLog(status=SessionLog.START)))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self._add(Event(step=step, summary=Summary(value=values)))

    def close(self, status: str) -> None:
        self._writer.close()

    def _add(self, event: Event) -> None:
        event.wall_time = time.time()
        self._writer.add_event(event)
        self._writer.flush()
