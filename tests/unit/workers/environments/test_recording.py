"""Videos: of the episodes that were asked for, whole, and in the best format that there is an encoder for."""

import io
import itertools

import numpy as np
import pytest
from imageio import v3

from rlinf_cli.contracts.environment import Start
from rlinf_cli.workers.environments.pool import Pool
from rlinf_cli.workers.environments.recording import Recorder, encoded, suffix
from rlinf_cli.workers.environments.simulators import Simulators
from rlinf_cli.workers.environments.starts import EvaluationPlan, Numbered


@pytest.fixture
def no_encoder(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


def frames(video):
    return v3.imread(io.BytesIO(video), extension=suffix(video), plugin="pillow", index=None)


def test_a_gif_where_there_is_no_encoder(no_encoder):
    shown = [np.full((20, 30, 3), 60 * number, np.uint8) for number in range(4)]
    video = encoded(shown, 10.0)
    assert suffix(video) == ".gif"
    assert [int(frame.mean().round()) for frame in frames(video)] == [0, 60, 120, 180]
    assert v3.immeta(io.BytesIO(video), extension=".gif", plugin="pillow")["duration"] == 100


def test_a_gif_is_thinned_out(no_encoder):
    shown = [np.full((400, 700, 3), number, np.uint8) for number in range(0, 240, 8)]
    video = encoded(shown, 60.0)
    assert frames(video).shape == (8, 134, 234, 3)  # every fourth of 30 frames, every third pixel
    assert v3.immeta(io.BytesIO(video), extension=".gif", plugin="pillow")["duration"] in (60, 70)


def test_an_mp4_where_there_is_an_encoder(tmp_path):
    pytest.importorskip("imageio_ffmpeg")
    shown = [np.full((21, 31, 3), 200, np.uint8) for _ in range(5)]
    video = encoded(shown, 20.0)
    assert suffix(video) == ".mp4"
    (tmp_path / "a.mp4").write_bytes(video)
    found = v3.imread(tmp_path / "a.mp4", plugin="FFMPEG")
    assert found.shape == (5, 20, 30, 3)
    assert abs(int(found.mean()) - 200) < 8


def test_the_first_episodes_of_an_evaluation(monkeypatch, counting):
    monkeypatch.setattr("rlinf_cli.workers.environments.recording.encoded",
                        lambda frames, fps: bytes([int(frame[0, 0, 0]) for frame in frames]))
    starts = [Numbered(number, Start(20 * number)) for number in range(5)]  # each terminates after 3 steps
    simulators = Simulators(lambda ask: Pool(counting.Counting(), 2, 2, "cpu", ask, images=True),
                            EvaluationPlan(starts, starts[0].start), {"": 0}, 0, 2, 5, Recorder(3))
    simulators.begin()
    for step in itertools.count():
        if simulators.is_over:
            break
        lost = step == 4 and simulators._pool.restarts == 0  # the process of row 0, in the middle of episode 2
        simulators.send(0, np.array([counting.KILL if lost else 0.0, 0.0]))
        simulators.receive(0)
    episodes = sorted(simulators.take_episodes(), key=lambda episode: episode.number)
    simulators.close()
    # frames show the seed; the episode that was lost began anew
    assert [(one.number, list(one.video)) for one in episodes] == [(0, [0] * 3), (1, [20] * 3), (2, [40] * 3), (3, []), (4, [])]
