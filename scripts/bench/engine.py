"""Generation speed of the `torch` engine against `transformers.generate`: the same tiny model, prompts and machine.

Greedy output is compared token by token first. Times are CPU seconds of this process with one thread (other processes
disturb them less than they do wall time), of rounds that alternate; figures are useful tokens a CPU second, medians.
The last line is a JSON object.

    OMP_NUM_THREADS=1 python scripts/bench/engine.py [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from rlinf_cli.api import Request, Sampling
from rlinf_models.tiny import TinyModel
from rlinf_torch.engine import TorchEngine
from rlinf_torch.engine_config import TorchEngineConfig

BATCH, REQUESTS, LONGEST = 32, 128, 64
"""Slots, and the batch of generate; requests in a round; most new tokens."""


def prompts(noise: np.random.Generator) -> list[np.ndarray]:
    """Distinct prompts of 4 to 11 tokens."""
    made: dict[bytes, np.ndarray] = {}
    while len(made) < REQUESTS:
        prompt = noise.integers(3, 27, noise.integers(4, 12)).astype(np.int32)
        made[prompt.tobytes()] = prompt
    return list(made.values())


def with_engine(engine: TorchEngine, requests: list[Request]) -> dict[str, np.ndarray]:
    engine.submit(requests)
    done = {}
    while engine.pending():
        done.update((one.id, one.token_ids) for one in engine.collect())
    return done


def with_generate(model: PreTrainedModel, requests: list[Request]) -> dict[str, np.ndarray]:
    """Batches in the order of the requests, padded on the left, each as long as its longest request."""
    done = {}
    for first in range(0, len(requests), BATCH):
        batch = requests[first : first + BATCH]
        width = max(len(request.prompt_ids) for request in batch)
        ids, mask = torch.zeros(2, len(batch), width, dtype=torch.int64)
        for row, request in enumerate(batch):
            ids[row, width - len(request.prompt_ids) :] = torch.from_numpy(request.prompt_ids)
            mask[row, width - len(request.prompt_ids) :] = 1
        said = model.generate(input_ids=ids, attention_mask=mask, do_sample=False, pad_token_id=0,
                              max_new_tokens=max(request.sampling.max_new_tokens for request in batch))
        for row, request in zip(said[:, width:].numpy(), batch, strict=True):
            done[request.id] = row[: request.sampling.max_new_tokens]
    return done


def cases() -> dict[str, list[Request]]:
    noise = np.random.default_rng(0)
    tail = np.where(noise.random(REQUESTS) < 0.08, LONGEST, noise.integers(4, 10, REQUESTS))
    lengths = {"equal_lengths": np.full(REQUESTS, LONGEST), "long_tail": tail}
    return {name: [Request(f"{name}-{number}", prompt, Sampling(int(most), temperature=0.0))
                   for number, (prompt, most) in enumerate(zip(prompts(noise), chosen, strict=True))]
            for name, chosen in lengths.items()}


def groups() -> list[Request]:
    """Eight groups of 16 samples of prompts of 64 tokens, 16 new tokens each."""
    noise = np.random.default_rng(1)
    made = [noise.integers(3, 27, 64).astype(np.int32) for _ in range(8)]
    return [Request(f"{group}-{number}", made[group], Sampling(16)) for group in range(8) for number in range(16)]


def timed(work, *arguments) -> float:
    began = time.process_time()
    work(*arguments)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        TinyModel("digits", 0).build(Path(folder))
        engine = TorchEngine(TorchEngineConfig(slots=BATCH), Path(folder), "cpu", 128)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None  # lengths are those of the requests
    raw: dict[str, float] = {}
    ratios: dict[str, float] = {}
    for name, requests in cases().items():
        ours, theirs = with_engine(engine, requests), with_generate(model, requests)
        assert all(np.array_equal(ours[request.id], theirs[request.id]) for request in requests), name
        useful = sum(request.sampling.max_new_tokens for request in requests)
        times = [(timed(with_engine, engine, requests), timed(with_generate, model, requests)) for _ in range(rounds)]
        raw |= {f"{name}/engine_tokens_per_cpu_s": useful / statistics.median(own for own, _ in times),
                f"{name}/generate_tokens_per_cpu_s": useful / statistics.median(other for _, other in times)}
        ratios[name] = statistics.median(other / own for own, other in times)
        print(f"{name:14s} engine {raw[f'{name}/engine_tokens_per_cpu_s']:8.0f}   generate "
              f"{raw[f'{name}/generate_tokens_per_cpu_s']:8.0f} tokens/CPU-s   ratio {ratios[name]:.2f}")
    raw["group_sampling/engine_tokens_per_cpu_s"] = len(groups()) * 16 / statistics.median(
        timed(with_engine, engine, groups()) for _ in range(rounds))
    print(f"group_sampling engine {raw['group_sampling/engine_tokens_per_cpu_s']:8.0f} tokens/CPU-s, 16 samples a "
          "prompt of 64 tokens")
    print(json.dumps({"bench": "engine", "ratios": ratios, "raw": raw}))


if __name__ == "__main__":
    main()
