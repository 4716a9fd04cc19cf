"""Videos of an evaluation's episodes, as files."""

import pytest

from rlinf_cli.errors import RunError
from rlinf_cli.rl.segment import Episode
from rlinf_cli.runs.videos import named, write_videos


def episode(number, success, video, returned=0.0):
    return Episode(f"0-{number}", 0, number, "", "pick/it up", 0, -1, returned, 9, success, False, video)


def test_names_tell_what_came_of_an_episode():
    episodes = [episode(0, True, b"GIF89a"), episode(1, False, b"mp4"), episode(2, None, b"mp4", 481.7), episode(3, True, b"")]
    assert named("pick/it up", episodes) == {
        "pick-it-up-0000-success.gif": b"GIF89a", "pick-it-up-0001-failure.mp4": b"mp4", "pick-it-up-0002-return482.mp4": b"mp4"}


def test_each_evaluation_has_a_directory(tmp_path):
    assert write_videos(tmp_path, 0, {}) == []
    assert list(tmp_path.iterdir()) == []
    paths = write_videos(tmp_path, 20, {"a.gif": b"1", "b.gif": b"2"})
    assert [(path.relative_to(tmp_path).as_posix(), path.read_bytes()) for path in paths] == [
        ("videos/step_000020/a.gif", b"1"), ("videos/step_000020/b.gif", b"2")]


def test_a_disk_that_refuses_is_told(tmp_path):
    (tmp_path / "videos").write_text("")
    with pytest.raises(RunError, match="cannot write the videos of step 3: "):
        write_videos(tmp_path, 3, {"a.gif": b""})
