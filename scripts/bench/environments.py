"""Steps of simulators through a pool, beside gymnasium's own vector environments; no policy, no learner.

    python scripts/bench/environments.py

Rounds alternate between the two, so that both see the same machine; ratios are of medians. Ratios:
`own_vector` CartPole-v1, many instances in this process, beside gymnasium's `CartPoleVectorEnv` (a controller balances the poles,
so that few episodes end) · `async` HalfCheetah-v5, 8 instances in 2 processes, beside `AsyncVectorEnv`, which takes a process an
instance · `async_processes` the same with 8 processes · `async_halves` the same as `async` in two halves that are under way at
the same time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import statistics
import time
from collections.abc import Callable

import gymnasium
import mujoco
import numpy as np
from gymnasium.vector import AsyncVectorEnv

from rlinf_cli.contracts.environment import Start
from rlinf_cli.workers.environments.pool import Pool
from rlinf_gymnasium.config import GymnasiumConfig
from rlinf_gymnasium.environment import Gymnasium

BALANCE = np.array([0.05, 0.1, 1.0, 0.5])
TASK = "HalfCheetah-v5"


def pool(task: str, count: int, processes: int, halves: int = 1) -> Pool:
    seeds = itertools.count()
    made = Pool(Gymnasium(GymnasiumConfig(task)), count, processes, "cpu", lambda _: Start(next(seeds)), halves=halves)
    for half in range(halves):
        made.reset(half, [Start(next(seeds)) for _ in range(made.size)])
    return made


def balance(step: Callable, count: int, steps: int) -> None:
    observation = step(np.zeros(count, np.int64))
    for _ in range(steps):
        observation = step((observation @ BALANCE > 0).astype(np.int64))


def through(made: Pool) -> Callable:
    def step(actions):
        made.send(0, actions)
        return made.receive(0).observation
    return step


def halves_in_turn(made: Pool, actions: np.ndarray) -> None:
    for half in range(made.halves):
        made.send(half, actions[0][: made.size])
    for action in actions[1:]:
        for half in range(made.halves):
            made.receive(half)
            made.send(half, action[: made.size])
    for half in range(made.halves):
        made.receive(half)


def rates(rounds: int, work: dict[str, Callable[[], None]], steps: int) -> dict[str, float]:
    """Median steps per second of each."""
    found: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, run in work.items():
            began = time.perf_counter()
            run()
            found[name].append(steps / (time.perf_counter() - began))
    return {name: statistics.median(values) for name, values in found.items()}


def cartpole(count: int, steps: int, rounds: int) -> dict[str, float]:
    theirs = gymnasium.make_vec("CartPole-v1", count, vectorization_mode="vector_entry_point")
    theirs.reset(seed=0)
    with pool("CartPole-v1", count, 1) as ours:
        return rates(rounds, {
            "cartpole": lambda: balance(through(ours), count, steps),
            "cartpole_gymnasium": lambda: balance(lambda actions: theirs.step(actions)[0], count, steps)}, count * steps)


def cheetah(count: int, steps: int, rounds: int) -> dict[str, float]:
    theirs = AsyncVectorEnv([lambda: gymnasium.make(TASK, disable_env_checker=True)] * count)
    theirs.reset(seed=0)
    actions = np.random.default_rng(0).uniform(-1, 1, (steps, count, 6)).astype(np.float32)

    def step_theirs() -> None:
        for action in actions:
            theirs.step(action)

    try:
        with pool(TASK, count, 2) as few, pool(TASK, count, count) as many, pool(TASK, count, 2, 2) as halves:
            return rates(rounds, {
                "async_gymnasium": step_theirs, "async": lambda: halves_in_turn(few, actions),
                "async_processes": lambda: halves_in_turn(many, actions),
                "async_halves": lambda: halves_in_turn(halves, actions)}, count * steps)
    finally:
        theirs.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=500, help="a round")
    options = parser.parse_args()
    logging.disable()
    mujoco.set_mju_user_warning(lambda text: None)
    raw: dict[str, float] = {}
    for count in (8, 64, 1024):
        raw |= {f"{name}_{count}": rate for name, rate in cartpole(count, options.steps, options.rounds).items()}
    raw |= cheetah(8, options.steps, options.rounds)
    ratios = {f"own_vector_{count}": raw[f"cartpole_{count}"] / raw[f"cartpole_gymnasium_{count}"] for count in (8, 64, 1024)}
    ratios |= {name: raw[name] / raw["async_gymnasium"] for name in ("async", "async_processes", "async_halves")}
    print(json.dumps({"ratios": {name: round(value, 3) for name, value in ratios.items()},
                      "raw": {name: round(value) for name, value in raw.items()}}))


if __name__ == "__main__":
    main()
