from __future__ import annotations

import math

import pytest

from rlinf_cli.errors import RunError
from rlinf_cli.rl.segment import Episode
from rlinf_cli.runs.samples import SamplesWriter, read_samples


@pytest.fixture
def path(tmp_path):
    return tmp_path / "samples.jsonl"


def test_a_line_tells_what_was_asked_said_and_earned(path, sample):
    with SamplesWriter(path, 0) as samples:
        samples.write(3, [sample(rewards={"reward": 1.0, "format": 0.5})])
    assert read_samples(path) == [{
        "step": 3, "id": "0-1/0", "prompt": "d47=", "response": "7", "answer": "7", "reward": 1.0,
        "rewards": {"reward": 1.0, "format": 0.5}, "finish": "stop"}]


def test_a_sample_without_a_reward_says_why(path, sample):
    with SamplesWriter(path, 0) as samples:
        samples.write(1, [sample(reward=math.nan, rewards={"format": math.nan}, error="timed out after 5 s",
                                 answer=None)])
    (line,) = read_samples(path)
    assert line["reward"] is None
    assert line["rewards"] == {"format": None}
    assert line["error"] == "timed out after 5 s"
    assert line["answer"] is None


def test_an_episode_tells_where_it_began_and_how_it_ended(path):
    with SamplesWriter(path, 0) as samples:
        samples.write(2, [Episode("0-7", 0, 7, "", "lift", 41, 3, 0.5, 20, None, True, b"a video")])
    assert read_samples(path) == [{"step": 2, "id": "0-7", "task": "lift", "state": 3, "seed": 41, "return": 0.5, "length": 20,
                                   "success": None, "truncated": True}]


def test_a_step_without_samples_writes_nothing(path):
    with SamplesWriter(path, 0) as samples:
        samples.write(1, [])
    assert read_samples(path) == []


def test_resuming_drops_the_samples_of_later_steps(path, sample):
    with SamplesWriter(path, 0) as samples:
        for step in (1, 2, 3):
            samples.write(step, [sample(id=f"{step}-a"), sample(id=f"{step}-b")])
    with SamplesWriter(path, 2) as samples:
        samples.write(3, [sample(id="3-new")])
    assert [line["id"] for line in read_samples(path)] == ["1-a", "1-b", "2-a", "2-b", "3-new"]


def test_any_text_is_kept(path, sample):
    text = "line\nbreak\t\x00\x1b[2J 数学 \ud83d"
    with SamplesWriter(path, 0) as samples:
        samples.write(1, [sample(response=text, prompt=text)])
    (line,) = read_samples(path)
    assert (line["response"], line["prompt"]) == (text, text)


def test_many_samples_of_a_step_are_written_all_or_none(path, sample, file_limit):
    with SamplesWriter(path, 0) as samples:
        samples.write(1, [sample()])
        with file_limit(2000), pytest.raises(RunError, match=r"samples.jsonl: file too large"):
            samples.write(2, [sample() for _ in range(100)])
    assert [line["step"] for line in read_samples(path)] == [1]
