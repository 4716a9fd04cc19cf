"""What follows from deaths: cases by hand, and any order of events against what must always hold."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rlinf_cli.state.supervisor import (
    Activity,
    Died,
    DumpStacks,
    Event,
    GiveUp,
    Instruction,
    Launched,
    Progressed,
    Recover,
    Replace,
    Restart,
    Restarted,
    RestartFailed,
    Retire,
    Stopped,
    SupervisorState,
    Tick,
)


class Bench:
    """A supervisor of `rollout` (two ranks, stateless), `reward` (one) and `actor` (two, stateful)."""

    def __init__(self, restarts: int = 3) -> None:
        self.state = SupervisorState(restarts, stall_timeout=10.0)
        for event in (Launched("rollout", 2, False), Launched("reward", 1, False), Launched("actor", 2, True)):
            assert self.handle(event) == []

    def handle(self, event: Event) -> list[Instruction]:
        instructions = self.state.handle(event)
        self.state.validate()
        return instructions

    def die(self, role: str, rank: int, node_alive: bool = True, elsewhere: bool = False) -> list[Instruction]:
        return self.handle(Died(role, rank, node_alive, elsewhere))

    def fail(self, role: str, rank: int, node_alive: bool = True, elsewhere: bool = False,
             hopeless: bool = False) -> list[Instruction]:
        return self.handle(RestartFailed(role, rank, "it was too dark", node_alive, elsewhere, hopeless))


@pytest.fixture
def bench() -> Bench:
    return Bench()


# ---- stateless roles ----


def test_a_stateless_rank_is_started_again(bench):
    assert bench.die("rollout", 1) == [Restart("rollout", 1)]
    assert bench.handle(Restarted("rollout", 1)) == []
    assert bench.die("rollout", 1) == [Restart("rollout", 1)]


def test_two_ranks_at_once(bench):
    assert bench.die("rollout", 0) == [Restart("rollout", 0)]
    assert bench.die("rollout", 1) == [Restart("rollout", 1)]


def test_a_restart_that_fails_is_tried_again_while_there_are_restarts(bench):
    bench.die("rollout", 0)
    assert bench.fail("rollout", 0) == [Restart("rollout", 0)]
    assert bench.fail("rollout", 0) == [Restart("rollout", 0)]
    [given_up] = bench.fail("rollout", 0)
    assert given_up == GiveUp("rollout", 0, "cluster.restarts=3 of this role's have been used up since a step was last trained")


def test_a_constructor_that_raised_is_not_tried_again(bench):
    bench.die("rollout", 0)
    assert bench.fail("rollout", 0, hopeless=True) == [GiveUp("rollout", 0, "it was too dark")]


def test_a_death_while_the_rank_is_started_again_counts_as_a_failed_start(bench):
    bench.die("rollout", 0)
    assert bench.die("rollout", 0) == [Restart("rollout", 0)]
    assert bench.state.roles["rollout"].spent == 2


def test_the_restarts_are_those_of_the_role_not_of_the_rank():
    bench = Bench(restarts=2)
    assert isinstance(bench.die("rollout", 0)[0], Restart)
    assert isinstance(bench.die("rollout", 1)[0], Restart)
    bench.handle(Restarted("rollout", 0))
    assert isinstance(bench.die("rollout", 0)[0], GiveUp)
    assert isinstance(bench.die("reward", 0)[0], Restart)  # which has its own


def test_a_trained_step_brings_all_restarts_back():
    bench = Bench(restarts=1)
    for _ in range(5):
        assert bench.die("rollout", 0) == [Restart("rollout", 0)]
        bench.handle(Restarted("rollout", 0))
        bench.handle(Progressed())
    bench.die("rollout", 0)
    bench.handle(Restarted("rollout", 0))
    assert isinstance(bench.die("rollout", 0)[0], GiveUp)


def test_without_restarts_the_first_death_ends_the_run():
    assert Bench(restarts=0).die("rollout", 0) == [GiveUp("rollout", 0, "nothing is started again, as cluster.restarts is 0")]


def test_giving_up_is_final_for_the_role_alone():
    bench = Bench(restarts=0)
    bench.die("rollout", 0)
    assert bench.die("rollout", 1) == []
    assert bench.handle(Restarted("rollout", 0)) == []
    bench.handle(Progressed())
    assert bench.die("rollout", 1) == []
    assert isinstance(bench.die("reward", 0)[0], GiveUp)


# ---- nodes ----


def test_a_rank_whose_node_is_gone_is_left_behind(bench):
    assert bench.die("rollout", 1, node_alive=False, elsewhere=True) == [Retire("rollout", 1)]
    assert bench.die("rollout", 1, node_alive=False) == []  # nothing more of it
    assert bench.state.roles["rollout"].spent == 0


def test_a_restart_on_a_node_that_turns_out_to_be_gone(bench):
    assert bench.die("rollout", 1) == [Restart("rollout", 1)]
    assert bench.fail("rollout", 1, node_alive=False) == [Retire("rollout", 1)]


def test_the_only_rank_moves_to_another_node(bench):
    assert bench.die("reward", 0, node_alive=False, elsewhere=True) == [Replace("reward", 0)]
    assert bench.handle(Restarted("reward", 0)) == []
    assert bench.die("reward", 0) == [Restart("reward", 0)]


def test_the_last_rank_of_several_moves_too(bench):
    assert bench.die("rollout", 0, node_alive=False, elsewhere=True) == [Retire("rollout", 0)]
    assert bench.die("rollout", 1, node_alive=False, elsewhere=True) == [Replace("rollout", 1)]


def test_a_rank_that_is_started_again_elsewhere_counts_as_another_one(bench):
    bench.die("rollout", 0)
    assert bench.die("rollout", 1, node_alive=False) == [Retire("rollout", 1)]


def test_no_node_is_left(bench):
    [given_up] = bench.die("reward", 0, node_alive=False)
    assert isinstance(given_up, GiveUp)
    assert "no other node has devices" in given_up.why


# ---- stateful roles ----


def test_a_stateful_role_is_recovered_as_a_whole(bench):
    assert bench.state.is_recovering("actor") is None
    assert bench.die("actor", 1) == [Recover("actor")]
    assert bench.state.is_recovering("actor") is True
    assert bench.die("actor", 0) == []  # goes with it
    bench.handle(Launched("actor", 2, True))
    assert bench.state.is_recovering("actor") is None
    assert bench.die("actor", 0) == [Recover("actor")]


def test_a_recovery_takes_a_restart_and_keeps_count():
    bench = Bench(restarts=1)
    bench.die("actor", 0)
    bench.handle(Launched("actor", 1, True))
    assert isinstance(bench.die("actor", 0)[0], GiveUp)
    assert bench.state.is_recovering("actor") is False


def test_a_recovery_may_have_fewer_ranks(bench):
    bench.die("actor", 1, node_alive=False)
    bench.handle(Launched("actor", 1, True))
    assert bench.state.roles["actor"].ranks == ["alive"]


def test_a_role_that_was_stopped_is_no_news(bench):
    bench.handle(Stopped("rollout"))
    assert bench.die("rollout", 0) == []
    assert bench.fail("rollout", 0) == []
    assert bench.handle(Restarted("rollout", 0)) == []


# ---- stalls ----


def test_a_stall_is_told_once(bench):
    assert bench.handle(Tick(0.0, True)) == []
    assert bench.handle(Tick(9.9, True)) == []
    assert bench.handle(Tick(10.0, True)) == [DumpStacks("nothing has happened for 10 s")]
    assert bench.handle(Tick(30.0, True)) == []


def test_activity_begins_anew_and_ends_a_stall(bench):
    bench.handle(Tick(0.0, True))
    bench.handle(Activity(8.0))
    assert bench.handle(Tick(17.9, True)) == []
    assert bench.handle(Tick(18.0, True)) != []
    bench.handle(Activity(20.0))
    assert bench.handle(Tick(29.9, True)) == []
    assert bench.handle(Tick(30.0, True)) != []


def test_a_run_without_calls_does_not_stall(bench):
    bench.handle(Tick(0.0, True))
    assert bench.handle(Tick(50.0, False)) == []
    assert bench.handle(Tick(51.0, True)) == []  # time counts from here
    assert bench.handle(Tick(60.9, True)) == []
    assert bench.handle(Tick(61.0, True)) != []


# ---- any order ----

ROLES = {"rollout": 3, "reward": 1, "actor": 2}
RESTARTS = 2


class Supervised(RuleBasedStateMachine):
    """Processes as they really behave: only what runs can die, only what is started can work or fail."""

    @initialize()
    def launch(self):
        self.state, self.twin = (SupervisorState(RESTARTS, 10.0) for _ in range(2))
        self.spent: Counter[str] = Counter()
        self.given_up: set[str] = set()
        self.running: set[tuple[str, int]] = set()
        self.starting: set[tuple[str, int]] = set()
        self.retired: set[tuple[str, int]] = set()
        self.recovering = False
        for role, ranks in ROLES.items():
            self.handle(Launched(role, ranks, role == "actor"))
            self.running |= {(role, rank) for rank in range(ranks)}

    def handle(self, event):
        instructions = self.state.handle(event)
        assert instructions == self.twin.handle(event)  # nothing but the events decides
        for instruction in instructions:
            assert not isinstance(instruction, DumpStacks)
            assert instruction.role not in self.given_up, "giving up was not final"
        return instructions

    def carry_out(self, instructions):
        [instruction] = instructions
        if isinstance(instruction, GiveUp):
            self.given_up.add(instruction.role)
        elif isinstance(instruction, Recover):
            self.recovering = True
            self.spent[instruction.role] += 1
        else:
            seat = instruction.role, instruction.rank
            assert seat not in self.starting | self.running | self.retired
            if isinstance(instruction, Retire):
                self.retired.add(seat)
            else:
                self.starting.add(seat)
                self.spent[instruction.role] += 1

    @precondition(lambda self: self.running)
    @rule(data=st.data(), node_alive=st.booleans(), elsewhere=st.booleans())
    def die(self, data, node_alive, elsewhere):
        seat = data.draw(st.sampled_from(sorted(self.running)))
        self.running.discard(seat)
        instructions = self.handle(Died(*seat, node_alive, elsewhere))
        if seat[0] in self.given_up or (seat[0] == "actor" and self.recovering):
            assert instructions == []
        else:
            self.carry_out(instructions)

    @precondition(lambda self: self.starting)
    @rule(data=st.data(), works=st.booleans(), node_alive=st.booleans(), elsewhere=st.booleans(), hopeless=st.booleans())
    def start(self, data, works, node_alive, elsewhere, hopeless):
        seat = data.draw(st.sampled_from(sorted(self.starting)))
        self.starting.discard(seat)
        if works:
            assert self.handle(Restarted(*seat)) == []
            self.running.add(seat)
        else:
            instructions = self.handle(RestartFailed(*seat, "why", node_alive, elsewhere, hopeless))
            if seat[0] in self.given_up:
                assert instructions == []
            else:
                self.carry_out(instructions)

    @precondition(lambda self: self.recovering)
    @rule(ranks=st.integers(1, 2))
    def relaunch(self, ranks):
        assert self.handle(Launched("actor", ranks, True)) == []
        self.running = {seat for seat in self.running if seat[0] != "actor"} | {("actor", rank) for rank in range(ranks)}
        self.recovering = False

    @rule()
    def train_a_step(self):
        assert self.handle(Progressed()) == []
        self.spent.clear()

    @invariant()
    def holds(self):
        self.state.validate()
        assert all(count <= RESTARTS for count in self.spent.values())
        for role in ROLES:
            if role != "actor" and role not in self.given_up:
                assert any(seat[0] == role for seat in self.running | self.starting), "nobody is left, and nobody says so"


Supervised.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestAnyOrderOfDeaths = Supervised.TestCase
