import itertools

import pytest

from rlinf_cli.workers.environments.partition import Partition

SHAPES = [(count, halves, simulating, acting) for halves, simulating, acting in itertools.product((1, 2), (1, 2, 3), (1, 2, 3))
          for count in (halves * simulating * acting * 2,)]


@pytest.mark.parametrize("shape", SHAPES)
class TestEveryEnvironment:
    def test_is_answered_by_one_rank_in_one_half(self, shape):
        partition = Partition(*shape)
        answered = [int(one) for half in range(shape[1]) for acting in range(shape[3])
                    for one in partition.environments(acting, half)]
        assert sorted(answered) == list(range(shape[0]))

    def test_is_at_both_ends_of_a_link_the_same(self, shape):
        partition = Partition(*shape)
        for half, acting in itertools.product(range(shape[1]), range(shape[3])):
            numbers = partition.environments(acting, half)
            for simulating, mine in partition.simulators_of(acting).items():
                rows = partition.actors_of(simulating)[acting]
                first = (simulating * partition.halves + half) * partition.stepped
                assert numbers[mine].tolist() == list(range(first, first + partition.stepped))[rows]

    def test_has_one_link(self, shape):
        partition = Partition(*shape)
        for simulating in range(shape[2]):
            rows = [row for part in partition.actors_of(simulating).values() for row in range(part.start, part.stop)]
            assert sorted(rows) == list(range(partition.stepped))


def test_by_hand():
    """12 environments in halves: ranks of 6 (2 halves of 3), three policies with 2 of each half."""
    partition = Partition(12, 2, 2, 3)
    assert [partition.environments(acting, 0).tolist() for acting in range(3)] == [[0, 1], [2, 6], [7, 8]]
    assert [partition.environments(acting, 1).tolist() for acting in range(3)] == [[3, 4], [5, 9], [10, 11]]
    assert partition.actors_of(0) == {0: slice(0, 2), 1: slice(2, 3)}
    assert partition.simulators_of(1) == {0: slice(0, 1), 1: slice(1, 2)}
