"""trackio: a local dashboard, or a Hugging Face Space. A run that is resumed goes on in the same trackio run."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping

import trackio

from rlinf_cli.api import RunInfo
from rlinf_loggers.config import TrackioConfig


class Trackio:
    """Implements `rlinf_cli.api.Logger`.

    trackio would keep both values of a step that comes twice: those that it got before the run went back to a checkpoint
    keep theirs.
    """

    def __init__(self, config: TrackioConfig, run: RunInfo) -> None:
        self.tracker_id = run.tracker_id or run.name
        self.place = f"trackio show --project {config.project}"
        self._logged = run.logged
        with _quiet():
            self._run = trackio.init(config.project, self.tracker_id, config=dict(run.config), embed=False,
                                     resume="allow" if run.tracker_id else "never", auto_log_cpu=False, auto_log_gpu=False)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if step > self._logged:
            self._run.log(dict(metrics), step=step)

    def close(self, status: str) -> None:
        with _quiet():
            trackio.finish()


def _quiet() -> contextlib.redirect_stdout[io.StringIO]:
    """Without its greetings."""
    return contextlib.redirect_stdout(io.StringIO())
