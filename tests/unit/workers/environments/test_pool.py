"""What a pool tells of its instances, by hand and for any number of processes."""

import itertools

import numpy as np
import pytest

from rlinf_cli.contracts.environment import Start


def flat(value):
    if isinstance(value, dict):
        return {key: flat(one) for key, one in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value


def told(stepped):
    names = ("observation", "reward", "terminated", "truncated", "final_observations", "success", "length", "lost", "began")
    return {name: flat(getattr(stepped, name)) for name in names}


def history(pool, steps, actions):
    """What each environment was told in each step, whichever half it is in."""
    found = []
    for step in range(steps):
        rows = []
        for half in range(pool.halves):
            pool.send(half, actions[step, half * pool.size:(half + 1) * pool.size])
        for half in reversed(range(pool.halves)):
            rows = per_row(told(pool.receive(half)), pool.size) + rows
        found.append(rows)
    return found


def per_row(values, size):
    return [{name: one.get(row) if isinstance(one, dict) else one[row] for name, one in values.items()} for row in range(size)]


def test_episodes_by_hand(make_pool):
    pool = make_pool(2, 1)  # environment 0 terminates after 3 steps, environment 1 (seed 100) too; 1 and 101 after 4
    for step in (1, 2):
        pool.send(0, [1.0, 2.0])
        assert told(pool.receive(0)) == {
            "observation": [[0, step, step], [100, step, 2 * step]], "reward": [1, 2], "terminated": [False, False],
            "truncated": [False, False], "final_observations": {}, "success": [False, False], "length": [1, 1],
            "lost": [False, False], "began": {}}
    pool.send(0, [0.5, 11.0])
    assert told(pool.receive(0)) == {
        "observation": [[1, 0, 0], [101, 0, 0]], "reward": [0.5, 11], "terminated": [True, True], "truncated": [False, False],
        "final_observations": {0: [0, 3, 2.5], 1: [100, 3, 15]}, "success": [False, True], "length": [1, 1],
        "lost": [False, False], "began": {0: Start(1), 1: Start(101)}}


def test_a_row_can_be_terminated_truncated_or_both(make_pool):
    pool = make_pool(3, 1, episodes=lambda index, number: [1, 2, 3][index])  # terminating after 4, 5 and 6 steps
    ends = {}
    for step in range(1, 6):
        pool.send(0, np.zeros(3))
        stepped = pool.receive(0)
        for row, start in stepped.began.items():
            assert start == Start([1, 2, 3][row])
            ends.setdefault(row, (step, bool(stepped.terminated[row]), bool(stepped.truncated[row])))
    assert ends == {0: (4, True, False), 1: (5, True, True), 2: (5, False, True)}


@pytest.mark.parametrize("behaviour", ["", "dict"])
def test_the_same_for_any_number_of_processes_and_halves(make_pool, behaviour):
    actions = np.random.default_rng(0).uniform(0, 12, (9, 6)).round(2)
    expected = history(make_pool(6, 1, behaviour=behaviour), 9, actions)
    assert sum(row["final_observations"] is not None for step in expected for row in step) > 8
    for processes, halves in [(1, 2), (3, 2), (2, 1)]:
        assert history(make_pool(6, processes, halves, behaviour), 9, actions) == expected


@pytest.mark.parametrize("processes", [1, 2])
def test_a_chunk_ends_with_the_episode(make_pool, processes):
    pool = make_pool(2, processes, chunk=4, episodes=lambda index, number: index + 4 * number)
    pool.send(0, [[1, 2, 4, 8], [1, 2, 4, 20]])
    first = told(pool.receive(0))
    assert first["reward"] == [7, 27]
    assert first["length"] == [3, 4]
    assert first["final_observations"] == {0: [0, 3, 7], 1: [1, 4, 27]}
    assert first["observation"] == [[4, 0, 0], [5, 0, 0]]
    assert first["success"] == [False, True]
    pool.send(0, [[1, 1, 1, 20], [0, 0, 0, 0]])
    second = told(pool.receive(0))
    assert (second["reward"], second["length"], second["success"]) == ([3, 0], [3, 4], [False, False])


def test_halves_do_not_wait_for_each_other(make_pool):
    pool = make_pool(4, 2, 2)
    pool.send(0, [1, 2])
    pool.send(1, [3, 4])
    assert pool.receive(1).reward.tolist() == [3, 4]
    pool.send(1, [5, 6])
    assert pool.receive(0).reward.tolist() == [1, 2]
    assert pool.receive(1).observation.tolist() == [[200, 2, 8], [300, 2, 10]]


def test_success_is_none_where_the_simulator_does_not_say(make_pool):
    pool = make_pool(2, 1, behaviour="silent")
    pool.send(0, [11, 11])
    assert pool.receive(0).success is None


@pytest.mark.parametrize("processes", [1, 2])
def test_episodes_can_be_begun_anew_at_any_time(make_pool, processes):
    pool = make_pool(2, processes)
    pool.send(0, [1, 1])
    pool.receive(0)
    assert pool.reset(0, [Start(7), Start(8)]).tolist() == [[7, 0, 0], [8, 0, 0]]
    ends = []
    for _ in range(8):
        pool.send(0, [0, 0])
        ends.append(sorted(pool.receive(0).began.items()))
    began = list(itertools.chain(*ends))  # 7 is truncated after 5 steps, 8 terminates after 3; what follows is asked for anew
    assert began[:2] == [(1, Start(102)), (0, Start(2))]


@pytest.mark.parametrize("processes", [1, 2])
def test_frames_of_all_rows(make_pool, processes):
    frames = make_pool(3, processes, images=True).render(0)
    assert [frame.shape for frame in frames] == [(4, 6, 3)] * 3
    assert [int(frame[0, 0, 0]) for frame in frames] == [0, 100, 200]
