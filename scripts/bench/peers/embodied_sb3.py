"""PPO of stable-baselines3 on one task: environment steps a second, learner included, with the better of its vectorisations.

    pip install stable-baselines3 gymnasium mujoco        # in an environment of its own; and mani-skill for its tasks
    python embodied_sb3.py '{"env": "CartPole-v1", "count": 8, ...}'

Ends with one JSON line: steps/s of each vectorisation, over the time after the first rollout, and the mean return of each.
"""

import json
import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

torch.set_num_threads(1)
job = json.loads(sys.argv[1])


def make():
    if job.get("maniskill"):
        return maniskill()
    return Monitor(gym.make(job["env"]))


def maniskill():
    """State observations; no renderer where there is none."""
    import sapien.render

    class Nothing:
        def __init__(self, *_, **__):
            pass

    try:
        sapien.render.RenderMaterial()
    except Exception:  # there is no Vulkan device
        sapien.render.RenderMaterial = sapien.pysapien.render.RenderMaterial = Nothing
    import mani_skill.envs  # noqa: F401
    from mani_skill.utils.wrappers.gymnasium import CPUGymWrapper

    made = gym.make(job["env"], num_envs=1, obs_mode="state", sim_backend="physx_cpu", render_backend="none",
                    reward_mode="normalized_dense", control_mode=job["control"], max_episode_steps=50)
    return CPUGymWrapper(made, ignore_terminations=False, record_metrics=False)


class Clock(BaseCallback):
    """Time from the end of the first rollout to the end of the last update."""

    def __init__(self):
        super().__init__()
        self.began = None

    def _on_rollout_start(self):
        if self.began is None and self.num_timesteps:
            self.began, self.first = time.perf_counter(), self.num_timesteps

    def _on_step(self):
        return True


def measured(kind):
    environments = kind([make] * job["count"])
    model = PPO("MlpPolicy", environments, n_steps=job["steps"], batch_size=job["batch"], n_epochs=job["epochs"],
                gamma=job["gamma"], gae_lambda=job["lambda"], learning_rate=job["lr"], ent_coef=0.0, device="cpu",
                policy_kwargs={"net_arch": job["hidden"]}, verbose=0, seed=0)
    clock = Clock()
    model.learn(job["total"], callback=clock)
    rate = (model.num_timesteps - clock.first) / (time.perf_counter() - clock.began)
    returns = [one["r"] for one in model.ep_info_buffer]
    environments.close()
    return rate, float(np.mean(returns)) if returns else None


if __name__ == "__main__":
    kinds = {"dummy": DummyVecEnv, "subproc": SubprocVecEnv}
    found = {name: measured(kinds[name]) for name in job.get("kinds", kinds)}
    print(json.dumps({name: {"env_steps_per_s": round(rate, 1), "return": final} for name, (rate, final) in found.items()}))
