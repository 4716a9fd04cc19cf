import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.contracts.environment import Start
from rlinf_cli.errors import RunError
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.rl.segment import Episode
from rlinf_cli.runs.episodes import EpisodesEvaluation
from rlinf_cli.workers.environments.starts import Numbered

STARTS = [("lift", 0), ("lift", 1), ("lift", 0), ("lift", 1), ("push", 0), ("push", 1), ("push", 0), ("push", 1)]


def episode(number, success, returned=1.0):
    task, state = STARTS[number]
    return Episode(f"0-{number}", 0, number, "", task, 10 + number, state, returned, 5 + number, success, False)


@pytest.fixture
def evaluation():
    config = resolve([], ["env.name=CartPole-v1", "eval.success=3", "eval.every=1"], {}, load_plugins(None))
    starts = [Numbered(number, Start(10 + number, *pair)) for number, pair in enumerate(STARTS)]
    return EpisodesEvaluation(config, None, starts)


class TestResults:
    def test_count_whole_successes_by_task_and_initial_state(self, evaluation):
        told = [episode(number, number in (0, 2, 3, 5)) for number in range(8)]
        lift, push = evaluation.results([told[5:], told[:5]], 0)  # in whatever order they come
        assert (lift.task, lift.k, lift.successes) == ("lift", 2, (2, 1))
        assert (push.task, push.successes) == ("push", (0, 1))
        document = lift.document()
        assert (document["successes"], document["trials"], document["states"]) == (3, 4, 2)
        assert document["mean@2"] == 0.75
        low, high = document["mean@2_interval"]
        assert low < 0.75 < high
        assert document["pass@2"] == 1
        assert [one["seed"] for one in document["episodes"]] == [10, 11, 12, 13]
        assert lift.metrics()["eval/lift/successes"] == 3
        assert lift.metrics()["eval/lift/episode_len/mean"] == 6.5

    def test_where_the_simulator_does_not_say_the_return_decides(self, evaluation):
        told = [episode(number, None, returned=number) for number in range(8)]
        lift, push = evaluation.results([told], 0)
        assert lift.successes == (0, 1)
        assert push.successes == (2, 2)

    @pytest.mark.parametrize("numbers", [[0, 1, 2, 3, 4, 5, 6], [0, 0, 1, 2, 3, 4, 5, 6]])
    def test_are_of_each_start_once(self, evaluation, numbers):
        with pytest.raises(RunError, match="an evaluation of 8 episodes has given"):
            evaluation.results([[episode(number, True) for number in numbers]], 0)
