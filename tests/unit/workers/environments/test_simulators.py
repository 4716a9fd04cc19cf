import numpy as np
import pytest

from rlinf_cli.contracts.environment import Start
from rlinf_cli.workers.environments.pool import Pool
from rlinf_cli.workers.environments.simulators import Simulators
from rlinf_cli.workers.environments.starts import EvaluationPlan, Numbered


class Plan:
    """Episode k of environment i has the seed 100 i + k: it terminates after 3 + seed % 4 steps, and is cut off after 5."""

    def __init__(self):
        self.numbers, self.lost = {}, []

    def following(self, environment):
        number = self.numbers[environment] = self.numbers.get(environment, -1) + 1
        return Numbered(number, Start(100 * environment + number), f"g{number}")

    def again(self, environment, lost):
        self.lost.append((environment, lost.number))


@pytest.fixture
def make(counting):
    made = []

    def start(count=2, processes=1, halves=1, plan=None, wanted=None, behaviour=""):
        simulators = Simulators(
            lambda ask: Pool(counting.Counting(behaviour), count, processes, "cpu", ask, halves=halves, chunk=1),
            plan or Plan(), {"": 0}, 10, count, wanted)
        made.append(simulators)
        simulators.begin()
        return simulators

    yield start
    for simulators in made:
        simulators.close()


def steps(simulators, count, action=1.0, half=0):
    arrivals = []
    for _ in range(count):
        simulators.send(half, np.full(simulators.size, action, np.float32))
        arrivals.append(simulators.receive(half))
    return arrivals


class TestEpisodes:
    def test_have_the_sum_of_their_rewards_their_length_and_how_they_ended(self, make):
        simulators = make()  # seeds 0 and 100: both terminate after 3 steps, then 1 and 101: after 4
        steps(simulators, 7)
        episodes = simulators.take_episodes()
        assert [(one.environment, one.number, one.seed, one.returned, one.length, one.truncated) for one in episodes] == [
            (10, 0, 0, 3.0, 3, False), (11, 0, 100, 3.0, 3, False), (10, 1, 1, 4.0, 4, False), (11, 1, 101, 4.0, 4, False)]
        assert simulators.take_episodes() == []

    def test_succeed_when_they_did_at_any_time(self, make):
        simulators = make(1)
        steps(simulators, 1, action=11.0)
        steps(simulators, 2)
        assert [one.success for one in simulators.take_episodes()] == [True]

    def test_where_nobody_says_success_is_not_known(self, make):
        simulators = make(1, behaviour="silent")
        steps(simulators, 3)
        assert [one.success for one in simulators.take_episodes()] == [None]

    def test_their_ages_and_numbers_are_those_of_what_is_acted_on(self, make):
        simulators = make(1)
        seen = [(int(one.numbers[0]), int(one.ages[0])) for one in (steps(simulators, 1)[0] for _ in range(4))]
        assert seen == [(0, 1), (0, 2), (1, 0), (1, 1)]

    def test_only_what_was_cut_off_has_a_final_observation(self, make):
        class Long(Plan):
            def following(self, environment):
                return Numbered(0, Start(3))  # would terminate after 6 steps, is cut off after 5

        arrivals = steps(make(1, plan=Long()), 5)
        assert [bool(one.truncated[0]) for one in arrivals] == [False] * 4 + [True]
        assert arrivals[4].final[0].tolist() == [3, 5, 5]
        assert arrivals[4].observation[0].tolist() == [3, 0, 0]

    def test_go_on_where_a_step_left_them(self, make):
        simulators = make(1)
        steps(simulators, 2)
        again = simulators.latest(0)
        assert again.ages.tolist() == [2]
        assert again.observation[0].tolist() == [0, 2, 2]
        assert not again.reward.any()


class TestLoss:
    def test_the_plan_is_told_and_the_rows_begin_anew(self, make):
        plan = Plan()
        simulators = make(4, processes=2, plan=plan)
        simulators.send(0, np.array([1, 1, -9, 1], np.float32))  # the second process dies of it
        arrival = simulators.receive(0)
        assert arrival.lost.tolist() == [False, False, True, True]
        assert plan.lost == [(2, 0), (3, 0)]
        assert arrival.numbers.tolist() == [0, 0, 1, 1]
        assert simulators.take_episodes() == []


class TestEvaluation:
    @pytest.mark.parametrize(("count", "processes"), [(1, 1), (2, 1), (4, 2)])
    def test_each_start_is_gone_through_once_whatever_is_parallel(self, make, count, processes):
        starts = [Numbered(number, Start(number)) for number in range(7)]
        simulators = make(count, processes, plan=EvaluationPlan(starts, Start(0)), wanted=7)
        while not simulators.is_over:
            steps(simulators, 1)
        found = sorted(simulators.take_episodes(), key=lambda one: one.number)
        assert [(one.number, one.seed, one.length) for one in found] == [(n, n, min(3 + n % 4, 5)) for n in range(7)]
