"""Train a small reward model for the digits task: which of two answers to a prompt is better.

    python scripts/reward_model.py DIRECTORY [--steps 100] [--seed 0]

A sequence classifier of one label, as `reward.name=model reward.path=DIRECTORY` takes it, begun as `tiny:digits` and trained on
pairs (Bradley and Terry 1952; Ouyang et al., arXiv 2203.02155): loss = -log sigmoid(r(better) - r(worse)). The better answer is
the last digit of the number that the prompt names; the worse one another digit, the right one with something before or after
it, or any text, which may have been cut off before its end. It learns from such pairs only, never the rule itself. Prints the
share of fresh pairs that it puts in the right order.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlinf_cli.models.files import tokenizer_files
from rlinf_cli.models.load import load_tokenizer
from rlinf_cli.models.resolve import resolve_model
from rlinf_cli.plugins.loader import load_plugins

PAIRS, LR = 64, 1e-3
"""Pairs in an optimiser step, and its learning rate."""
FRESH = 512
"""Pairs that it is judged by."""
SYMBOLS = "0123456789+-*=scrd ,?."


def pair(noise: random.Random) -> tuple[tuple[str, bool], tuple[str, bool]]:
    """A prompt with a better answer, and with a worse one; and whether each has ended."""
    number = noise.randrange(10, 100)
    prompt, right = f"d{number}=", str(number % 10)
    wrong = noise.choice([digit for digit in "0123456789" if digit != right])
    anything = "".join(noise.choices(SYMBOLS, k=noise.randrange(0, 4)))
    kinds = [wrong, wrong, right + noise.choice(SYMBOLS), noise.choice(SYMBOLS) + right, anything if anything != right else wrong]
    worse = (noise.choice(kinds), True) if noise.random() < 0.8 else ("".join(noise.choices(SYMBOLS, k=3)), False)
    return (prompt + right, True), (prompt + worse[0], worse[1])


def scores(model: Any, tokenizer: Any, texts: Sequence[tuple[str, bool]]) -> Tensor:
    """Of texts, each with whether it has ended, [B]."""
    ids = [[*tokenizer.encode(text, add_special_tokens=False), *[tokenizer.eos_token_id] * ended] for text, ended in texts]
    longest = max(map(len, ids))
    tokens = torch.tensor([[*one, *[tokenizer.pad_token_id] * (longest - len(one))] for one in ids])
    found: Tensor = model(input_ids=tokens, attention_mask=(tokens != tokenizer.pad_token_id).long()).logits[:, 0]
    return found


def train(directory: Path, steps: int, seed: int) -> float:
    """Write the model; the share of fresh pairs that it puts in the right order."""
    from transformers import AutoModelForSequenceClassification
    from transformers.utils import logging

    logging.set_verbosity_error()
    torch.manual_seed(seed)
    noise = random.Random(seed)
    base = resolve_model("tiny:digits", seed, load_plugins(None))
    tokenizer = load_tokenizer(base)
    model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1, pad_token_id=tokenizer.pad_token_id)
    adam = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)

    def margins(count: int) -> Tensor:
        better, worse = zip(*(pair(noise) for _ in range(count)), strict=True)
        first, second = scores(model, tokenizer, [*better, *worse]).chunk(2)
        return first - second

    for _ in range(steps):
        loss = -torch.nn.functional.logsigmoid(margins(PAIRS)).mean()
        loss.backward()
        adam.step()
        adam.zero_grad()
    model.save_pretrained(directory)
    for file in tokenizer_files(base):
        shutil.copy(file, directory / file.name)
    with torch.no_grad():
        return (margins(FRESH) > 0).double().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps({"directory": str(given.directory), "accuracy": train(given.directory, given.steps, given.seed)}))


if __name__ == "__main__":
    main()
