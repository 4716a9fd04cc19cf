"""One rank of a trainer, as a process of its own: `python rank.py RANK WORLD PORT JOBS OUT`.

JOBS is a pickle of (model directory, {key: value} of the trainer, [job, ...]);
a job is a dict with `items` (one list a rank) and `poison` (the rank
whose loss is NaN, or None), with `pieces` (one list of lists of items a rank)
and `scale`, or with `load` (one directory a rank). Rank 0 leaves a checkpoint of each training job in
OUT; each rank its answers in OUT/RANK.json.
"""

import json
import pickle
import sys
from pathlib import Path

import torch

from rlinf_cli.api import Ranks, RunError, weights_checksum
from rlinf_grpo.algorithm import GRPO
from rlinf_grpo.config import GRPOConfig
from rlinf_torch.trainer import TorchTrainer
from rlinf_torch.trainer_config import TorchTrainerConfig


def answer(trainer, job, rank, out, number):
    try:
        if "load" in job:
            trainer.load(Path(job["load"][rank]))
            return {"loaded": True}
        metrics = train(trainer, job, rank)
        (out / f"{number}").mkdir(exist_ok=True)
        trainer.save(out / f"{number}")
        return {"metrics": metrics, "weights": weights_checksum(trainer.named_weights())}
    except (FloatingPointError, RunError, ValueError) as error:
        return {"error": f"{type(error).__name__}: {error}", "weights": weights_checksum(trainer.named_weights())}


def train(trainer, job, rank):
    if "pieces" in job:
        for piece in job["pieces"][rank]:
            trainer.accumulate(piece, GRPO(GRPOConfig()).loss, 1.0)
        return trainer.finish(job["scale"])

    def loss(inputs):
        value, metrics = GRPO(GRPOConfig()).loss(inputs)
        return value * (float("nan") if job["poison"] == rank else 1.0), metrics

    return trainer.train_step(job["items"][rank], loss, 1.0)


def main(rank, world, port, jobs, out):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, keys, todo = pickle.loads(Path(jobs).read_bytes())
    config = TorchTrainerConfig(lr=1e-3, max_grad_norm=1e9, micro_batch_tokens=60, **keys)
    trainer = TorchTrainer(config, model, "cpu", Ranks(rank, world, f"tcp://127.0.0.1:{port}"), 10)
    start = out / "start"
    start.mkdir(exist_ok=True)
    trainer.save(start)
    answers = []
    for number, job in enumerate(todo):
        answers.append(answer(trainer, job, rank, out, number))
        # rank 0 has written `start` before the first step let the others pass it
        trainer.load(start)
    (out / f"{rank}.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], Path(sys.argv[5]))
