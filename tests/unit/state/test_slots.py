from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rlinf_cli.state.slots import Removed, SlotId, SlotLedger

OWNER, READER, OTHER = 1, 2, 3


@pytest.fixture
def ledger() -> SlotLedger:
    ledger = SlotLedger()
    for client, node in ((OWNER, "n0"), (READER, "n0"), (OTHER, "n1")):
        ledger.join(client, node)
    return ledger


def slot(offset: int = 0, file: str = "1-1", owner: int = OWNER) -> SlotId:
    return SlotId(owner, file, offset)


def test_a_released_slot_goes_back_to_its_owner(ledger):
    ledger.put(slot())
    ledger.deliver(slot(), READER)
    freed = ledger.release(READER, [slot()])
    assert freed.returned == {OWNER: [slot()]}
    assert freed.removed == []
    assert len(ledger) == 0


def test_a_slot_cannot_be_put_twice(ledger):
    ledger.put(slot())
    with pytest.raises(AssertionError, match="put twice"):
        ledger.put(slot())


def test_what_nobody_will_get_goes_back(ledger):
    ledger.put(slot())
    assert ledger.let_go([slot()]).returned == {OWNER: [slot()]}


def test_a_slot_released_twice_is_returned_once(ledger):
    ledger.put(slot())
    ledger.deliver(slot(), READER)
    ledger.release(READER, [slot()])
    assert ledger.release(READER, [slot()]).returned == {}


def test_a_release_by_one_that_was_taken_for_dead_takes_nothing_from_others(ledger):
    ledger.put(slot())
    ledger.deliver(slot(), READER)
    ledger.gone(READER)
    ledger.put(slot())
    ledger.deliver(slot(), OTHER)
    assert ledger.release(READER, [slot()]).returned == {}
    assert ledger.release(OTHER, [slot()]).returned == {OWNER: [slot()]}


def test_a_lost_reader_gives_back_what_it_held(ledger):
    ledger.put(slot(0))
    ledger.put(slot(64))
    ledger.deliver(slot(0), READER)
    assert ledger.gone(READER).returned == {OWNER: [slot(0)]}
    assert len(ledger) == 1


def test_a_lost_owner_keeps_the_files_that_somebody_needs(ledger):
    for one in (slot(0, "1-1"), slot(0, "1-2"), slot(64, "1-2")):
        ledger.put(one)
    ledger.let_go([slot(0, "1-1")])
    assert ledger.gone(OWNER).removed == []
    assert ledger.files_in_use(OWNER) == {"1-2"}


def test_the_last_slot_of_a_lost_owners_file_removes_it(ledger):
    ledger.put(slot(0))
    ledger.put(slot(64))
    ledger.gone(OWNER)
    assert ledger.let_go([slot(0)]).removed == []
    assert ledger.let_go([slot(64)]).removed == [Removed("n0", OWNER, "1-1")]
    assert ledger.files_in_use(OWNER) == frozenset()


def test_readers_of_a_lost_owners_files_are_to_forget_them(ledger):
    ledger.put(slot())
    ledger.deliver(slot(), READER)
    ledger.release(READER, [slot()])
    assert ledger.gone(OWNER).removed == [Removed("n0", OWNER, "1-1")]
    assert ledger.readers(OWNER, "1-1") == {READER}
    assert ledger.readers(OWNER, "1-1") == set()


def test_a_lost_reader_is_told_nothing(ledger):
    ledger.put(slot())
    ledger.deliver(slot(), READER)
    ledger.gone(READER)
    assert ledger.readers(OWNER, "1-1") == set()


def test_owner_and_reader_gone_leave_nothing(ledger):
    ledger.put(slot(0, "3-1", OTHER))
    ledger.deliver(slot(0, "3-1", OTHER), READER)
    assert ledger.gone(OTHER).removed == []
    assert ledger.gone(READER).removed == [Removed("n1", OTHER, "3-1")]
    assert len(ledger) == 0


def test_a_process_that_held_its_own_slots_leaves_nothing(ledger):
    ledger.put(slot())
    ledger.deliver(slot(), OWNER)
    freed = ledger.gone(OWNER)
    assert freed.returned == {}
    assert freed.removed == [Removed("n0", OWNER, "1-1")]


class TestLeased:
    @pytest.fixture(autouse=True)
    def leased(self, ledger):
        ledger.put(slot())
        ledger.deliver(slot(), READER, kept=True)

    def test_it_survives_its_readers_release(self, ledger):
        assert ledger.release(READER, [slot()]).returned == {}
        assert ledger.let_go([slot()]).returned == {OWNER: [slot()]}

    def test_it_survives_its_readers_death_and_goes_to_another_node(self, ledger):
        assert ledger.gone(READER).returned == {}
        ledger.deliver(slot(), OTHER, kept=True)
        assert ledger.release(OTHER, [slot()]).returned == {}
        assert ledger.let_go([slot()]).returned == {OWNER: [slot()]}

    def test_settled_it_is_kept_for_its_reader_only(self, ledger):
        assert ledger.let_go([slot()]).returned == {}
        assert ledger.release(READER, [slot()]).returned == {OWNER: [slot()]}

    def test_settled_it_goes_with_its_reader(self, ledger):
        ledger.let_go([slot()])
        assert ledger.gone(READER).returned == {OWNER: [slot()]}

    def test_two_who_read_it_both_release_it(self, ledger):
        ledger.deliver(slot(), OTHER, kept=False)
        assert ledger.release(OTHER, [slot()]).returned == {}
        assert ledger.release(READER, [slot()]).returned == {OWNER: [slot()]}

    def test_delivered_twice_to_one_it_is_released_twice(self, ledger):
        ledger.deliver(slot(), READER)
        assert ledger.release(READER, [slot()]).returned == {}
        assert ledger.release(READER, [slot()]).returned == {OWNER: [slot()]}

    def test_its_file_outlives_its_owner(self, ledger):
        assert ledger.gone(OWNER).removed == []
        ledger.release(READER, [slot()])
        assert ledger.files_in_use(OWNER) == {"1-1"}
        assert ledger.let_go([slot()]).removed == [Removed("n0", OWNER, "1-1")]


class Slots(RuleBasedStateMachine):
    """Whatever happens, a slot is free exactly when its channel and all its readers have let go of it."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = SlotLedger()
        self.offsets = itertools.count(0)
        self.present = {1, 2, 3}
        self.kept: set[SlotId] = set()
        self.reads: Counter[tuple[SlotId, int]] = Counter()
        self.returned: list[SlotId] = []
        for client in self.present:
            self.ledger.join(client, "n")

    def needed(self) -> set[SlotId]:
        return self.kept | {slot for slot, _ in +self.reads}

    def apply(self, freed) -> None:
        for owner, slots in freed.returned.items():
            assert owner in self.present
            self.returned += slots

    @precondition(lambda self: self.present)
    @rule(data=st.data())
    def put(self, data):
        owner = data.draw(st.sampled_from(sorted(self.present)))
        slot = SlotId(owner, f"{owner}-1", next(self.offsets))
        self.ledger.put(slot)
        self.kept.add(slot)

    @precondition(lambda self: self.kept and self.present)
    @rule(data=st.data(), lease=st.booleans())
    def deliver(self, data, lease):
        slot = data.draw(st.sampled_from(sorted(self.kept)))
        client = data.draw(st.sampled_from(sorted(self.present)))
        self.ledger.deliver(slot, client, kept=lease)
        self.reads[slot, client] += 1
        if not lease:
            self.kept.remove(slot)

    @precondition(lambda self: +self.reads)
    @rule(data=st.data())
    def release(self, data):
        slot, client = data.draw(st.sampled_from(sorted(+self.reads)))
        self.reads[slot, client] -= 1
        self.apply(self.ledger.release(client, [slot]))

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def let_go(self, data):
        slot = data.draw(st.sampled_from(sorted(self.kept)))
        self.kept.remove(slot)
        self.apply(self.ledger.let_go([slot]))

    @precondition(lambda self: len(self.present) > 1)
    @rule(data=st.data())
    def die(self, data):
        client = data.draw(st.sampled_from(sorted(self.present)))
        self.present.remove(client)
        for slot, reader in list(self.reads):
            if reader == client:
                del self.reads[slot, reader]
        self.apply(self.ledger.gone(client))

    @invariant()
    def live_are_those_that_are_needed(self):
        assert len(self.ledger) == len(self.needed())
        assert not self.needed() & set(self.returned)
        assert len(set(self.returned)) == len(self.returned), "a slot was returned twice"

    @invariant()
    def files_are_kept_while_needed(self):
        for owner in (1, 2, 3):
            assert bool(self.ledger.files_in_use(owner)) == any(slot.owner == owner for slot in self.needed())


TestSlots = Slots.TestCase
TestSlots.settings = settings(max_examples=60, stateful_step_count=30, deadline=None, derandomize=True)
