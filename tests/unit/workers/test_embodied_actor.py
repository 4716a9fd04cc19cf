import numpy as np

from rlinf_cli.rl.segment import Episode, Segment
from rlinf_cli.workers.embodied_actor import episode_metrics, segment_metrics


def episode(returned, length, success=None):
    return Episode("0-0", 0, 0, "", "", 0, -1, returned, length, success, False)


def segment(**changes):
    shape = (3, 2)
    given = {
        "observations": np.zeros((*shape, 4), np.float32), "sampled": np.zeros(shape),
        "logprobs": np.zeros((*shape, 1), np.float32),
        "values": np.zeros((4, 2), np.float32), "rewards": np.ones(shape, np.float32), "terminated": np.zeros(shape, bool),
        "truncated": np.zeros(shape, bool), "final_values": np.zeros(shape, np.float32), "versions": np.full(shape, 4, np.int32),
        "episode_ids": np.zeros(shape, np.int64), "environments": np.arange(2), "lost": np.zeros(shape, bool), **changes}
    return Segment(**given)


class TestEpisodes:
    def test_mean_and_ends_of_what_ended(self):
        metrics = episode_metrics([episode(2.0, 5, True), episode(6.0, 7, False)])
        assert metrics["env/return/mean"] == metrics["reward/mean"] == 4
        assert (metrics["env/return/min"], metrics["env/return/max"]) == (2, 6)
        assert metrics["env/episode_len/mean"] == 6
        assert metrics["env/success"] == 0.5

    def test_nothing_is_said_of_what_is_not_known(self):
        assert episode_metrics([]) == {"env/episodes": 0}
        assert "env/success" not in episode_metrics([episode(1.0, 1)])


class TestSegments:
    def test_age_is_in_versions_of_the_policy_that_is_trained(self):
        versions = np.array([[4, 4], [4, 5], [5, 5]], np.int32)
        metrics = segment_metrics([segment(versions=versions)], 5)
        assert metrics["rollout/staleness/mean"] == 0.5
        assert metrics["rollout/staleness/max"] == 1

    def test_a_lost_episode_is_one_however_many_steps_it_had(self):
        lost, ended = np.zeros((3, 2), bool), np.zeros((3, 2), bool)
        lost[:2, 1], ended[1, 1] = True, True
        assert segment_metrics([segment(lost=lost, terminated=ended)], 4)["env/lost"] == 1
        assert "env/lost" not in segment_metrics([segment()], 4)

    def test_a_reward_that_is_no_number_does_not_hide_the_others(self):
        rewards = np.array([[1, 3], [np.nan, 3], [1, 2]], np.float32)
        assert segment_metrics([segment(rewards=rewards)], 4)["env/reward/mean"] == 2
