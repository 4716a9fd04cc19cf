"""Noise of actions: a function of seed, environment, episode and step alone, and normal."""

import numpy as np

from rlinf_cli.rl.noise import action_noise, episode_keys

ENVIRONMENTS = np.arange(50)


def test_it_does_not_depend_on_who_is_beside():
    keys = episode_keys(3, ENVIRONMENTS, np.full(50, 7))
    whole = action_noise(keys, np.arange(50), 4)
    assert whole.shape == (50, 4)
    assert whole.dtype == np.float32
    for rows in ([9], [40, 2, 17]):
        alone = episode_keys(3, ENVIRONMENTS[rows], np.full(len(rows), 7))
        assert np.array_equal(action_noise(alone, np.arange(50)[rows], 4), whole[rows])


def test_each_of_seed_environment_episode_and_step_decides_it():
    def drawn(seed=0, environment=1, episode=1, step=1):
        return action_noise(episode_keys(seed, np.array([environment]), np.array([episode])), np.array([step]), 2).tobytes()

    given = [drawn(), drawn(seed=1), drawn(environment=2), drawn(episode=2), drawn(step=2), drawn(environment=2, episode=2)]
    assert len(set(given)) == len(given)
    assert drawn(environment=1, episode=2) != drawn(environment=2, episode=1)


def test_steps_share_no_number():
    keys = episode_keys(0, np.zeros(20, np.int64), np.zeros(20, np.int64))
    assert len(np.unique(action_noise(keys, np.arange(20), 5))) == 100


def test_it_is_standard_normal():
    keys = episode_keys(0, np.arange(400), np.arange(400))
    drawn = np.concatenate([action_noise(keys, np.full(400, step), 25).ravel() for step in range(10)]).astype(float)
    assert len(drawn) == 100_000
    moments = [drawn.mean(), drawn.var(), (drawn**3).mean(), (drawn**4).mean()]
    np.testing.assert_allclose(moments, [0, 1, 0, 3], atol=0.06)
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.02
