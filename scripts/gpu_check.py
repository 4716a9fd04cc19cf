"""What a CPU cannot show, checked on one GPU in less than eight minutes.

    python scripts/gpu_check.py [--only NAME ...]

One JSON line a check: its name, whether it passed, its seconds and what it measured; then one line for all. Exit code: 0
when all have passed, 1 when one has not, 4 when there is no GPU. Needs a PyTorch that was built for the machine's CUDA and
this package with its plugins (`pip install -e .`); it installs nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from rlinf_cli.api import Ranks, Request, Sample, Sampling, TrainItem, weights_checksum
from rlinf_cli.flow.weights import Publisher
from rlinf_cli.flow.weights_layout import in_type
from rlinf_cli.flow.weights_receiver import Receiver

LIMIT_S = 240
"""Of the run of the command, which is the longest check."""
Figures = Mapping[str, Any]


@dataclass(frozen=True)
class Setting:
    """Where, and on what, the checks run."""

    device: str
    directory: Path
    """Of the model."""
    slots: int = 64
    tokens: int = 128
    """New ones of a response."""


class CheckFailedError(Exception):
    """One sentence."""


def require(held: bool, sentence: str) -> None:
    if not held:
        raise CheckFailedError(sentence)


# ---- what the checks need ----


def save_model(directory: Path, width: int = 768, layers: int = 12) -> None:
    """A random Llama; as it is, 110 million parameters."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=16_000, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=layers,
                         num_attention_heads=width // 64, num_key_value_heads=width // 64, max_position_embeddings=1024)
    LlamaForCausalLM(config).save_pretrained(directory)


def build_engine(setting: Setting, dtype: str, device: str = "") -> Any:
    from rlinf_torch.engine import TorchEngine
    from rlinf_torch.engine_config import TorchEngineConfig

    config = TorchEngineConfig(slots=setting.slots, dtype=dtype, offload="weights")
    return TorchEngine(config, setting.directory, device or setting.device, 32 + setting.tokens)


def build_trainer(setting: Setting, dtype: str, device: str = "") -> Any:
    from rlinf_torch.trainer import TorchTrainer
    from rlinf_torch.trainer_config import TorchTrainerConfig

    return TorchTrainer(TorchTrainerConfig(lr=1e-3, dtype=dtype), setting.directory, device or setting.device, Ranks(), 10)


def requests(setting: Setting, name: str, count: int = 8, temperature: float = 0.0) -> list[Request]:
    noise = np.random.default_rng(0)
    sampling = Sampling(setting.tokens, temperature)
    return [Request(f"{name}-{number}", noise.integers(3, 1000, 16).astype(np.int32), sampling) for number in range(count)]


def answers(engine: Any, wanted: Sequence[Request]) -> list[Any]:
    """Completions in the order of the requests."""
    engine.submit(wanted)
    done: dict[str, Any] = {}
    while engine.pending():
        done.update((one.id, one) for one in engine.collect())
    return [done[request.id] for request in wanted]


def items(count: int = 8, length: int = 64) -> list[TrainItem]:
    noise = np.random.default_rng(1)
    share = np.full(length, 1 / (count * length), np.float32)
    return [TrainItem(Sample(
        id=f"{number}/0000", group_id=str(number), prompt_ids=noise.integers(3, 1000, 16).astype(np.int32),
        response_ids=noise.integers(3, 1000, length).astype(np.int32), mask=np.ones(length, np.bool_),
        logprobs=np.full(length, -9.0, np.float32), versions=np.zeros(length, np.int32), finish="stop"),
        np.full(length, 1.0 if number % 2 else -1.0, np.float32), share) for number in range(count)]


def policy_gradient(inputs: Any) -> Any:
    return -(inputs.logprobs * inputs.advantages * inputs.weights).sum(), {}


def allocated(setting: Setting) -> int:
    """Bytes of the device that tensors take; 0 on a CPU, which does not count them."""
    if not setting.device.startswith("cuda"):
        return 0
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated(setting.device)


def is_near(told: int, measured: int) -> bool:
    """Whether two numbers of bytes agree to 5 % and 4 MB."""
    return abs(told - measured) <= 0.05 * measured + 4e6


# ---- the checks ----


def engine_bf16(setting: Setting) -> Figures:
    """The engine in bfloat16 says nearly what one in float32 says, and holds what it was sent."""
    # log-probabilities of what the bfloat16 engine said, by a trainer in float32
    engine, trainer = build_engine(setting, "bfloat16"), build_trainer(setting, "float32")
    said = answers(engine, requests(setting, "a"))
    samples = [Sample(id=one.id, group_id=one.id, prompt_ids=request.prompt_ids, response_ids=one.token_ids,
                      mask=np.ones(len(one.token_ids), np.bool_), logprobs=one.logprobs, versions=one.versions, finish=one.finish)
               for one, request in zip(said, requests(setting, "a"), strict=True)]
    apart = np.concatenate([np.abs(scored - sample.logprobs)
                            for scored, sample in zip(trainer.log_probs(samples, 1.0), samples, strict=True)])
    require(float(apart.mean()) < 0.05, f"log-probabilities differ by {apart.mean():.3f} on average from those of float32")
    sent = [(name, in_type(tensor + 0.01, "bfloat16")) for name, tensor in trainer.named_weights()]
    engine.update_weights(1, sent)
    require(engine.weights_checksum() == weights_checksum(sent), "the engine holds other weights than it was sent")
    return {"logp_diff_mean": float(apart.mean()), "logp_diff_max": float(apart.max())}


def trainer_bf16(setting: Setting) -> Figures:
    """An optimiser step in bfloat16 arithmetic is nearly that in float32."""
    steps = {dtype: build_trainer(setting, dtype).train_step(items(), policy_gradient, 1.0) for dtype in ("float32", "bfloat16")}
    figures = {f"{name}_{dtype}": steps[dtype][f"actor/{name}"] for name in ("loss", "grad_norm") for dtype in steps}
    for name in "loss", "grad_norm":
        exact, rounded = figures[f"{name}_float32"], figures[f"{name}_bfloat16"]
        require(abs(exact - rounded) <= 0.05 * abs(exact) + 1e-3, f"{name} is {rounded:.4f} instead of {exact:.4f}")
    return figures


def trainer_offload(setting: Setting) -> Figures:
    """A trainer gives its device back, goes on as if nothing had been, and says truly how much that was."""
    still, moved = (build_trainer(setting, "float32") for _ in range(2))
    for trainer in still, moved:
        trainer.train_step(items(), policy_gradient, 1.0)
    before = allocated(setting)
    began = time.monotonic()
    told = moved.offload()
    out = time.monotonic() - began
    freed = before - allocated(setting)
    began = time.monotonic()
    back = moved.onload()
    into = time.monotonic() - began
    for trainer in still, moved:
        trainer.train_step(items(), policy_gradient, 1.0)
    require(weights_checksum(moved.named_weights()) == weights_checksum(still.named_weights()),
            "after offload and onload another step gives other weights")
    if before:
        state = 3 * sum(tensor.numel() * 4 for _, tensor in moved.named_weights())
        require(is_near(told, freed), f"offload says that {told} bytes are free, but {freed} are")
        require(freed >= 0.95 * state, f"{freed} bytes were freed, weights and optimiser state are {state}")
    return {"freed_bytes": freed, "told_bytes": told, "offload_GBps": told / out / 1e9, "onload_GBps": back / into / 1e9}


def engine_release(setting: Setting) -> Figures:
    """An engine gives its device back, and says the same afterwards."""
    engine = build_engine(setting, "bfloat16" if setting.device.startswith("cuda") else "float32")
    said = answers(engine, requests(setting, "a"))
    before = allocated(setting)
    told = engine.release_memory()
    freed = before - allocated(setting)
    began = time.monotonic()
    back = engine.resume_memory()
    seconds = time.monotonic() - began
    again = answers(engine, [replace(request, id=one.id + "-again") for one, request in zip(
        said, requests(setting, "a"), strict=True)])
    require(all(np.array_equal(one.token_ids, other.token_ids) for one, other in zip(said, again, strict=True)),
            "after release and resume the engine says something else")
    require(not before or is_near(told, freed), f"release_memory says that {told} bytes are free, but {freed} are")
    return {"freed_bytes": freed, "told_bytes": told, "resume_GBps": back / seconds / 1e9}


def tokens_per_s(setting: Setting) -> Figures:
    """The engine's speed at full slots."""
    engine, figures = build_engine(setting, "bfloat16"), {}
    answers(engine, requests(setting, "warm", setting.slots, 1.0))
    for name, temperature in ("greedy", 0.0), ("sampled", 1.0):
        began = time.monotonic()
        said = answers(engine, requests(setting, name, setting.slots, temperature))
        figures[f"{name}_tokens_per_s"] = sum(len(one.token_ids) for one in said) / (time.monotonic() - began)
    require(min(figures.values()) > 0, "no tokens")
    return figures


def weights(setting: Setting) -> Figures:
    """Weights of a trainer reach an engine on the device through shared memory."""
    engine, trainer = build_engine(setting, "bfloat16"), build_trainer(setting, "float32")
    receiver = Receiver(SimpleNamespace(node="here"), setting.directory)  # type: ignore[arg-type]
    seconds = []

    def send(manifest: Any) -> dict[str, str]:
        engine.update_weights(manifest.version, receiver.tensors(manifest))
        return {"rollout[0]": engine.weights_checksum()}

    shared = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=shared) as directory:
        publisher = Publisher(Path(directory), "here", "bfloat16")
        for version in range(4):
            trainer.train_step(items(), policy_gradient, 1.0)
            began = time.monotonic()
            manifest = publisher.publish(version, trainer.named_weights(), True, send)
            seconds.append(time.monotonic() - began)
        publisher.close()
    require(engine.version == 3, f"the engine holds version {engine.version}")
    return {"bytes": manifest.size, "seconds": seconds[-1], "GBps": manifest.size / seconds[-1] / 1e9}


def cuda_ipc(setting: Setting) -> Figures:
    """A tensor on the device is handed to another process without a copy, and both see what either writes."""
    import torch.multiprocessing as mp
    from torch.multiprocessing.reductions import reduce_tensor

    context = mp.get_context("spawn")
    here, there = context.Pipe()
    other = context.Process(target=ipc_peer, args=(there,))
    other.start()
    try:
        tensor = torch.arange(1 << 28, dtype=torch.int32, device=setting.device)
        seconds = []
        for number in range(4):
            tensor[0] = number + 100
            torch.cuda.synchronize()
            began = time.monotonic()
            here.send(reduce_tensor(tensor))
            require(here.poll(60), "the other process does not answer")
            first, last = here.recv()
            seconds.append(time.monotonic() - began)
            require((first, last) == (number + 100, (1 << 28) - 1), f"the other process reads {first} and {last}")
            torch.cuda.synchronize()
            require(int(tensor[1]) == -number - 1, "what the other process wrote is not seen here")
        here.send(None)
        other.join(30)
    finally:
        other.kill()
    copied = torch.empty_like(tensor)
    began = time.monotonic()
    copied.copy_(tensor)
    torch.cuda.synchronize()
    return {"bytes": tensor.numel() * 4, "handover_s": min(seconds[1:]), "device_copy_s": time.monotonic() - began}


def ipc_peer(pipe: Any) -> None:
    """The other process of `cuda_ipc`."""
    number = 0
    while (sent := pipe.recv()) is not None:
        rebuild, arguments = sent
        tensor = rebuild(*arguments)
        number += 1
        tensor[1] = -number
        torch.cuda.synchronize()
        pipe.send((int(tensor[0]), int(tensor[-1])))
        del tensor


def grpo(setting: Setting) -> Figures:
    """The command trains, and reward rises."""
    devices = "cuda:1" if setting.device.startswith("cuda") else "cpu:1"
    with tempfile.TemporaryDirectory() as directory:
        run = subprocess.run(
            [sys.executable, "-m", "rlinf_cli", "train", "--algo", "grpo", "--devices", devices, "--steps", "30",
             "--name", "check"], cwd=directory, capture_output=True, text=True, timeout=LIMIT_S)
        require(run.returncode == 0, f"rlinf train ended with {run.returncode}: {run.stderr.strip().splitlines()[-1:]}")
        return rising(Path(directory, "runs", "check", "metrics.jsonl").read_text())


def rising(metrics: str) -> Figures:
    """First and last rewards of a run."""
    rewards = [json.loads(line)["reward/mean"] for line in metrics.splitlines()]
    first, last = float(np.mean(rewards[:5])), float(np.mean(rewards[-5:]))
    require(last > first + 0.1, f"reward went from {first:.3f} to {last:.3f} in {len(rewards)} steps")
    return {"steps": len(rewards), "first_reward": first, "last_reward": last}


CHECKS: Mapping[str, Callable[[Setting], Figures]] = {
    check.__name__: check for check in (engine_bf16, trainer_bf16, trainer_offload, engine_release, tokens_per_s, weights,
                                        cuda_ipc, grpo)}


# ---- running them ----


def outcome(name: str, check: Callable[[Setting], Figures], setting: Setting) -> dict[str, Any]:
    began = time.monotonic()
    try:
        found: dict[str, Any] = {"ok": True, **check(setting)}
    except Exception as error:  # a check that breaks has failed; the others still run
        text = str(error) if isinstance(error, CheckFailedError) else f"{type(error).__name__}: {error}"
        found = {"ok": False, "why": text}
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    figures = {key: round(value, 4) if isinstance(value, float) else value for key, value in found.items()}
    return {"check": name, "seconds": round(time.monotonic() - began, 1), **figures}


def run_all(setting: Setting, names: Sequence[str], checks: Mapping[str, Callable[[Setting], Figures]] = CHECKS) -> int:
    """The exit code."""
    began, failed = time.monotonic(), []
    for name in names:
        found = outcome(name, checks[name], setting)
        print(json.dumps(found), flush=True)
        failed += [] if found["ok"] else [name]
    print(json.dumps({"gpu_check": "failed" if failed else "passed", "failed": failed, "checks": len(names),
                      "device": described(setting.device), "seconds": round(time.monotonic() - began, 1)}))
    return 1 if failed else 0


def described(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(CHECKS), default=list(CHECKS), metavar="NAME",
                        help=f"of {', '.join(CHECKS)}")
    names = parser.parse_args().only
    if not torch.cuda.is_available():
        print(f"gpu_check: PyTorch {torch.__version__} finds no GPU here, so nothing was checked: run it on a machine with an "
              "NVIDIA GPU and a PyTorch that was built for its CUDA", file=sys.stderr)
        sys.exit(4)
    with tempfile.TemporaryDirectory() as directory:
        save_model(Path(directory))
        sys.exit(run_all(Setting("cuda:0", Path(directory)), names))


if __name__ == "__main__":
    main()
