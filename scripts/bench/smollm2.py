"""A real pretrained model learns to answer additions in the wanted form: SmolLM2-135M-Instruct by GRPO on the CPU.

    python scripts/bench/smollm2.py [--steps 60]

Writes a GSM8K-layout file of additions, trains through the command line, exports, loads the export in transformers
and asks it. Ratios: `first_reward` (mean of the first 3 steps), `last_reward` (mean of the last 5).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        additions(directory / "additions.jsonl", 500, args.seed)
        began = time.time()
        rlinf(directory, "train", str(RECIPE), "--data", "additions.jsonl", "--name", "bench",
              "--steps", str(args.steps), "--seed", str(args.seed), *args.overrides)
        seconds = time.time() - began
        rows = [json.loads(line) for line in (directory / "runs/bench/metrics.jsonl").read_text().splitlines()]
        rewards = [row["reward/mean"] for row in rows]
        rlinf(directory, "export", "runs/bench", "model")
        answers = ask(directory / "model")
    print(json.dumps({
        "bench": "smollm2",
        "ratios": {"first_reward": round(statistics.mean(rewards[:3]), 3),
                   "last_reward": round(statistics.mean(rewards[-5:]), 3)},
        "raw": {"rewards": [round(reward, 3) for reward in rewards], "seconds": round(seconds, 1), "answers": answers,
                "logp_diff_max": max(row["rollout/logp_diff/max"] for row in rows),
                "step_s": round(statistics.median(row["timing/step_s"] for row in rows), 2)},
    }))


RECIPE = Path(__file__).resolve().parents[2] / "configs" / "grpo-smollm2.yaml"


def additions(path: Path, count: int, seed: int) -> None:
    noise = random.Random(seed)
    with path.open("w") as file:
        for _ in range(count):
            a, b = noise.randrange(1, 10), noise.randrange(1, 10)
            file.write(json.dumps({"question": f"What is {a} + {b}?", "answer": f"{a} + {b} = {a + b}\n#### {a + b}"}) + "\n")


def rlinf(directory: Path, *words: str) -> None:
    subprocess.run([sys.executable, "-m", "rlinf_cli", *words], cwd=directory, check=True, stdout=subprocess.DEVNULL)


def ask(model: Path) -> dict[str, str]:
    """Greedy answers of the exported directory, in transformers alone."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, policy = AutoTokenizer.from_pretrained(model), AutoModelForCausalLM.from_pretrained(model)
    answers = {}
    for question in ("What is 2 + 3?", "What is 7 + 8?", "What is 9 + 4?"):
        words = tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True,
                                              return_tensors="pt", return_dict=True)
        ids = policy.generate(**words, max_new_tokens=16, do_sample=False)
        answers[question] = tokenizer.decode(ids[0][words["input_ids"].shape[1]:], skip_special_tokens=True)
    return answers


if __name__ == "__main__":
    main()
