"""The gradient of one optimiser step, from a step's samples: `python gradient.py RANK WORLD PORT JOB OUT` for one rank.

JOB is a pickle of (model directory, samples, {name: settings}). Each rank trains its part of every case from the same
start; rank 0 leaves the gradients in OUT, a file a case.
"""

import pickle
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from rlinf_cli.config.load import resolve
from rlinf_cli.contracts.trainer import Ranks
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.workers.algorithm import build_algorithm
from rlinf_cli.workers.batch import deal
from rlinf_torch.trainer import TorchTrainer
from rlinf_torch.trainer_config import TorchTrainerConfig

DECAY = 0.9
"""AdamW's first moment after the first step is `(1 - DECAY) * gradient`."""


def build(model, ranks, budget):
    config = TorchTrainerConfig(lr=1e-3, max_grad_norm=1e9, micro_batch_tokens=budget, betas=(DECAY, 0.99))
    return TorchTrainer(config, model, "cpu", ranks, 10)


def gradient(trainer, samples, settings, rank, world, directory):
    """Gradient, metrics, and samples in each micro-batch of this rank."""
    config = resolve([], settings, {}, load_plugins(None))
    algorithm, sizes = build_algorithm(config), []
    ((items,),) = [deal(samples, algorithm, config, 0, world).parts[rank]]

    def loss(inputs):
        sizes.append(int(inputs.samples.max()) + 1)
        return algorithm.loss(inputs)

    metrics = trainer.train_step(items, loss, 1.0, algorithm.needs_entropy)
    directory.mkdir(exist_ok=True)
    trainer.save(directory)
    found = None
    if rank == 0:
        moments = load_file(directory / "optimizer.safetensors")
        found = torch.cat([moments[name].flatten() for name in sorted(moments) if name.endswith("exp_avg")]) / (1 - DECAY)
    return found, metrics, sizes


def main(rank, world, port, job, out):
    torch.set_num_threads(1)
    model, samples, cases = pickle.loads(Path(job).read_bytes())
    trainer = build(model, Ranks(rank, world, f"tcp://127.0.0.1:{port}"), 40)
    start = out / "start"
    start.mkdir(exist_ok=True)
    trainer.save(start)
    for name, settings in cases.items():
        found, _, _ = gradient(trainer, samples, settings, rank, world, out / name)
        if rank == 0:
            save_file({"gradient": found}, out / f"{name}.safetensors")
        # rank 0 has written `start` before the first step let the others pass it
        trainer.load(start)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], Path(sys.argv[5]))
