"""Tokens follow the distribution whose log-probabilities are reported."""

import numpy as np
import pytest
import torch

from rlinf_torch.sampling import Knobs, sample

VOCABULARY = 12


def knobs(rows, temperature=1.0, top_k=None, top_p=1.0, min_p=0.0, greedy=False):
    def column(value, dtype):
        return torch.full((rows, 1), value, dtype=dtype)

    cut = top_k is not None or top_p < 1 or min_p > 0
    return Knobs(column(temperature, torch.float32), torch.ones(rows, dtype=torch.bool) if greedy else None,
                 column(top_k or 2**62, torch.int64) if cut else None, column(top_p, torch.float32) if cut else None,
                 column(min_p, torch.float32) if cut else None)


def distribution(logits, temperature=1.0, top_k=VOCABULARY, top_p=1.0, min_p=0.0):
    """The same by the book, one row at a time, in float64."""
    p = np.exp(logits.double().numpy() / temperature)
    p /= p.sum()
    order = np.argsort(-p, kind="stable")
    kept = order[:top_k]
    mass = np.cumsum(p[kept] / p[kept].sum())
    kept = kept[: int(np.searchsorted(mass, top_p)) + 1]
    kept = kept[p[kept] >= min_p * p.max()]
    result = np.zeros_like(p)
    result[kept] = p[kept] / p[kept].sum()
    return result


SETTINGS = [{}, {"temperature": 0.5}, {"temperature": 3.0}, {"top_k": 1}, {"top_k": 4}, {"top_p": 0.7}, {"top_p": 0.01},
            {"min_p": 0.2}, {"top_k": 6, "top_p": 0.8, "min_p": 0.05, "temperature": 1.3}]


@pytest.fixture
def logits():
    return torch.randn(7, VOCABULARY, generator=torch.Generator().manual_seed(3)) * 2


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_inverse_of_the_distribution(logits, settings):
    for row in logits:
        expected = distribution(row, **settings)
        grid = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
        tokens, logprobs = sample(row.expand(4000, -1), knobs(4000, **settings), grid)
        share = np.bincount(tokens.numpy(), minlength=VOCABULARY) / 4000
        np.testing.assert_allclose(share, expected, atol=1 / 4000 + 1e-6)
        np.testing.assert_allclose(logprobs.exp().numpy(), expected[tokens.numpy()], rtol=1e-5)
        assert (np.diff(tokens.numpy()) >= 0).all()


@pytest.mark.parametrize("settings", SETTINGS)
def test_random_draws_pass_a_chi_square_test(logits, settings):
    count, row = 20_000, logits[0]
    expected = distribution(row, **settings)
    noise = torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    tokens, _ = sample(row.expand(count, -1), knobs(count, **settings), noise)
    observed = np.bincount(tokens.numpy(), minlength=VOCABULARY)
    assert (observed[expected == 0] == 0).all()
    possible = expected * count > 5
    # at most 11 degrees of freedom: above 31.3 once in a thousand
    assert (((observed - count * expected)[possible] ** 2) / (count * expected)[possible]).sum() < 31.3


def test_greedy_takes_the_likeliest_and_reports_temperature_one(logits):
    tokens, logprobs = sample(logits, knobs(7, greedy=True), torch.full((7,), 0.999, dtype=torch.float64))
    assert torch.equal(tokens, logits.argmax(-1))
    np.testing.assert_allclose(logprobs, torch.log_softmax(logits, -1).max(-1).values, atol=1e-6)


def test_rows_do_not_disturb_each_other(logits):
    """Rows of different settings together give what each gives alone."""
    noise = torch.linspace(0.01, 0.99, 7, dtype=torch.float64)
    settings = SETTINGS[:7]
    alone = [sample(logits[i : i + 1], knobs(1, **one), noise[i : i + 1]) for i, one in enumerate(settings)]
    each = [{"temperature": 1.0, "top_k": 2**62, "top_p": 1.0, "min_p": 0.0, **one} for one in settings]

    def column(name, dtype):
        return torch.tensor([[one[name]] for one in each], dtype=dtype)

    together = Knobs(column("temperature", torch.float32), None, column("top_k", torch.int64),
                     column("top_p", torch.float32), column("min_p", torch.float32))
    tokens, logprobs = sample(logits, together, noise)
    assert tokens.tolist() == [int(token) for token, _ in alone]
    np.testing.assert_allclose(logprobs, [float(logprob) for _, logprob in alone], atol=1e-6)


@pytest.mark.parametrize("number", [2.0**-49, 1 - 2.0**-49])
def test_a_token_without_mass_is_never_drawn(number):
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, -1.0, -torch.inf]]).repeat(3, 1)
    tokens, logprobs = sample(logits, knobs(3), torch.full((3,), number, dtype=torch.float64))
    assert set(tokens.tolist()) <= {1, 3}
    assert torch.isfinite(logprobs).all()


def test_ties_are_cut_to_exactly_k():
    tokens, logprobs = sample(torch.zeros(100, VOCABULARY), knobs(100, top_k=3),
                              torch.linspace(0.001, 0.999, 100, dtype=torch.float64))
    assert set(tokens.tolist()) == {0, 1, 2}
    np.testing.assert_allclose(logprobs.exp(), 1 / 3, rtol=1e-6)


def test_bfloat16_logits_are_sampled_in_float32(logits):
    low = logits.bfloat16()
    noise = torch.full((7,), 0.4, dtype=torch.float64)
    tokens, logprobs = sample(low, knobs(7), noise)
    expected, exact = sample(low.float(), knobs(7), noise)
    assert torch.equal(tokens, expected)
    assert torch.equal(logprobs, exact)
