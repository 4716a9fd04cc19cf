"""Machines to plan for."""

import pytest

from rlinf_cli.scheduling import hardware
from rlinf_cli.scheduling.hardware import MACHINES


@pytest.mark.parametrize(("name", "memory", "flops"), [("h100", 80e9, 989e12), ("h200", 141e9, 989e12), ("a100", 80e9, 312e12)])
def test_data_sheets(name, memory, flops):
    assert (MACHINES[name].memory, MACHINES[name].flops) == (memory, flops)
    assert MACHINES[name].name == name


def test_links_are_slower_the_farther_they_go():
    for machine in MACHINES.values():
        assert machine.memory_speed > machine.link_speed > machine.network_speed
        assert machine.link_speed > machine.host_speed


def test_nobody_gets_all_of_a_machine():
    shares = {name: value for name, value in vars(hardware).items() if name.endswith("_SHARE")}
    assert len(shares) == 7
    assert all(0.3 < share < 1 for share in shares.values())
    assert MACHINES["h100"].usable_memory == pytest.approx(73.6e9)


def test_an_h200_differs_from_an_h100_in_its_memory_only():
    one, other = MACHINES["h100"], MACHINES["h200"]
    assert other.memory_speed / one.memory_speed == pytest.approx(4.8 / 3.35)
    assert (one.flops, one.link_speed, one.network_speed) == (other.flops, other.link_speed, other.network_speed)
