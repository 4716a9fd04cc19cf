"""A scripted expert: picks an object up and puts it where the goal says, by what the state observation tells it.

    approach   move over the object, hand open
    descend    until it is between the fingers
    grasp      close, and wait until the fingers stand still
    lift       straight up
    carry      to above where it is to be
    release    come down and open

Which of these it does depends on the present observation alone, so that a policy without memory can learn it by imitation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlinf_libero.state import CONDITION, CONDITIONS, PREDICATES, ROBOT
from rlinf_libero.suites import Task

Array = NDArray[np.float64]

GAIN = 18.0
"""Of the hand's motion: part of a full action for each metre that is to go."""
ABOVE = 0.12
"""How far over an object the hand comes first."""
CARRY = 0.28
"""How far the hand is over the destination while it carries."""
FINGERS = 0.03
"""How far an object's top is between the fingers at most: then the palm touches it."""
AT = 0.012
"""How close the hand is to where it grasps."""
OVER_OBJECT, BESIDE_OBJECT = 0.005, 0.015
"""How far to the side an object may be while the hand is over it, and once it is between the fingers."""
NEAR = np.array([0.03, 0.03, 0.02])
"""How far from there an object may be and still be held."""
OVER = 0.03
"""How far from the middle of its destination an object is let go."""
RELEASE = 0.2
"""How far over the destination the hand is when it lets go."""
OPEN, CLOSE = -1.0, 1.0
NOTHING = 0.004
"""Width between fingers that have closed on nothing."""


@dataclass(frozen=True)
class Scene:
    """What the expert goes by, taken from a state observation (`rlinf_libero.state`)."""

    hand: Array
    fingers: float
    """Width between them."""
    still: bool
    """Whether they do not move."""
    closed: float
    """How far they have been told to close, -1 to 1."""
    to_object: Array
    """From the hand to where it grasps it."""
    to_goal: Array
    """From the object to its destination."""

    @property
    def goal(self) -> Array:
        return self.hand + self.to_object + self.to_goal

    @classmethod
    def of(cls, state: NDArray[np.float32]) -> Scene:
        """Of the first condition that does not hold yet (the last, where all do) and is about a place for an object."""
        robot, rest = state[:ROBOT].astype(np.float64), state[ROBOT:].astype(np.float64).reshape(CONDITIONS, CONDITION)
        placing = [one for one in rest if one[PREDICATES.index("on")] or one[PREDICATES.index("in")]]
        one = next((one for one in placing if not one[6]), placing[-1])
        grasp = np.array([0, 0, max(0.0, one[22] - FINGERS)])
        still = bool(np.abs(robot[11:13]).max() < 0.005)
        return cls(robot[0:3], float(robot[9] - robot[10]), still, float(robot[13]), one[16:19] + grasp, one[19:22] - grasp)


def can_do(task: Task) -> bool:
    """Whether the task's goal is all about objects in their places."""
    return {condition[0] for condition in task.goal()} <= {"on", "in"}


class Expert:
    """Contract: `rlinf_cli.api.Expert`, in a `LiberoVector`."""

    def act(self, environment: Any, instance: int) -> NDArray[np.float32]:
        return action(environment.state(instance))


def action(state: NDArray[np.float32]) -> NDArray[np.float32]:
    """float32 [7] for a state observation."""
    move, grip = decide(Scene.of(state))
    return np.concatenate([np.clip(GAIN * move, -1, 1), np.zeros(3), [grip]]).astype(np.float32)


def decide(scene: Scene) -> tuple[Array, float]:
    """How far the hand is to move [3], and what its fingers are to do."""
    across = float(np.linalg.norm(scene.to_object[:2]))
    held = bool((np.abs(scene.to_object) < NEAR).all()) and scene.closed > -0.9
    if held and scene.closed > 0.9 and scene.fingers < NOTHING:
        return np.array([0, 0, ABOVE]), OPEN  # it slipped away
    if held and scene.closed > 0.9 and scene.still:
        return _carry(scene)
    if held and np.linalg.norm(scene.to_goal[:2]) > OVER:
        return (np.zeros(3), CLOSE) if scene.hand[2] < scene.goal[2] + RELEASE else _carry(scene)
    if np.linalg.norm(scene.to_goal[:2]) < OVER:
        return np.array([0, 0, 0.05]), OPEN
    if across > (OVER_OBJECT if scene.to_object[2] < -ABOVE / 2 else BESIDE_OBJECT):
        return scene.to_object + np.array([0, 0, ABOVE]), OPEN
    if scene.to_object[2] < -AT or scene.closed > -0.9:
        return scene.to_object, OPEN
    return np.zeros(3), CLOSE


def _carry(scene: Scene) -> tuple[Array, float]:
    across, height = scene.to_goal[:2], scene.hand[2] - scene.goal[2]
    if np.linalg.norm(across) < OVER:
        # on its way further down, so that an imitator does not come to rest just before it lets go
        return (np.zeros(3), OPEN) if height < RELEASE else (np.array([*across, RELEASE - 0.06 - height]), CLOSE)
    if height < CARRY - 0.05:
        return np.array([0, 0, CARRY - height + 0.03]), CLOSE
    return np.array([*across, CARRY - height]), CLOSE
