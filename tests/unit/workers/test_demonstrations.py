"""Demonstrations as experience: which steps a training step learns, chunks of actions, and what does not fit."""

from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict

from rlinf_cli.config.load import resolve
from rlinf_cli.data.demonstrations import Demonstration, write_demonstrations
from rlinf_cli.errors import UsageError
from rlinf_cli.plugins.loader import plugins
from rlinf_cli.workers.demonstrations import DemonstrationsWorker, chunked, observed, require_fit

STATE, ACTION, FILE = Box(-9, 9, (4,), np.float32), Box(-1, 1, (2,), np.float32), Path("demos.hdf5")


def shown(steps, state=4, actions=None, task="", **more):
    places = np.arange(steps * state, dtype=np.float32).reshape(steps, state)
    acted = np.arange(steps * 2, dtype=np.float32).reshape(steps, 2) if actions is None else actions
    return Demonstration({"state": places, **more}, acted, np.zeros(steps, np.float32), task, "", 0, -1)


def test_a_chunk_is_what_is_done_from_a_step_on_and_the_last_action_goes_on():
    windows = chunked([shown(3), shown(2)], 2)
    assert windows[..., 0].tolist() == [[0, 2], [2, 4], [4, 4], [0, 2], [2, 2]]
    assert chunked([shown(3)], 1).shape == (3, 2)


def test_several_observations_stay_apart():
    image = np.zeros((3, 8, 8, 3), np.uint8)
    assert observed([shown(2), shown(3)]).shape == (5, 4)
    assert {name: array.shape for name, array in observed([shown(3, image=image)]).items()} == {
        "state": (3, 4), "image": (3, 8, 8, 3)}


@pytest.mark.parametrize(("one", "observation", "told"), [
    (shown(2, 5), STATE, r"of another environment: state is \[5\] there, and \[4\] here"),
    (shown(2, actions=np.zeros((2, 3))), STATE, r"the action is \[3\] there, and \[2\] here"),
    (shown(2), Dict({"image": Box(0, 255, (8, 8, 3), np.uint8)}), "does not have 'image', which the environment shows")])
def test_demonstrations_of_something_else_are_refused(one, observation, told):
    with pytest.raises(UsageError, match=told):
        require_fit([one], observation, ACTION, FILE)


class Sent(list):
    put = list.append


@pytest.fixture
def worker(tmp_path):
    def made(*settings):
        choices = [shown(steps, actions=np.full(steps, steps % 2)) for steps in (7, 6)]
        write_demonstrations(tmp_path / "demos.hdf5", choices, "CartPole-v1", {})
        arguments = ["algorithm.name=bc", f"algorithm.demos={tmp_path / 'demos.hdf5'}", "env.name=CartPole-v1", "env.count=2",
                     "rollout.steps=4", *settings]
        return DemonstrationsWorker(resolve([], arguments, {}, plugins()))

    return made


def steps_of(worker, step):
    sent = Sent()
    worker.show(sent, step)
    (segment,) = sent
    return segment


def test_all_steps_are_seen_before_any_comes_again(worker):
    made = worker()
    segments = [steps_of(made, step) for step in range(13)]
    assert {segment.rewards.shape for segment in segments} == {(4, 2)}
    rows = np.concatenate([segment.episode_ids.ravel() for segment in segments])
    assert len(rows) == 8 * 13
    for epoch in rows.reshape(8, 13):
        assert sorted(epoch) == list(range(13))


def test_a_step_is_the_same_in_each_run_of_a_seed(worker):
    first, again, other = steps_of(worker(), 3), steps_of(worker(), 3), steps_of(worker("seed=1"), 3)
    assert np.array_equal(first.observations, again.observations)
    assert not np.array_equal(first.observations, other.observations)


def test_what_was_done_goes_with_what_was_seen(worker):
    segment = steps_of(worker(), 0)
    was_first = segment.episode_ids < 7
    assert np.array_equal(segment.sampled, was_first.astype(np.int64))
    places = np.where(was_first, segment.episode_ids, segment.episode_ids - 7) * 4
    assert np.array_equal(segment.observations[..., 0], places)
