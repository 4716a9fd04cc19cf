from __future__ import annotations

import pytest

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
    freed = ledger.release([slot()])
    assert freed.returned == {OWNER: [slot()]}
    assert freed.removed == []
    assert len(ledger) == 0


def test_a_slot_cannot_be_put_twice(ledger):
    ledger.put(slot())
    with pytest.raises(AssertionError, match="put twice"):
        ledger.put(slot())


def test_a_slot_released_twice_is_returned_once(ledger):
    ledger.put(slot())
    ledger.release([slot()])
    assert ledger.release([slot()]).returned == {}


def test_a_lost_reader_gives_back_what_it_held(ledger):
    ledger.put(slot(0))
    ledger.put(slot(64))
    ledger.deliver(slot(0), READER)
    assert ledger.gone(READER).returned == {OWNER: [slot(0)]}
    assert len(ledger) == 1


def test_a_lost_owner_keeps_the_files_that_somebody_needs(ledger):
    ledger.put(slot(0, "1-1"))
    ledger.put(slot(0, "1-2"))
    ledger.put(slot(64, "1-2"))
    ledger.release([slot(0, "1-1")])
    assert ledger.gone(OWNER).removed == []
    assert ledger.files_in_use(OWNER) == {"1-2"}


def test_the_last_slot_of_a_lost_owners_file_removes_it(ledger):
    ledger.put(slot(0))
    ledger.put(slot(64))
    ledger.gone(OWNER)
    assert ledger.release([slot(0)]).removed == []
    assert ledger.release([slot(64)]).removed == [Removed("n0", OWNER, "1-1")]
    assert ledger.files_in_use(OWNER) == frozenset()


def test_readers_of_a_lost_owners_files_are_to_forget_them(ledger):
    ledger.put(slot())
    ledger.deliver(slot(), READER)
    ledger.release([slot()])
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
