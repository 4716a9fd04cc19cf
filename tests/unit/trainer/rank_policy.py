"""One rank of a policy's trainer, as a process of its own: `python rank_policy.py RANK WORLD PORT JOB OUT`.

JOB is a pickle of (keys of the policy, keys of the trainer, [portion of each rank]). Each rank leaves its metrics and the
checksum of its weights in OUT/RANK.json, rank 0 a checkpoint in OUT/trained.
"""

import json
import pickle
import sys
from pathlib import Path

import torch
from gymnasium.spaces import Box

from rlinf_cli.api import Ranks, weights_checksum
from rlinf_cli.workers.policy_learner import PolicyLearner
from rlinf_policies.config import MLPConfig
from rlinf_policies.mlp import MLPPolicy
from rlinf_ppo.algorithm import PPO
from rlinf_ppo.config import PPOConfig
from rlinf_torch.trainer import TorchTrainer
from rlinf_torch.trainer_config import TorchTrainerConfig


def main(rank, world, port, job, out):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    policy, trainer, portions = pickle.loads(Path(job).read_bytes())
    module = MLPPolicy(MLPConfig(**policy), Box(-9, 9, (4,)), Box(-1, 1, (2,)))
    ranks = Ranks(rank, world, f"tcp://127.0.0.1:{port}")
    built = TorchTrainer.policy(TorchTrainerConfig(**trainer), module, "cpu", ranks, 10)
    metrics = PolicyLearner(PPO(PPOConfig(entropy_coef=0.01)), built).train(portions[rank])
    (out / "trained").mkdir(exist_ok=True)
    built.save(out / "trained")
    (out / f"{rank}.json").write_text(json.dumps({"metrics": metrics, "weights": weights_checksum(built.named_weights())}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], Path(sys.argv[5]))
