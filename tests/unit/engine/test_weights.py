"""New weights are taken whole or not at all, between two steps, and read back as they were sent."""

import numpy as np
import pytest
import torch

from rlinf_cli.api import Request, Sampling, load_causal_lm
from rlinf_cli.models.checksum import weights_checksum

FAMILIES = [("qwen2", {"tie_word_embeddings": True}), ("qwen3", {"head_dim": 16}), ("llama", {"attention_bias": True}),
            ("gpt_neox", {}), ("gemma2", {"head_dim": 8, "sliding_window": 96})]


@pytest.fixture(params=FAMILIES, ids=lambda family: family[0])
def pair(request, make_model):
    """Directories of two models of one architecture."""
    family, more = request.param
    return make_model(family, **more), make_model(family, seed=1, **more)


def stored(directory):
    """What a trainer publishes: each tensor once, by the name that transformers' modules give it."""
    return {name: parameter.detach() for name, parameter in load_causal_lm(directory, "float32").named_parameters()}


def one(name="a", new=8):
    return Request(name, np.array([5, 6, 7], np.int32), Sampling(new, temperature=0.0))


def test_the_checksum_is_that_of_the_directory(pair, build):
    assert build(pair[0]).weights_checksum() == weights_checksum(stored(pair[0]).items())


def test_an_update_makes_it_another_model(pair, build, run, same):
    first, second = build(pair[0]), build(pair[1])
    before = run(first, [one()])["a"]
    first.update_weights(3, reversed(list(stored(pair[1]).items())))
    assert first.version == 3
    assert first.weights_checksum() == weights_checksum(stored(pair[1]).items())
    after, expected = run(first, [one()])["a"], run(second, [one()])["a"]
    assert after.token_ids.tolist() == expected.token_ids.tolist() != before.token_ids.tolist()
    np.testing.assert_allclose(after.logprobs, expected.logprobs, atol=1e-6)
    assert (after.versions == 3).all()
    assert (before.versions == 0).all()


@pytest.mark.parametrize("damage", ["missing", "left over", "wrong shape"])
def test_what_does_not_fit_is_named_and_the_old_weights_hold(pair, build, run, damage):
    engine = build(pair[0])
    before, checksum = run(engine, [one()])["a"], engine.weights_checksum()
    weights = stored(pair[1])
    name = list(weights)[-1]
    if damage == "missing":
        del weights[name]
    elif damage == "wrong shape":
        weights[name] = torch.zeros(3, 1)
    else:
        name = "lm_head.adapter"
        weights[name] = torch.zeros(2)
    with pytest.raises(ValueError, match=f"{damage}: {name}"):
        engine.update_weights(1, weights.items())
    assert engine.version == 0
    assert engine.weights_checksum() == checksum
    after = run(engine, [one()])["a"]
    assert after.token_ids.tolist() == before.token_ids.tolist()
    assert after.logprobs.tolist() == before.logprobs.tolist()


def test_a_sender_that_breaks_off_leaves_the_old_weights(pair, build):
    def half():
        yield from list(stored(pair[1]).items())[:3]
        raise ConnectionError("gone")

    engine = build(pair[0])
    checksum = engine.weights_checksum()
    with pytest.raises(ConnectionError):
        engine.update_weights(1, half())
    assert (engine.version, engine.weights_checksum()) == (0, checksum)


def test_a_buffer_of_the_sender_can_be_used_again(pair, build):
    def through_one_buffer():
        buffer = torch.empty(max(tensor.numel() for tensor in stored(pair[1]).values()))
        for name, tensor in stored(pair[1]).items():
            view = buffer[: tensor.numel()].view(tensor.shape)
            view.copy_(tensor)
            yield name, view
            buffer.fill_(float("nan"))

    engine = build(pair[0])
    engine.update_weights(1, through_one_buffer())
    assert engine.weights_checksum() == weights_checksum(stored(pair[1]).items())


def test_a_running_request_goes_on_under_the_new_weights(pair, build, run):
    engine = build(pair[0], slots=2)
    alone = run(build(pair[0]), [one(new=20)])["a"]
    engine.submit([one(new=20)])
    for _ in range(4):
        assert engine.collect(timeout=0) == []
    engine.update_weights(7, stored(pair[1]).items())
    done = run(engine)["a"]
    assert done.versions.tolist() == [0] * 5 + [7] * 15
    assert done.token_ids[:5].tolist() == alone.token_ids[:5].tolist()
    assert done.token_ids.tolist() != alone.token_ids.tolist()


def test_a_group_does_not_share_a_prefill_of_older_weights(pair, build, run):
    """A request that starts after an update must not continue keys and values of the old weights."""
    engine = build(pair[0], slots=2)
    engine.submit([one("long", new=40), one("short", new=2), one("late", new=10)])
    assert [done.id for done in engine.collect()] == ["short"]
    engine.update_weights(1, stored(pair[1]).items())
    done = run(engine)
    assert done["late"].token_ids.tolist() == run(build(pair[1]), [one("late", new=10)])["late"].token_ids.tolist()
    assert (done["late"].versions == 1).all()


def test_an_engine_in_bfloat16_takes_float32(make_model, build):
    directory = make_model("qwen2")
    engine = build(directory, dtype="bfloat16")
    engine.update_weights(1, stored(directory).items())
    rounded = {name: tensor.bfloat16() for name, tensor in stored(directory).items()}
    assert engine.weights_checksum() == weights_checksum(rounded.items())
