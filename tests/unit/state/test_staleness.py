"""What may start when: the bound on the age of samples, and that every run comes to its end."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rlinf_cli.state.staleness import Ended, Hold, Lifted, StalenessGate, Started

PROMPTS = 4
"""In a step."""


def started(gate, count=1):
    for _ in range(count):
        gate.handle(Started(gate.next))
    return gate


def admitted(gate):
    """Starts as many steps as may start; how many prompts that are."""
    before = gate.next
    while gate.may_start():
        started(gate)
    return (gate.next - before) * PROMPTS


def test_strictly_on_policy_is_one_step_at_a_time():
    gate = started(StalenessGate(0))
    assert not gate.may_start()
    gate.handle(Ended(0))
    assert gate.may_start()
    assert gate.next == 1


@pytest.mark.parametrize("staleness", [0, 1, 2, 8])
def test_a_resumed_run_admits_no_more_than_a_new_one(staleness):
    """Scenario S1."""
    for first in (0, 50):
        assert admitted(StalenessGate(staleness, first)) == (staleness + 1) * PROMPTS


def test_an_end_admits_one_more_step():
    gate = StalenessGate(2, 10)
    admitted(gate)
    assert gate.open == range(10, 13)
    gate.handle(Ended(10))
    assert admitted(gate) == PROMPTS
    assert gate.open == range(11, 14)


def test_a_barrier_lets_nothing_start_before_it_is_lifted():
    gate = started(StalenessGate(3), 2)
    gate.handle(Hold(1))
    for step in (0, 1):
        assert not gate.may_start()
        gate.handle(Ended(step))
    assert not gate.may_start()  # what it is for is still to be done
    gate.handle(Lifted(1))
    assert admitted(gate) == 4 * PROMPTS


@pytest.mark.parametrize(("staleness", "event"), [
    (0, Started(2)), (0, Started(1)), (1, Started(0)), (1, Started(2)), (1, Ended(1)), (1, Hold(1)), (1, Lifted(0))])
def test_a_caller_that_has_lost_count_is_told(staleness, event):
    gate = started(StalenessGate(staleness))
    with pytest.raises(ValueError, match="cannot be"):
        gate.handle(event)


def test_a_step_that_has_ended_does_not_end_again_and_a_barrier_is_lifted_after_its_step():
    gate = started(StalenessGate(1))
    gate.handle(Hold(0))
    with pytest.raises(ValueError, match="Lifted"):
        gate.handle(Lifted(0))
    gate.handle(Ended(0))
    with pytest.raises(ValueError, match="Ended"):
        gate.handle(Ended(0))
    gate.handle(Lifted(0))


class Runs(RuleBasedStateMachine):
    """A run of any staleness, from any step on: its steps are generated, trained in order, and some are evaluated.

    `made` is the oldest version that a sample of each open step can be made by.
    """

    @initialize(staleness=st.integers(0, 5), first=st.integers(0, 60))
    def begin(self, staleness, first):
        self.gate, self.staleness = StalenessGate(staleness, first), staleness
        self.first, self.version = first, first
        self.made, self.barriers = {}, set()

    @precondition(lambda self: self.gate.may_start())
    @rule(evaluated=st.booleans())
    def start(self, evaluated):
        step = self.gate.next
        assert not any(barrier < step for barrier in self.barriers)
        self.gate.handle(Started(step))
        self.made[step] = self.version
        if evaluated:
            self.gate.handle(Hold(step))
            self.barriers.add(step)

    @precondition(lambda self: self.made)
    @rule()
    def end(self):
        """The oldest step is trained and its version published."""
        step = min(self.made)
        assert step - self.made.pop(step) <= self.staleness  # the age of its samples
        self.version = step + 1
        self.gate.handle(Ended(step))

    @precondition(lambda self: any(barrier < self.version for barrier in self.barriers))
    @rule()
    def lift(self):
        barrier = min(self.barriers)
        assert not self.made  # nothing else is under way while it lasts
        self.gate.handle(Lifted(barrier))
        self.barriers.remove(barrier)

    @invariant()
    def no_more_than_the_bound_is_open(self):
        assert list(self.gate.open) == sorted(self.made)
        assert len(self.made) * PROMPTS <= (self.staleness + 1) * PROMPTS

    @invariant()
    def something_can_go_on(self):
        assert self.gate.may_start() or self.made or self.barriers

    @invariant()
    def nothing_is_held_up_without_a_reason(self):
        assert self.gate.may_start() == (len(self.made) <= self.staleness and not self.barriers)


Runs.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestRuns = Runs.TestCase


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 4), st.integers(0, 50), st.integers(1, 20), st.sets(st.integers(0, 70)))
def test_every_run_comes_to_its_end(staleness, first, steps, evaluated):
    """Whatever is evaluated, a flow that starts what it may and otherwise ends the oldest step trains all, in order."""
    gate, ended = StalenessGate(staleness, first), []
    for step in range(first, first + steps):
        while not gate.may_start():
            ended.append(gate.open[0])
            gate.handle(Ended(ended[-1]))
            if ended[-1] in evaluated:
                gate.handle(Lifted(ended[-1]))
        gate.handle(Started(step))
        if step in evaluated:
            gate.handle(Hold(step))
    assert [*ended, *gate.open] == list(range(first, first + steps))
