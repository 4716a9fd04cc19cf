"""`scripts/bench/weights.py`: what it measures with, and what it makes of the figures."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[3] / "scripts" / "bench" / "weights.py"


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_weights", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_model_has_many_tensors_of_the_size_asked_for(bench, dtype):
    named = bench.model(dtype, 30)
    size = sum(tensor.numel() * tensor.element_size() for _, tensor in named)
    assert 30e6 <= size < 70e6
    assert len(named) >= 9
    assert len({name for name, _ in named}) == len(named)
    assert all(tensor.dtype == dtype and tensor.float().std() > 0.4 for _, tensor in named)


def test_ratios_are_of_the_slower_type_and_medians_of_rounds(bench):
    def one(held, staged, ray):
        found = {}
        for dtype, slower in ("float32", 1), ("bfloat16", 2):
            found |= {f"held_{dtype}_s": held * slower, f"held_limit_{dtype}_s": 0.05, f"staged_{dtype}_s": staged * slower,
                      f"staged_limit_{dtype}_s": 0.05, f"torch_{dtype}_s": staged * slower,
                      f"torch_limit_{dtype}_s": 0.1, f"ray_{dtype}_s": ray}
        return found

    found = bench.report([one(0.1, 0.2, 0.4), one(9, 9, 9), one(0.1, 0.2, 0.4)], {"tokens_per_s": 10.0, "hidden": 0.75})
    assert found["bench"] == "weights"
    assert found["ratios"] == {"memcpy": 0.25, "memcpy_torch": 0.25, "memcpy_staged": 0.125, "ray": 2.0, "hidden": 0.75}
    assert found["raw"]["held_float32_s"] == 0.1
    assert found["raw"]["tokens_per_s"] == 10.0
