"""Videos of an evaluation's episodes, in a directory of their own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlinf_cli.rl.segment import Episode
from rlinf_cli.runs.files import explained

VIDEOS = "videos"
"""Of a run, with a directory for each step after which it was evaluated."""


def named(task: str, episodes: Sequence[Episode]) -> dict[str, bytes]:
    """Name of the file -> what is in it, of the episodes that were recorded."""
    from rlinf_cli.workers.environments.recording import suffix

    prefix = re.sub(r"[^\w.+-]+", "-", task)
    return {f"{prefix}-{episode.number:04d}-{_outcome(episode)}{suffix(episode.video)}": episode.video
            for episode in episodes if episode.video}


def _outcome(episode: Episode) -> str:
    if episode.success is None:
        return f"return{episode.returned:.0f}"
    return "success" if episode.success else "failure"


def write_videos(run: Path, step: int, videos: Mapping[str, bytes]) -> list[Path]:
    """Into `run`; where they are then. Raises RunError when the disk refuses."""
    folder = run / VIDEOS / f"step_{step:06d}"
    with explained(f"cannot write the videos of step {step}"):
        if videos:
            folder.mkdir(parents=True, exist_ok=True)
        for name, content in videos.items():
            (folder / name).write_bytes(content)
    return [folder / name for name in videos]
