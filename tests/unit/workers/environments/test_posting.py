import numpy as np
import pytest
from gymnasium import spaces

from rlinf_cli.flow.exchange import Block, size_of
from rlinf_cli.workers.environments.posting import action_shapes, arrival_shapes, beside, post, posted
from rlinf_cli.workers.environments.simulators import Arrival

PLAIN = spaces.Box(-1, 1, (3,), np.float32)
NAMED = spaces.Dict({"state": PLAIN, "image": spaces.Box(0, 255, (2, 2, 3), np.uint8)})


def observation(space, count, value):
    if isinstance(space, spaces.Dict):
        return {name: np.full((count, *part.shape), value, part.dtype) for name, part in space.items()}
    return np.full((count, *space.shape), value, space.dtype)


def arrival(space, count=4, value=5):
    numbers = np.arange(count)
    final = observation(space, 1, 9)
    one = {name: array[0] for name, array in final.items()} if isinstance(final, dict) else final[0]
    return Arrival(observation(space, count, value), numbers.astype(np.float32), numbers == 0, numbers == 2, numbers == 3,
                   {2: one}, 10 + numbers, 20 + numbers, numbers % 2)


def through(space, told, rows):
    shapes = arrival_shapes(space, rows.stop - rows.start)
    memory = bytearray(size_of(shapes))
    post(told, rows, Block(shapes, memory))
    return posted(Block(shapes, memory), isinstance(space, spaces.Dict))


@pytest.mark.parametrize("space", [PLAIN, NAMED], ids=["array", "dict"])
class TestArrival:
    def test_its_rows_come_as_they_were(self, space):
        sent = arrival(space)
        found = through(space, sent, slice(1, 4))
        for name in ("reward", "terminated", "truncated", "lost", "numbers", "ages", "tasks"):
            np.testing.assert_array_equal(getattr(found, name), getattr(sent, name)[1:4])
        assert list(found.final) == [1]
        for name, array in _named(found.observation).items():
            np.testing.assert_array_equal(array, _named(sent.observation)[name][1:4])
            np.testing.assert_array_equal(_named(found.final[1])[name], _named(sent.final[2])[name])

    def test_a_final_observation_is_not_seen_twice(self, space):
        shapes = arrival_shapes(space, 4)
        block = Block(shapes, bytearray(size_of(shapes)))
        told = arrival(space)
        post(told, slice(0, 4), block)
        told.final = {}
        post(told, slice(0, 4), block)
        assert posted(block, isinstance(space, spaces.Dict)).final == {}

    def test_those_of_several_ranks_are_one(self, space):
        whole = beside([arrival(space, 4, 1), arrival(space, 3, 2)])
        assert whole.numbers.tolist() == [10, 11, 12, 13, 10, 11, 12]
        assert sorted(whole.final) == [2, 6]
        for array in _named(whole.observation).values():
            assert (array[:4] == 1).all()
            assert (array[4:] == 2).all()


def _named(one):
    return one if isinstance(one, dict) else {"": one}


def test_actions_of_a_chunk_lie_one_after_the_other():
    assert action_shapes(PLAIN, 4, 1) == {"action": ((4, 3), "float32")}
    assert action_shapes(spaces.Discrete(5), 4, 1) == {"action": ((4,), "int64")}
    assert action_shapes(PLAIN, 4, 8) == {"action": ((4, 8, 3), "float32")}
