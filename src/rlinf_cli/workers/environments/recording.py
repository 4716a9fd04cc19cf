"""Videos of episodes: frames are gathered as a pool is stepped, and become a file when an episode ends."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.workers.environments.pool import Pool

_GIF_FPS = 15.0
_GIF_SIDE = 320
"""Most frames a second and most pixels a side of a GIF, which would be too large otherwise."""

Frame = NDArray[np.uint8]


class Recorder:
    """Of the episodes of a pool with `images` that are numbered below `count`."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._frames: dict[int, list[Frame]] = {}

    def see(self, pool: Pool, half: int, numbers: Sequence[int]) -> None:
        """Keep a frame of each row. `numbers`: of the episodes under way in the rows of a half; negative: of none that counts."""
        wanted = {row: number for row, number in enumerate(numbers) if 0 <= number < self._count}
        frames = pool.render(half) if wanted else ()
        for row, number in wanted.items():
            self._frames.setdefault(number, []).append(np.array(frames[row]))

    def forget(self, number: int) -> None:
        """The episode was lost, and begins anew."""
        self._frames.pop(number, None)

    def video(self, number: int, fps: float) -> bytes:
        """Of an episode that has ended; empty where it was not to be recorded."""
        frames = self._frames.pop(number, None)
        return encoded(frames, fps) if frames else b""


def encoded(frames: Sequence[Frame], fps: float) -> bytes:
    """MP4 (H.264) where imageio has an encoder (the package imageio-ffmpeg), else GIF, with fewer and smaller frames.

    `frames`: uint8 [height, width, 3], of one size.
    """
    from imageio import v3

    with tempfile.TemporaryDirectory() as folder:
        if importlib.util.find_spec("imageio_ffmpeg"):
            file = Path(folder, "video.mp4")
            v3.imwrite(file, _even(frames), plugin="FFMPEG", fps=fps, macro_block_size=2)
        else:
            file = Path(folder, "video.gif")
            every, side = max(1, round(fps / _GIF_FPS)), -(-max(frames[0].shape[:2]) // _GIF_SIDE)
            kept = [frame[::side, ::side] for frame in frames[::every]]
            v3.imwrite(file, kept, plugin="pillow", duration=1000 * every / fps, loop=0)
        return file.read_bytes()


def suffix(video: bytes) -> str:
    """Of the file that it is."""
    return ".gif" if video.startswith(b"GIF8") else ".mp4"


def _even(frames: Sequence[Frame]) -> list[Frame]:
    """H.264 takes an even number of pixels each way."""
    height, width = (size // 2 * 2 for size in frames[0].shape[:2])
    return [frame[:height, :width] for frame in frames]
