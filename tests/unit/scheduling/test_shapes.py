"""Shapes of models against what their publishers say."""

import pytest

from rlinf_cli.scheduling.shapes import SHAPES, Shape

TINY = Shape("tiny", layers=2, hidden=8, heads=2, kv_heads=1, intermediate=16, vocab=32, head_dim=4)


@pytest.mark.parametrize(("name", "billions"), [
    ("qwen2.5-1.5b", 1.5437), ("qwen2.5-7b", 7.6156), ("qwen2.5-14b", 14.770), ("qwen2.5-32b", 32.764),
    ("qwen3-30b-a3b", 30.532), ("openvla-7b", 7.541)])
def test_parameters_are_the_published_ones(name, billions):
    assert SHAPES[name].parameters / 1e9 == pytest.approx(billions, rel=0.001)


def test_active_parameters_of_experts():
    assert SHAPES["qwen3-30b-a3b"].active_parameters / 1e9 == pytest.approx(3.3, rel=0.02)
    assert SHAPES["qwen2.5-7b"].active_parameters == SHAPES["qwen2.5-7b"].parameters


def test_parameters_counted_by_hand():
    attention = 8 * 8 + 2 * 8 * 4 + 8 * 8
    assert TINY.attention == attention
    assert TINY.parameters == 2 * (attention + 3 * 8 * 16 + 16) + 8 + 2 * 32 * 8


def test_what_a_forward_pass_costs():
    assert TINY.token_flops(0) == 2 * (TINY.parameters - TINY.embedding)
    assert TINY.token_flops(10) - TINY.token_flops(0) == 4 * 2 * 8 * 10
    assert SHAPES["qwen2.5-7b"].token_flops(0) == pytest.approx(2 * 7.07e9, rel=0.01)


def test_a_token_of_a_7b_model_keeps_57_kilobytes():
    assert SHAPES["qwen2.5-7b"].cache_bytes == 57344


class TestWeightsRead:
    def test_dense_ones_are_all_read_whatever_the_batch(self):
        shape = SHAPES["qwen2.5-7b"]
        assert shape.weights_read(1) == shape.weights_read(256) == 2 * (shape.parameters - shape.embedding)

    def test_experts_as_far_as_somebody_needs_them(self):
        shape = SHAPES["qwen3-30b-a3b"]
        assert shape.weights_read(1) == pytest.approx(2 * (shape.active_parameters - shape.embedding), rel=1e-6)
        assert shape.weights_read(16) < shape.weights_read(64)
        assert shape.weights_read(4096) == pytest.approx(2 * (shape.parameters - shape.embedding), rel=1e-6)
