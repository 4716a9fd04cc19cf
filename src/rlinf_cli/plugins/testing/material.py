"""What checks are made with: a model that is small enough for milliseconds, and samples that fit it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlinf_cli.api import Sample

CHARACTERS = "0123456789+-*=?"
PAD, BOS, EOS = range(3)
VOCABULARY = 3 + len(CHARACTERS)
LONGEST = 128

_SIZES: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": LONGEST,
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
}


def make_model(directory: Path, seed: int = 0, **config: Any) -> Path:
    """Write a random Llama and its tokenizer into a new directory, which is returned.

    `config`: keys of the model's configuration that are to be others (`hidden_size=64`). Its distributions are far from
    uniform, so that a wrong token or probability is seen.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **{**_SIZES, **config}))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.15 * torch.randn_like(parameter))
    model.save_pretrained(directory)
    write_tokenizer(directory)
    return directory


def write_tokenizer(directory: Path) -> None:
    """One token a character; `make_samples` is encoded by it."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>"}
    built = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate([*special.values(), *CHARACTERS])}, merges=[]))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special.values()])
    PreTrainedTokenizerFast(tokenizer_object=built, **special).save_pretrained(directory)


def encode(text: str) -> Any:
    """Token ids, int32 [n]."""
    return np.array([3 + CHARACTERS.index(character) for character in text], np.int32)


def make_samples() -> list[Sample]:
    """Three answers to each of four sums: a right one that ends, a wrong one that ends, and one that is cut off at the
    length limit."""
    made = []
    for group, (left, right) in enumerate([(1, 2), (30, 4), (7, 60), (250, 250)]):
        prompt, answer = f"{left}+{right}=", str(left + right)
        for number, (said, ended) in enumerate([(answer, True), (f"{left}", True), (answer * 2, False)]):
            made.append(_sample(f"0-{group}", number, prompt, said, ended, answer))
    return made


def _sample(group: str, number: int, prompt: str, response: str, ended: bool, answer: str) -> Sample:
    ids = np.append(encode(response), np.int32(EOS)) if ended else encode(response)
    noise = np.random.default_rng([len(prompt), len(ids), number])
    return Sample(
        id=f"{group}/{number:04d}",
        group_id=group,
        prompt_ids=encode(prompt),
        response_ids=ids,
        mask=np.ones(len(ids), np.bool_),
        logprobs=-noise.random(len(ids), np.float32),
        versions=np.zeros(len(ids), np.int32),
        finish="stop" if ended else "length",
        prompt=prompt,
        response=response,
        answer=answer,
        columns={"level": len(prompt)},
        reward=float(response == answer),
    )
