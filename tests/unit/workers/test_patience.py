"""When it is of no use to go on with a reward."""

import pytest

from rlinf_cli.workers.patience import IN_A_ROW, OF_A_GROUP, Patience


def lost(patience, *groups):
    for group in groups:
        patience.lost(group, f"{group} took too long")


def test_one_bad_group_is_left_alone_and_the_others_are_not():
    patience = Patience(1)
    lost(patience, *["a"] * (OF_A_GROUP - 1))
    assert not patience.is_spent("a")
    lost(patience, "a")
    assert patience.is_spent("a")
    assert not patience.is_spent("b")
    assert patience.last == "a took too long"


def test_a_group_of_which_some_are_scored_goes_on():
    patience = Patience(1)
    patience.scored("a")
    lost(patience, *["a"] * 50)
    assert not patience.is_spent("a")


def test_losses_of_several_groups_in_a_row_end_it():
    patience = Patience(1)
    lost(patience, *["a"] * OF_A_GROUP, *["b"] * (IN_A_ROW - OF_A_GROUP - 1))
    assert not patience.is_spent("c")
    lost(patience, "b")
    assert patience.is_spent("c")


def test_a_single_success_between_makes_it_go_on():
    patience = Patience(1)
    for number in range(20):
        lost(patience, *[f"{number}"] * (IN_A_ROW - 1))
        patience.scored("good")
    assert not patience.is_spent("next")


@pytest.mark.parametrize(("processes", "in_a_row"), [(1, 6), (3, 6), (4, 8), (16, 32)])
def test_many_processes_may_lose_as_many_at_once(processes, in_a_row):
    patience = Patience(processes)
    lost(patience, *map(str, range(in_a_row - 1)))
    assert not patience.is_spent("next")
    lost(patience, "last")
    assert patience.is_spent("next")


def test_it_stays_spent():
    patience = Patience(1)
    lost(patience, *"abcdef")
    patience.scored("a")
    assert patience.is_spent("z")
