"""Log-probabilities are transformers' own, for every padding, split and layout (scenario N1, the trainer's side)."""

import dataclasses

import numpy as np
import pytest
import torch

from rlinf_cli.api import load_causal_lm
from rlinf_torch.logprobs import HEAD_ONLY, TokenScorer
from rlinf_torch.microbatch import micro_batch, plan

TYPES = {
    **{model_type: {"tie_word_embeddings": model_type != "mistral"} for model_type in sorted(HEAD_ONLY)},
    "qwen2 sliding": {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    "granite": {"logits_scaling": 3.0, "embedding_multiplier": 2.0},
    "gemma2": {"final_logit_softcapping": 2.0, "query_pre_attn_scalar": 8, "sliding_window": 4},
}


def chosen(reference, directory, sample, temperature=1.0):
    distribution = reference(directory, sample, temperature)
    return distribution.gather(1, torch.from_numpy(sample.response_ids.astype(np.int64))[:, None])[:, 0].numpy()


@pytest.mark.parametrize("name", TYPES)
def test_they_are_those_of_transformers(make_model, build, samples, reference, name):
    directory = make_model(name.split()[0], **TYPES[name])
    got = build(directory).log_probs(samples, 1.0)
    for sample, logprobs in zip(samples, got, strict=True):
        assert logprobs.dtype == np.float32
        np.testing.assert_allclose(logprobs, chosen(reference, directory, sample), rtol=3e-7, atol=1e-6)


@pytest.mark.parametrize("budget", [1, 16, 40, 100, 16384])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_they_depend_neither_on_the_split_nor_on_the_order(make_model, build, samples, reference, budget, temperature):
    trainer = build(micro_batch_tokens=budget)
    order = np.random.default_rng(budget).permutation(len(samples))
    got = trainer.log_probs([samples[i] for i in order], temperature)
    for i, logprobs in zip(order, got, strict=True):
        expected = chosen(reference, make_model(), samples[i], temperature)
        np.testing.assert_allclose(logprobs, expected, rtol=3e-7, atol=1e-6)


def test_samples_without_a_response_have_none(build, samples):
    empty = dataclasses.replace(samples[0], response_ids=np.empty(0, np.int32), mask=np.empty(0, np.bool_))
    got = build().log_probs([empty, samples[1], empty], 1.0)
    assert [len(part) for part in got] == [0, len(samples[1].response_ids), 0]
    assert build().log_probs([], 1.0) == []


def scored(scorer, samples, needs_entropy, width):
    masks = {id(sample): np.ones(len(sample.response_ids), np.bool_) for sample in samples}
    rows = [[samples[i] for i in row] for batch in plan(samples, 16384, width) for row in batch]
    batch = micro_batch(rows, [masks[id(sample)] for row in rows for sample in row], torch.device("cpu"))
    return batch, *scorer.score(batch, 0.8, needs_entropy)


def gradient(model, value):
    model.zero_grad()
    value.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize("chunk_tokens", [1, 7])
def test_chunks_change_neither_values_nor_gradients(make_model, samples, chunk_tokens):
    model = load_causal_lm(make_model(), "float32")
    whole, pieces = TokenScorer(model), TokenScorer(model, chunk_elements=31 * chunk_tokens)
    results = []
    for scorer in whole, pieces:
        _, logprobs, entropy = scored(scorer, samples, True, width=0)
        slope = torch.linspace(-1, 1, len(logprobs))
        results.append((logprobs, entropy, gradient(model, (slope * logprobs + slope.square() * entropy).sum())))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_chunks_hold_no_logits(make_model, samples):
    """What autograd keeps for the backward pass has no tensor of N by V elements."""
    kept = []

    def largest(chunk_elements):
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
            batch, *_ = scored(TokenScorer(model, chunk_elements), samples, False, width=0)
        return sum(size >= len(batch.targets) * 500 for size in kept)

    model = load_causal_lm(make_model(vocab_size=500, hidden_size=32), "float32")
    assert largest(2**25) > 0
    assert largest(500 * 8) == 0


@pytest.mark.parametrize("width", [0, 32])
def test_entropy_is_exact(make_model, samples, reference, width):
    batch, _, entropy = scored(TokenScorer(load_causal_lm(make_model(), "float32")), samples, False, width)
    assert not entropy.requires_grad
    rows = [samples[i] for rows in plan(samples, 16384, width) for row in rows for i in row]
    expected = torch.cat([torch.special.entr(reference(make_model(), sample, 0.8).exp()).sum(-1) for sample in rows])
    torch.testing.assert_close(entropy, expected, rtol=0, atol=2e-6)
    assert len(batch.targets) == len(expected)


@pytest.mark.parametrize(("model_type", "more", "attention", "width"), [
    ("mistral", {"sliding_window": None}, "sdpa", 32),
    ("mistral", {"sliding_window": 4}, "sdpa", 0),
    ("qwen2", {}, "eager", 0),
    ("granite", {}, "sdpa", 0),
])
def test_rows_are_shared_only_where_our_mask_is_understood(make_model, model_type, more, attention, width):
    model = load_causal_lm(make_model(model_type, **more), "float32")
    model.set_attn_implementation(attention)
    assert TokenScorer(model).sharing_width == width
