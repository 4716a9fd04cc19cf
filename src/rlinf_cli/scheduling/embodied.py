"""Analytic problems of robots that are trained in simulators: a simulator and a policy, in a cycle, then training.

The cycle is one stage, whose cost depends on how the two share its devices: in turn on all of them, or each on its own, with the
environments in two halves, so that one half is simulated while the policy answers the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from rlinf_cli.scheduling.analytic import ASSUMED
from rlinf_cli.scheduling.hardware import MACHINES
from rlinf_cli.scheduling.problem import Batch, Law, Memory, Problem, Stage
from rlinf_cli.scheduling.roofline import LEFT, Roofline, Work
from rlinf_cli.scheduling.shapes import SHAPES

Inside: TypeAlias = Literal["shared", "split"]


@dataclass(frozen=True)
class Environments:
    """An iteration: so many environments go so many steps. Seconds on one H100, assumed, not measured."""

    name: str
    count: int
    steps: int
    simulate_s: float
    """Of a step, whatever the number of environments: a GPU steps all at once."""
    simulate_each_s: float
    """And for each environment on the device, or on its part of the node's processors."""
    act_s: float
    """Of an answer of the policy to one environment; generation is linear in the batch."""
    change_s: float = 0.0
    """Of a step where both share a device: simulator and policy do not fit there together, and change places."""

    @property
    def train_s(self) -> float:
        """Of a step of one environment, all passes over it together: a third of what its answer took."""
        return self.act_s / 3

    def shared_s(self, devices: int) -> float:
        """An iteration, in turn on so many devices."""
        each = self.count / devices
        return self.steps * (self._simulated(each) + self.act_s * each + self.change_s)

    def split_s(self, devices: int) -> float:
        """An iteration, each on its own part of so many devices, at the best of all splits; inf for one device."""
        return min((self._apart(part, devices - part) for part in range(1, devices)), default=float("inf"))

    def _apart(self, simulating: int, acting: int) -> float:
        half = self.count / 2
        simulated, answered = self._simulated(half / simulating), self.act_s * half / acting
        return self.steps * max(2 * simulated, 2 * answered, simulated + answered)

    def _simulated(self, each: float) -> float:
        return self.simulate_s + self.simulate_each_s * each


MANISKILL = Environments("maniskill", 256, 80, 0.35, 0.0005, 0.03, change_s=0.67)
"""A simulator on the GPU, with OpenVLA, whose 15 GB of weights go out and back over PCIe in each step of a shared device."""
LIBERO = Environments("libero", 512, 64, 0.0, 0.02, 0.01)
"""A simulator on the processors, of which each device has a part, with OpenVLA-OFT, which answers with several actions."""


def embodied_problem(hardware: str, environments: Environments, devices: int, inside: Inside) -> Problem:
    """Two stages, the cycle and training, which begins when all episodes are over."""
    machine, shape = MACHINES[hardware], SHAPES["openvla-7b"]
    speed = machine.flops / MACHINES["h100"].flops
    one = Roofline(machine, shape, Work(np.array([7]), prompt_tokens=290))
    seconds = environments.shared_s if inside == "shared" else environments.split_s
    laws = tuple((count, Law(sample_s=seconds(count) * count / environments.count / speed)) for count in _counts(devices, inside))
    training = Law(sample_s=environments.train_s * environments.steps / speed)
    cycle = Stage("interaction", Batch(laws), (), ("simulator", "policy"), Memory(one.weights + LEFT, 0.0, LEFT),
                  tuple(count for count, _ in laws))
    train = Stage("train", Batch(((1, training),), step_s=one.update_s()), ("interaction",), memory=one.memory("train"),
                  streams=False, trains=True)
    moved = one.move_s("train", devices) + one.move_s("generate", devices)
    return Problem(
        (cycle, train), devices, np.full(environments.count, 7 * environments.steps), device_memory=machine.usable_memory,
        switch_s={("interaction", "train"): moved, ("train", "interaction"): moved}, sync_s=one.sync_s(), source="analytic",
        hardware=f"{devices} {hardware}", notes=(ASSUMED, f"{environments.name}: seconds of simulator and policy are assumed"))


def _counts(devices: int, inside: Inside) -> range:
    """Numbers of devices of the cycle: all, or 64 evenly spaced ones."""
    step = max(1, devices // 64)
    return range(max(step, 2 if inside == "split" else 1), devices + 1, step)
