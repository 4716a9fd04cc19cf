"""The scripted expert, in a world of one object and a hand without physics."""

import numpy as np
import pytest

from rlinf_libero.expert import CLOSE, OPEN, Scene, action, decide
from rlinf_libero.state import CONDITION, CONDITIONS, PREDICATES, ROBOT, SIZE

FLOOR, WIDTH, STEP = 0.0, 0.05, 0.02


class World:
    """A hand that goes where it is told, and an object that follows what holds it and falls when let go."""

    def __init__(self, thing, goal, top=0.04):
        self.hand, self.thing, self.goal, self.top = np.array([-0.1, 0.0, 0.25]), np.array(thing), np.array(goal), top
        self.closed, self.moved, self.held = -1.0, 0.0, False

    def step(self, action):
        assert (np.abs(action) <= 1).all()
        self.moved, self.closed = self.closed, float(np.clip(self.closed + 0.25 * np.sign(action[6]), -1, 1))
        self.moved = self.closed - self.moved
        before = self.hand.copy()
        self.hand += STEP * action[:3]
        between = np.abs(self.hand - self.thing)[:2].max() < 0.02 and 0 <= self.hand[2] - self.thing[2] < max(self.top, 0.02)
        self.held = self.closed > 0.5 and (self.held or between)
        self.thing += (self.hand - before) if self.held else [0, 0, -min(0.05, self.thing[2] - self.top)]
        return bool(np.linalg.norm((self.thing - self.goal)[:2]) < 0.05 and self.thing[2] <= self.top and not self.held)

    def state(self):
        fingers = 0.04 * (1 - self.closed) / 2
        finger = max(fingers, WIDTH / 2) if self.held else fingers
        robot = [*self.hand, *[0] * 6, finger, -finger, self.moved * (not self.held), 0, self.closed]
        which = [float(name == "in") for name in PREDICATES]
        condition = [*which, 0, *self.thing, *[0] * 6, *(self.thing - self.hand), *(self.goal - self.thing), self.top]
        return np.array([*robot, *condition, *[0] * CONDITION * (CONDITIONS - 1)], np.float32)


@pytest.mark.parametrize(("thing", "top"), [((-0.1, -0.23, 0.04), 0.04), ((0.05, -0.1, 0.07), 0.07), ((0.0, 0.1, 0.01), 0.01)])
def test_it_puts_an_object_where_it_belongs(thing, top):
    world = World(thing, (0.0, 0.25, 0.06), top)
    assert any(world.step(action(world.state())) for _ in range(200))


def scene(**known):
    given = {"hand": np.array([0, 0, 0.3]), "fingers": 0.08, "still": True, "closed": -1.0, "to_object": np.array([0, 0, -0.2]),
             "to_goal": np.array([0.3, 0, 0])}
    return Scene(**given | {name: np.array(value, float) if isinstance(value, list) else value for name, value in known.items()})


def test_what_slipped_away_is_let_go_and_tried_again():
    move, grip = decide(scene(to_object=[0, 0, 0.01], closed=1.0, fingers=0.001))
    assert (move[2] > 0, grip) == (True, OPEN)


def test_it_does_not_lift_before_the_fingers_stand_still():
    move, grip = decide(scene(to_object=[0, 0, -0.01], hand=[0, 0, 0.05], closed=0.5, still=False, fingers=0.06))
    assert (move.tolist(), grip) == ([0, 0, 0], CLOSE)


def test_it_does_not_come_down_beside_an_object():
    move, grip = decide(scene(to_object=[0.01, 0, -0.12]))
    assert (abs(move[2]) < 1e-9, grip) == (True, OPEN)


def state(*conditions):
    rows = np.zeros((CONDITIONS, CONDITION), np.float32)
    for row, (predicate, holds, place) in zip(rows, conditions):
        row[PREDICATES.index(predicate)], row[6], row[16:19] = 1, holds, place
    return np.concatenate([np.zeros(ROBOT, np.float32), rows.reshape(-1)])


def test_it_sees_to_the_first_object_that_is_not_in_its_place():
    both = [("close", 0, (9, 9, 9)), ("on", 1, (1, 1, 1)), ("in", 0, (2, 2, 2))]
    assert state(*both).shape == (SIZE,)
    assert Scene.of(state(*both)).to_object.tolist() == [2, 2, 2]
    done = [("on", 1, (1, 1, 1)), ("in", 1, (2, 2, 2))]
    assert Scene.of(state(*done)).to_object.tolist() == [2, 2, 2]
