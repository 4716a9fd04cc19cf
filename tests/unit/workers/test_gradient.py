"""Scenario N4: the gradient of a step does not depend on micro-batches or ranks, whatever the algorithm."""

import importlib.util
import pickle
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from rlinf_cli.contracts.trainer import Ranks

SCRIPT = Path(__file__).with_name("gradient.py")
MIXED = ("algorithm.clip_low=0.2", "algorithm.clip_high=0.3")
REFERENCE = "algorithm.kl_coef=0.1"

CASES = {
    "token-mean": ("algorithm.aggregation=token-mean",),
    "sequence-mean": ("algorithm.aggregation=sequence-mean",),
    "sequence-sum": ("algorithm.aggregation=sequence-sum",),
    "gspo": ("algorithm.name=gspo", *MIXED),
    "reinforce++": ("algorithm.name=reinforce++", REFERENCE),
    "rloo": ("algorithm.name=rloo", REFERENCE),
    "kl-in-loss": (REFERENCE, "algorithm.kl_in=loss", "algorithm.entropy_coef=0.1"),
    "dapo": ("algorithm.name=dapo",),
    "sft": ("algorithm.name=sft",),
}
WHOLE, HALVES, SINGLE = 10**6, 44, 1


def load_script():
    spec = importlib.util.spec_from_file_location("gradient", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


script = load_script()


@pytest.fixture(scope="module")
def cases():
    return {name: ["rollout.max_new_tokens=16", "algorithm.minibatches=1", *settings] for name, settings in CASES.items()}


@pytest.fixture(scope="module")
def samples(sample, tiny):
    """Eight of two prompts, of unequal lengths, with tokens that are not trained."""
    noise = np.random.default_rng(5)
    made = []
    for number in range(8):
        length = int(noise.integers(2, 16))
        made.append(sample(f"0-{number // 4}", number, float(noise.random()), length, masked=number % 3 == 1,
                           prompt_ids=np.full(3 + number // 4, 5 + number // 4, np.int32),
                           response_ids=noise.integers(3, 27, length).astype(np.int32)))
    for one, logprobs in zip(made, script.build(tiny, Ranks(), WHOLE).log_probs(made, 1.0), strict=True):
        one.logprobs = logprobs + np.float32(0.1) * noise.standard_normal(len(logprobs), np.float32)
        one.reference_logprobs = logprobs + np.float32(0.3) * noise.standard_normal(len(logprobs), np.float32)
    return made


@pytest.fixture(scope="module")
def two_ranks(run_two_ranks, tmp_path_factory, tiny, samples, cases):
    """Where two processes that train together have left the gradients."""
    out = tmp_path_factory.mktemp("ranks")
    (out / "job").write_bytes(pickle.dumps((tiny, samples, cases)))
    run_two_ranks(SCRIPT, out / "job", out)
    return out


def distance(one, other):
    return float((one - other).norm() / other.norm())


@pytest.mark.parametrize("case", CASES)
def test_the_gradient_depends_on_neither_micro_batches_nor_ranks(two_ranks, tiny, samples, cases, tmp_path, case):
    found = {budget: script.gradient(script.build(tiny, Ranks(), budget), samples, cases[case], 0, 1, tmp_path / str(budget))
             for budget in (WHOLE, HALVES, SINGLE)}
    expected, metrics, sizes = found[WHOLE]
    assert sizes == [8]
    assert 1 < len(found[HALVES][2]) < 8
    assert found[SINGLE][2] == [1] * 8
    assert expected.norm() > 1e-3
    for other, measured, _ in found.values():
        assert distance(other, expected) < 1e-6
        assert measured == pytest.approx(metrics, rel=1e-5, abs=1e-6)
    assert distance(load_file(two_ranks / f"{case}.safetensors")["gradient"], expected) < 1e-6


def test_the_cases_differ(two_ranks):
    gradients = [load_file(two_ranks / f"{case}.safetensors")["gradient"] for case in CASES if case != "dapo"]
    assert all(distance(one, other) > 1e-3 for number, one in enumerate(gradients) for other in gradients[:number])
