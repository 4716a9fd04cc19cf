import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rlinf_cli.state.routing import Routing


def test_new_episodes_go_where_least_is_to_be_done():
    routing = Routing(3)
    assert [routing.ask(number, number, 10, 10, 100) for number in range(6)] == [0, 1, 2, 0, 1, 2]


def test_an_episode_stays_with_the_replica_that_has_read_it():
    routing = Routing(2)
    assert routing.ask("a/0", "a", 10, 10, 100) == 0
    assert routing.ask("b/0", "b", 10, 10, 100) == 1
    routing.answered("b/0")
    routing.answered("a/0")
    assert routing.ask("b/1", "b", 200, 50, 100) == 1
    assert routing.moved == 0


def test_it_leaves_one_that_is_much_busier():
    routing = Routing(2)
    routing.homes = dict.fromkeys("abc", 0)
    assert [routing.ask(episode, episode, 10, 10, 150) for episode in "abc"] == [0, 0, 1]
    assert (routing.homes["c"], routing.moved) == (1, 1)


def test_what_has_to_be_read_again_counts():
    routing = Routing(2)
    routing.ask("a/0", "a", 1000, 1000, 10)
    before = routing.outstanding[0]
    routing.ask("b/0", "b", 10, 10, 10)
    assert before > routing.outstanding[1]


def test_a_request_is_asked_once_at_a_time():
    routing = Routing(1)
    routing.ask("a/0", "a", 1, 1, 1)
    with pytest.raises(ValueError, match="under way"):
        routing.ask("a/0", "a", 1, 1, 1)
    with pytest.raises(KeyError):
        routing.answered("b/0")
    with pytest.raises(ValueError, match="no replica"):
        Routing(0)


@given(st.integers(1, 5), st.lists(st.integers(1, 500), min_size=1, max_size=60))
def test_no_replica_has_more_than_one_request_above_its_fair_part(replicas, lengths):
    """New episodes, none answered: greedy to the least busy one."""
    routing = Routing(replicas)
    for number, most in enumerate(lengths):
        routing.ask(number, number, 1, 1, most)
    assert max(routing.outstanding) - min(routing.outstanding) <= max(lengths) + 1


class Machine(RuleBasedStateMachine):
    @initialize(replicas=st.integers(1, 4))
    def start(self, replicas):
        self.routing, self.open, self.count = Routing(replicas), [], 0

    @rule(episode=st.integers(0, 9), length=st.integers(1, 400), most=st.integers(1, 100))
    def ask(self, episode, length, most):
        self.count += 1
        where = self.routing.ask(self.count, episode, length, min(length, 10), most)
        assert 0 <= where < len(self.routing.outstanding)
        assert self.routing.homes[episode] == where
        self.open.append(self.count)

    @rule(place=st.integers(0, 99))
    def answer(self, place):
        if self.open:
            self.routing.answered(self.open.pop(place % len(self.open)))

    @invariant()
    def sums(self):
        self.routing.validate()
        if not self.open:
            assert all(abs(one) < 1e-6 for one in self.routing.outstanding)


TestMachine = Machine.TestCase
