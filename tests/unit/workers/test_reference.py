"""The model that training began with scores samples."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from rlinf_cli.workers.reference import CHUNK, ReferenceWorker


@pytest.fixture(scope="module")
def groups(sample):
    noise = np.random.default_rng(3)

    def one(name, number):
        ids = noise.integers(3, 27, noise.integers(1, 6)).astype(np.int32)
        return sample(name, number, length=len(ids), response_ids=ids, prompt_ids=noise.integers(3, 27, 4).astype(np.int32))

    return [[one(f"0-{group}", number) for number in range(2)] for group in range(CHUNK + 2)]


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_every_sample_gets_its_log_probabilities(start, configure, tiny, queue, groups, temperature):
    reference = start(ReferenceWorker, configure(f"model.name={tiny}", f"rollout.temperature={temperature}"), world=3, rank=2)
    out = queue()
    assert reference.score(queue(*groups), out).chunks > 1
    assert [[one.id for one in group] for group in out.items] == [[one.id for one in group] for group in groups]
    model = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    for one in out.items[0] + out.items[-1]:
        tokens = torch.from_numpy(np.concatenate([one.prompt_ids, one.response_ids]).astype(np.int64))
        with torch.no_grad():
            logits = model(tokens[None]).logits[0, len(one.prompt_ids) - 1 : -1] / temperature
        expected = torch.log_softmax(logits, -1).gather(1, tokens[len(one.prompt_ids) :, None])[:, 0]
        assert one.reference_logprobs.dtype == np.float32
        np.testing.assert_allclose(one.reference_logprobs, expected.numpy(), atol=1e-5)


def test_it_has_no_optimiser(start, configure, tiny):
    assert start(ReferenceWorker, configure(f"model.name={tiny}"))._trainer._optimiser is None
