"""Each variant of each algorithm learns (scenario C3), from random weights: the built-in digits task, in one process."""

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytestmark = pytest.mark.learning

REFERENCE = "algorithm.kl_coef=0.001"

RUNS = {
    **{f"grpo, seed {seed}": ["algorithm.name=grpo", f"seed={seed}"] for seed in (1, 2)},
    **{f"dapo, seed {seed}": ["algorithm.name=dapo", f"seed={seed}"] for seed in range(3)},
    "dr-grpo": ["algorithm.name=dr-grpo"],
    "rloo": ["algorithm.name=rloo"],
    # one baseline for all prompts is noisy: more of them
    "reinforce++": ["algorithm.name=reinforce++", "rollout.prompts=64"],
    "gspo": ["algorithm.name=gspo"],
    "KL in the loss": ["algorithm.name=grpo", REFERENCE, "algorithm.kl_in=loss"],
    "KL in the reward, entropy bonus, importance sampling": [
        "algorithm.name=rloo", REFERENCE, "algorithm.entropy_coef=0.001", "algorithm.importance_cap=2"],
    "top-k": ["algorithm.name=grpo", "rollout.top_k=20"],
    **{f"tiny:{family}": ["algorithm.name=grpo", f"model.name=tiny:{family}"] for family in ("qwen3", "llama", "smollm")},
    "ppo": ["algorithm.name=ppo", "steps=150", "critic.lr=0.001"],
    "sft": ["algorithm.name=sft", "steps=100"],
}
"""Name -> settings; the seed is 0 where none is given."""

SCRIPT = Path(__file__).with_name("harness.py")


class Trainers:
    """Processes that train, one job at a time each. Under xdist its workers are two already."""

    def __init__(self, names):
        self._mine, self._started = threading.local(), []
        count = 1 if "PYTEST_XDIST_WORKER" in os.environ else 2
        self._pool = ThreadPoolExecutor(count)
        ahead = names if count > 1 else []
        self._futures = {name: self._pool.submit(self._train, RUNS[name]) for name in ahead}

    def result(self, name):
        """Rewards of all steps, accuracy and last metrics of a run of RUNS."""
        if name not in self._futures:
            self._futures[name] = self._pool.submit(self._train, RUNS[name])
        return self._futures[name].result()

    def _train(self, settings):
        process = self._process()
        process.stdin.write(json.dumps(settings) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer, f"training with {settings} ended with {process.wait()}; its error is above"
        return json.loads(answer)

    def _process(self):
        if not hasattr(self._mine, "process"):
            self._mine.process = subprocess.Popen([sys.executable, SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                                  text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
            self._started.append(self._mine.process)
        return self._mine.process

    def close(self):
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in self._started:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module")
def trainers(request):
    chosen = [item.callspec.params["name"] for item in request.session.items if item.path == request.path]
    made = Trainers(chosen)
    yield made
    made.close()


@pytest.mark.parametrize("name", RUNS)
def test_the_task_is_learned(trainers, name):
    result = trainers.result(name)
    if name == "sft":
        assert result["accuracy"] > 0.95
        return
    rewards = result["rewards"]
    assert sum(rewards[:3]) / 3 < 0.2
    assert sum(rewards[-5:]) / 5 > 0.9, [round(reward, 2) for reward in rewards[::10]]
    if name != "top-k":
        assert result["metrics"]["rollout/logp_diff/mean"] < 1e-6
