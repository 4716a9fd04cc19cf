"""GRPO with the real trainer and a plain sampling loop, no Ray and no engine: the digits task from random weights."""

import numpy as np
import pytest
import torch

from rlinf_cli.api import Ranks, Returns, Sample, TrainItem, load_causal_lm
from rlinf_cli.rl.aggregation import token_weights
from rlinf_models.tiny import TinyModel
from rlinf_torch.trainer import TorchTrainer
from rlinf_torch.trainer_config import TorchTrainerConfig

pytestmark = pytest.mark.learning

PROMPTS, GROUP, MINIBATCHES, LONGEST, END, DIGIT = 32, 16, 4, 3, 2, 3


@torch.no_grad()
def generate(model, prompts, noise):
    """Tokens and log-probabilities [n, LONGEST], each step from the whole sequence."""
    tokens, logprobs = torch.from_numpy(prompts.astype(np.int64)), []
    for _ in range(LONGEST):
        distribution = torch.log_softmax(model(input_ids=tokens, use_cache=False).logits[:, -1], -1)
        drawn = torch.multinomial(distribution.exp(), 1, generator=noise)
        logprobs.append(distribution.gather(1, drawn))
        tokens = torch.cat([tokens, drawn], 1)
    return tokens[:, prompts.shape[1] :].numpy().astype(np.int32), torch.cat(logprobs, 1).numpy()


def rollout(model, step, noise):
    digits = np.random.default_rng(step).integers(0, 10, (PROMPTS, 2))
    prompts = np.column_stack([np.full(PROMPTS, 19), digits + DIGIT, np.full(PROMPTS, 14)])
    prompts = prompts.repeat(GROUP, 0).astype(np.int32)
    samples = []
    for i, (tokens, logprobs) in enumerate(zip(*generate(model, prompts, noise), strict=True)):
        ended = np.flatnonzero(tokens == END)
        size = int(ended[0]) + 1 if len(ended) else LONGEST
        right = size == 2 and tokens[0] == digits[i // GROUP, 1] + DIGIT
        samples.append(Sample(f"{i:04d}", f"{i // GROUP}", prompts[i], tokens[:size], np.ones(size, np.bool_),
                              logprobs[:size], np.full(size, step, np.int32), "stop" if len(ended) else "length",
                              reward=float(right)))
    return samples


def train(trainer, algorithm, samples, step):
    returns = Returns(torch.tensor([one.reward for one in samples]), torch.tensor([int(one.group_id) for one in samples]),
                      torch.tensor([len(one.response_ids) for one in samples]),
                      torch.tensor([one.finish == "length" for one in samples]), LONGEST,
                      torch.from_numpy(np.concatenate([one.logprobs for one in samples])))
    advantages = algorithm.advantages(returns)[0].numpy()
    for part in np.array_split(np.random.default_rng([step, 1]).permutation(len(samples)), MINIBATCHES):
        weights = token_weights([samples[i].mask for i in part], algorithm.aggregation, LONGEST)
        items = [TrainItem(samples[i], advantages[i] * samples[i].mask, share)
                 for i, share in zip(part, weights, strict=True)]
        yield trainer.train_step(items, algorithm.loss, 1.0)


def test_the_last_digit_is_learned(grpo, tmp_path):
    TinyModel("digits", 0).build(tmp_path)
    model = load_causal_lm(tmp_path, "float32")
    trainer = TorchTrainer(TorchTrainerConfig(lr=5e-4, warmup_steps=10), tmp_path, "cpu", Ranks(), 200)
    noise, rewards = torch.Generator().manual_seed(0), []
    while len(rewards) < 80 and np.mean(rewards[-3:] or [0]) < 0.9:
        model.load_state_dict(dict(trainer.named_weights()), strict=False)
        samples = rollout(model, len(rewards), noise)
        rewards.append(sum(one.reward for one in samples) / len(samples))
        first, *_ = train(trainer, grpo, samples, len(rewards))
        assert first["actor/logp_diff_max"] < 1e-5
    assert rewards[0] < 0.1
    assert np.mean(rewards[-3:]) >= 0.9, rewards
