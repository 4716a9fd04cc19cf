"""The state observation of a LIBERO task: numbers, in metres and radians, in the frame of the world.

    robot     0: 3   position of the hand, between its fingers
              3: 9   its orientation: the first two columns of the rotation matrix
              9:11   positions of the two fingers
             11:13   their velocities
             13:14   how far the gripper has been told to close, -1 to 1
    then, for each of `CONDITIONS` conditions of the goal (zeros where the task has fewer):
              0: 6   which: on, in, open, close, turnon, turnoff
              6:7    whether it holds now
              7:10   position of the object it is about (a container's: of its inside)
             10:16   its orientation, as above
             16:19   its position relative to the hand
             19:22   where it is to be, relative to it: what it is to be on or in; zeros for the other conditions
             22:23   how far its highest point is above its position; 0 of a place that is no object
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

PREDICATES = ("on", "in", "open", "close", "turnon", "turnoff")
CONDITIONS = 3
"""As many as any task of the suites has."""
ROBOT, CONDITION = 14, 23
SIZE = ROBOT + CONDITIONS * CONDITION


class State:
    """Reads it from a robosuite environment of LIBERO's."""

    def __init__(self, env: Any) -> None:
        self._env, self._goal = env, env.parsed_problem["goal_state"]
        self._robot = env.robots[0]
        self._geoms = {name: _solid_geoms(env, name) for _, name, *_ in self._goal}

    def read(self) -> NDArray[np.float32]:
        """float32 [SIZE]."""
        hand = self._hand()
        conditions = [self._condition(condition, hand) for condition in self._goal]
        missing = np.zeros((CONDITIONS - len(conditions)) * CONDITION)
        return np.concatenate([self.robot(), *conditions, missing]).astype(np.float32)

    def robot(self) -> NDArray[np.float32]:
        """float32 [ROBOT]: its first part."""
        data, robot = self._env.sim.data, self._robot
        matrix = data.site_xmat[robot.eef_site_id].reshape(3, 3)
        fingers = data.qpos[robot._ref_gripper_joint_pos_indexes], data.qvel[robot._ref_gripper_joint_vel_indexes]
        closed = -robot.gripper.current_action[:1]
        return np.concatenate([self._hand(), _two_columns(matrix), *fingers, closed]).astype(np.float32)

    def _hand(self) -> NDArray[np.float64]:
        position: NDArray[np.float64] = self._env.sim.data.site_xpos[self._robot.eef_site_id]
        return position

    def _condition(self, condition: list[str], hand: NDArray[np.float64]) -> NDArray[np.float64]:
        predicate, name = condition[:2]
        position, rotation = self._pose(name)
        to_goal = self._pose(condition[2])[0] - position if len(condition) > 2 else np.zeros(3)
        which = np.array([predicate == known for known in PREDICATES], np.float64)
        holds = float(self._env._eval_predicate(condition))
        return np.concatenate([which, [holds], position, rotation, position - hand, to_goal, [self._top(name, position[2])]])

    def _top(self, name: str, height: float) -> float:
        geoms = self._geoms[name]
        if not geoms:
            return 0.0
        data, boxes = self._env.sim.data, self._env.sim.model._model.geom_aabb[geoms]
        upwards = data.geom_xmat[geoms][:, 6:9]
        tops = data.geom_xpos[geoms][:, 2] + (upwards * boxes[:, :3]).sum(1) + (np.abs(upwards) * boxes[:, 3:]).sum(1)
        return float(tops.max() - height)

    def _pose(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Position [3] and orientation [6] of an object, a piece of furniture, or a place in one."""
        data = self._env.sim.data
        if name in self._env.object_sites_dict:
            return np.array(data.get_site_xpos(name)), _two_columns(data.get_site_xmat(name))
        body = self._env.obj_body_id[name]
        return np.array(data.body_xpos[body]), _two_columns(data.body_xmat[body].reshape(3, 3))


def _solid_geoms(env: Any, name: str) -> list[int]:
    """Of an object and its parts; [] of a place."""
    if name in env.object_sites_dict:
        return []
    model, own = env.sim.model._model, {env.obj_body_id[name]}
    for body in range(model.nbody):  # parents come before their children
        if model.body_parentid[body] in own:
            own.add(body)
    return [geom for geom in range(model.ngeom) if model.geom_bodyid[geom] in own and model.geom_contype[geom]]


def _two_columns(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    columns: NDArray[np.float64] = matrix[:, :2].T.reshape(6)
    return columns
