"""The environment role's own part: when episodes begin anew, and how many are stepped at once."""

import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.workers.environment import EnvironmentWorker, evaluated_at_once, halves_of


def config_of(*arguments):
    return resolve([], ["env.name=CartPole-v1", "env.count=4", "rollout.steps=4", *arguments], {}, load_plugins(None))


@pytest.fixture
def worker():
    made = []

    def make(*arguments):
        one = EnvironmentWorker.__new__(EnvironmentWorker)
        one.role, one.rank, one.world, one.device = "environment", 1, 2, "cpu"
        one.__init__(config_of(*arguments), beside=True)
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()


class TestHalves:
    @pytest.mark.parametrize(("arguments", "beside", "halves"), [
        ([], True, 1), ([], False, 2), (["env.processes=2"], True, 2), (["env.halves=1"], False, 1), (["env.halves=2"], True, 2)])
    def test_two_where_both_can_go_on_at_once(self, arguments, beside, halves):
        assert halves_of(config_of(*arguments), beside) == halves


class TestEvaluation:
    def test_as_many_as_can_be_shared_out(self):
        assert evaluated_at_once(config_of(), 1, 1) == 4
        assert evaluated_at_once(config_of(), 2, 3) == 6
        assert evaluated_at_once(config_of("eval.parallel=1"), 1, 3) == 3


class TestEpisodes:
    def test_a_rank_has_the_environments_that_are_its_own(self, worker):
        one = worker()
        one._plan.begin(0)
        one._simulators.begin()
        assert one._simulators.first == 2
        assert [episode.group for episode in one._simulators._running[:2]] == ["2-0", "3-0"]

    @pytest.mark.parametrize(("arguments", "steps"), [
        ([], []), (["env.episodes=anew"], [0, 1, 2, 3, 4]), (["deterministic=true", "checkpoint.every=2"], [0, 2, 4]),
        (["deterministic=true"], []), (["checkpoint.every=2"], [])])
    def test_begin_anew_where_that_was_asked_for(self, worker, arguments, steps):
        one = worker(*arguments)
        assert [step for step in range(5) if one._begins_anew(step)] == steps
