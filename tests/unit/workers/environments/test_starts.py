import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.errors import UsageError
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.workers.environments.starts import TRIALS, EvaluationPlan, TrainingPlan, evaluation_starts


class Suite:
    """Two tasks with three known states each, and one whose states are drawn."""

    def __init__(self, states=(3, 3)):
        self._states = dict(zip(("lift", "push"), states, strict=False))

    def tasks(self):
        return list(self._states)

    def states(self, task):
        return self._states[task]


def config_of(*arguments):
    return resolve([], list(arguments), {}, load_plugins(None))


class TestTrainingPlan:
    def test_an_episode_is_a_function_of_seed_environment_and_number(self):
        config = config_of("env.count=4", "seed=3")
        whole, part = TrainingPlan(config, Suite(), 0, 4), TrainingPlan(config, Suite(), 2, 2)
        ours = [[whole.following(i) for _ in range(5)] for i in range(4)]
        theirs = [[part.following(i) for _ in range(5)] for i in range(2)]
        assert ours[2:] == theirs
        assert len({one.start.seed for row in ours for one in row}) == 20

    def test_another_seed_begins_otherwise(self):
        starts = [TrainingPlan(config_of(f"seed={seed}"), Suite(), 0, 1).following(0).start for seed in (0, 1)]
        assert starts[0].seed != starts[1].seed

    def test_environments_of_a_group_begin_alike_and_others_do_not(self):
        config = config_of("env.count=6", "env.group=3")
        plan = TrainingPlan(config, Suite(), 0, 6)
        first = [plan.following(i) for i in range(6)]
        assert [one.group for one in first] == ["0-0"] * 3 + ["1-0"] * 3
        assert len({one.start for one in first[:3]}) == 1
        assert first[0].start.seed != first[3].start.seed

    def test_tasks_come_equally_often(self):
        plan = TrainingPlan(config_of("env.count=3"), Suite(), 0, 3)
        tasks = [plan.following(i).start.task for _ in range(4) for i in range(3)]
        assert tasks.count("lift") == tasks.count("push") == 6

    def test_numbers_of_a_step_come_after_all_that_earlier_steps_can_have_used(self):
        config = config_of("rollout.steps=5")
        plan = TrainingPlan(config, Suite(), 0, 1)
        plan.begin(2)
        before = [plan.following(0).number for _ in range(6)]
        plan.begin(3)
        assert before == [12, 13, 14, 15, 16, 17]
        assert plan.following(0).number == 18


class TestEvaluation:
    def test_covers_each_pair_of_task_and_state_once(self):
        starts = evaluation_starts(config_of(), Suite())
        assert [(one.start.task, one.start.state) for one in starts] == [
            (task, state) for task in ("lift", "push") for state in range(3)]
        assert [one.number for one in starts] == list(range(6))

    def test_or_so_many_from_each(self):
        starts = evaluation_starts(config_of("eval.episodes=6"), Suite())
        lifts = [one.start for one in starts if one.start.task == "lift"]
        assert [one.state for one in lifts] == [0, 1, 2, 0, 1, 2]
        assert len({one.seed for one in lifts}) == 6

    def test_states_that_are_drawn_have_seeds_of_their_own(self):
        starts = evaluation_starts(config_of(), Suite((0,)))
        assert len({one.start.seed for one in starts}) == TRIALS
        assert {one.start.state for one in starts} == {-1}
        assert starts == evaluation_starts(config_of("env.count=3"), Suite((0,)))

    def test_refuses_what_would_count_some_states_more_than_others(self):
        with pytest.raises(UsageError, match=r"eval\.episodes=4.*'lift' has 3 initial states.*at most 3, or a multiple"):
            evaluation_starts(config_of("eval.episodes=4"), Suite())

    def test_hands_out_each_start_once_and_lost_ones_again(self):
        starts = evaluation_starts(config_of(), Suite((2,)))
        plan = EvaluationPlan(starts, starts[0].start)
        first = plan.following(1)
        plan.again(1, first)
        assert [plan.following(0).number for _ in range(3)] == [0, 1, -1]
        plan.again(0, plan.following(0))
        assert plan.following(0).number == -1
