"""Scenario N4 for the loss alone: the parts of an optimiser step add up to the whole, whatever the split."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf_cli.api import LossInputs
from rlinf_grpo import VARIANTS
from rlinf_grpo.algorithm import GRPO
from rlinf_grpo.config import GRPOConfig

CASES = {
    **{name: dict(keys) for name, (_, keys) in VARIANTS.items()},
    "kl": {"kl_coef": 0.1, "kl_estimator": "k2", "entropy_coef": 0.01, "dual_clip": 2.0},
    "importance": {"importance_cap": 1.1, "importance_mode": "mask"},
    "importance of sequences": {"importance_cap": 1.1, "importance_level": "sequence", "ratio_level": "sequence"},
}
FIELDS = ("logprobs", "old_logprobs", "advantages", "weights", "sampled_logprobs", "reference_logprobs", "entropy")


def draw(lengths, seed):
    noise = torch.Generator().manual_seed(seed)

    def near(centre, spread):
        return centre + spread * torch.randn(sum(lengths), generator=noise, dtype=torch.float64)

    old = near(-2, 0.5)
    return {"logprobs": old + near(0, 0.3), "old_logprobs": old, "advantages": near(0, 1),
            "weights": near(0, 1).abs(), "sampled_logprobs": old + near(0, 0.1),
            "reference_logprobs": old + near(0, 0.3), "entropy": near(1, 0.1)}


def run(algorithm, values, lengths):
    """Loss, gradient and metrics of one micro-batch, its samples numbered from 0."""
    parts = {name: values[name].clone() for name in FIELDS}
    parts["logprobs"].requires_grad_()
    owner = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    loss, metrics = algorithm.loss(LossInputs(samples=owner, **parts))
    loss.backward()
    return loss.detach(), parts["logprobs"].grad, metrics


@pytest.mark.parametrize("case", CASES)
@settings(deadline=None, derandomize=True, max_examples=25)
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=8), cuts=st.sets(st.integers(1, 7)),
       seed=st.integers(0, 1000))
def test_parts_add_up(case, lengths, cuts, seed):
    algorithm, values = GRPO(GRPOConfig(**CASES[case])), draw(lengths, seed)
    whole, gradient, metrics = run(algorithm, values, lengths)
    edges = [0, *sorted(cut for cut in cuts if cut < len(lengths)), len(lengths)]
    parts = []
    for first, last in itertools.pairwise(edges):
        tokens = slice(sum(lengths[:first]), sum(lengths[:last]))
        parts.append(run(algorithm, {name: value[tokens] for name, value in values.items()}, lengths[first:last]))
    torch.testing.assert_close(sum(part[0] for part in parts), whole, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(torch.cat([part[1] for part in parts]), gradient, rtol=1e-9, atol=1e-12)
    for name, value in metrics.items():
        torch.testing.assert_close(sum(part[2][name] for part in parts), value, rtol=1e-9, atol=1e-12)
