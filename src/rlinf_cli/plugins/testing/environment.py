"""Whether an environment keeps the contract of `rlinf_cli.api.Environment`."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.api import Start
from rlinf_cli.plugins.testing.findings import a, require, run_all, target_of

MOST_STEPS = 200
"""Of an episode, as far as it is followed here."""


def check_environment(target: Any, config: Any = None, images: bool = False, steps: int = MOST_STEPS) -> None:
    """Raise AssertionError unless its instances begin as they are told, keep apart, and can be made anywhere.

    `target`: the class, built as `target(config)`, or its extension. `images`: whether frames are checked too, which may need
    packages for drawing. `steps`: as far as episodes are followed.
    """
    environment_class, config = target_of(target, config)
    case = _Case(environment_class(config), steps)
    checks = [case.tells_its_tasks, case.can_be_pickled, case.has_spaces_that_policies_take, case.tells_what_a_step_brought,
              case.depends_on_start_and_actions_alone, case.begins_only_what_is_masked]
    run_all(*checks, *[case.shows_frames] * images)


class _Case:
    def __init__(self, environment: Any, steps: int) -> None:
        self._environment, self._steps = environment, steps

    def tells_its_tasks(self) -> None:
        tasks = list(self._environment.tasks())
        require(bool(tasks) and all(isinstance(task, str) for task in tasks) and len(set(tasks)) == len(tasks),
                f"tasks() must be distinct names, one empty name where there is only one task; it is {tasks!r}")
        for task in tasks:
            states, instruction = self._environment.states(task), self._environment.instruction(task)
            require(isinstance(states, int) and states >= 0, f"states({task!r}) must be a number of states, not {states!r}")
            require(isinstance(instruction, str), f"instruction({task!r}) must be a text, not {a(instruction)}")

    def can_be_pickled(self) -> None:
        again = pickle.loads(pickle.dumps(self._environment))
        require(list(again.tasks()) == list(self._environment.tasks()), "it has other tasks after pickling")

    def has_spaces_that_policies_take(self) -> None:
        made = self._made(2)
        require(made.num_envs == 2, f"make(2, ...) has num_envs {made.num_envs}")
        mode = str(getattr(made.metadata.get("autoreset_mode"), "name", None))
        require(mode == "DISABLED", f"metadata['autoreset_mode'] must be AutoresetMode.DISABLED, not {mode}: the one who steps "
                                    "it says how an episode begins")
        _require_observation_space(made.single_observation_space)
        _require_kind(made.single_action_space, ("Box", "Discrete", "MultiDiscrete"), "single_action_space")
        made.close()

    def tells_what_a_step_brought(self) -> None:
        made = self._made(3)
        _require_observation(made, _reset(made, [0, 1, 2], self._start), "reset()")
        observation, reward, terminated, truncated, infos = made.step(_actions(made, 1)[0])
        _require_observation(made, observation, "step()")
        require(np.shape(reward) == (3,) and np.issubdtype(np.asarray(reward).dtype, np.number),
                "step() must give a reward for each instance")
        told = {"success": infos["success"]} if "success" in infos else {}
        for name, flags in {"terminated": terminated, "truncated": truncated, **told}.items():
            require(np.shape(flags) == (3,) and np.asarray(flags).dtype == np.bool_, f"{name} must be a bool for each instance")
        made.close()

    def depends_on_start_and_actions_alone(self) -> None:
        first = self._made(1)
        actions = _actions(first, self._steps)
        alone = _episode(first, 0, actions, self._start)
        again = _episode(first, 0, actions, self._start)
        first.close()
        both = self._made(2)
        beside = _episode(both, 1, np.concatenate([actions[::-1], actions], axis=1), self._start)
        both.close()
        require(_same(alone, again), "an episode of the same start and actions was another one the second time: is something of "
                                     "the first one left, or drawn from elsewhere than the start's seed?")
        require(_same(alone, beside), "an episode was another one beside another instance: they must not share random numbers")

    def begins_only_what_is_masked(self) -> None:
        made = self._made(2)
        before = _reset(made, [0, 1], self._start)
        kept, changed = _row(before, 0), _row(before, 1)
        after = _reset(made, [None, 2], self._start)
        require(_same([kept], [_row(after, 0)]), "reset() with a mask changed an instance that is not in it")
        again = _reset(made, [None, 1], self._start)
        require(_same([changed], [_row(again, 1)]), "reset() with a start that it has had before began otherwise")
        made.close()

    def shows_frames(self) -> None:
        made = self._environment.make(2, "cpu", True)
        _reset(made, [0, 1], self._start)
        frames = list(made.render())
        require(len(frames) == 2 and all(np.ndim(frame) == 3 and np.shape(frame)[2] == 3 for frame in frames)
                and all(np.asarray(frame).dtype == np.uint8 for frame in frames),
                "render() must give a uint8 frame [height, width, 3] for each instance")
        made.close()

    def _made(self, count: int) -> Any:
        return self._environment.make(count, "cpu", False)

    def _start(self, seed: int) -> Start:
        """Of the first task, in one of its states if they are known."""
        task = self._environment.tasks()[0]
        states = self._environment.states(task)
        return Start(seed, task, seed % states if states else -1)


def _require_observation_space(space: Any) -> None:
    inner = getattr(space, "spaces", None)
    if isinstance(inner, dict):
        for name, one in inner.items():
            _require_kind(one, ("Box",), f"single_observation_space[{name!r}]")
    else:
        _require_kind(space, ("Box", "Discrete"), "single_observation_space")


def _require_kind(space: Any, kinds: tuple[str, ...], what: str) -> None:
    require(type(space).__name__ in kinds, f"{what} is {a(space)}: policies take {' or '.join(kinds)}")


def _require_observation(made: Any, observation: Any, where: str) -> None:
    for name, space, value in _parts(made.single_observation_space, observation):
        require(np.shape(value) == (made.num_envs, *(space.shape or ())) and np.asarray(value).dtype == space.dtype,
                f"{where} gives {name} of shape {np.shape(value)} and type {np.asarray(value).dtype}; the space says "
                f"{(made.num_envs, *(space.shape or ()))} and {space.dtype}")


def _parts(space: Any, observation: Any) -> list[tuple[str, Any, Any]]:
    inner = getattr(space, "spaces", None)
    if not isinstance(inner, dict):
        return [("an observation", space, observation)]
    require(isinstance(observation, dict) and observation.keys() == inner.keys(),
            f"an observation must be a dict of {', '.join(inner)}, as its space is")
    return [(f"observation {name!r}", one, observation[name]) for name, one in inner.items()]


def _actions(made: Any, steps: int) -> NDArray[Any]:
    """[steps, E, ...]"""
    space = made.single_action_space
    space.seed(0)
    return np.array([[space.sample() for _ in range(made.num_envs)] for _ in range(steps)], space.dtype)


def _reset(made: Any, seeds: Sequence[int | None], start: Any) -> Any:
    """Begin the rows that have a seed."""
    starts = [None if seed is None else start(seed) for seed in seeds]
    mask = np.array([seed is not None for seed in seeds])
    return made.reset(seed=list(seeds), options={"reset_mask": mask, "starts": starts})[0]


def _episode(made: Any, row: int, actions: NDArray[Any], start: Any) -> list[Any]:
    """What a row goes through, up to its end; the others begin with other seeds."""
    seeds = [5 if one == row else 100 + one for one in range(made.num_envs)]
    found = [_row(_reset(made, seeds, start), row)]
    for action in actions:
        observation, reward, terminated, truncated, _ = made.step(action)
        found += [_row(observation, row), float(reward[row]), bool(terminated[row]), bool(truncated[row])]
        if terminated[row] or truncated[row]:
            break
    return found


def _row(observation: Any, row: int) -> Any:
    if isinstance(observation, dict):
        return {name: np.array(value[row]) for name, value in observation.items()}
    return np.array(observation[row])


def _same(first: list[Any], second: list[Any]) -> bool:
    return len(first) == len(second) and pickle.dumps(first) == pickle.dumps(second)
