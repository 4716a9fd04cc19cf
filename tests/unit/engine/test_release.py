"""Memory that an engine gives back while other roles have its device."""

import gc
import os
from pathlib import Path

import pytest
import torch

from rlinf_cli.api import Adapter, load_causal_lm
from rlinf_cli.models.checksum import weights_checksum
from rlinf_torch.engine import _choice
from rlinf_torch.offloading import give_back

FAMILIES = [("qwen2", {"tie_word_embeddings": True}), ("llama", {}), ("gpt_neox", {})]
STATM = Path("/proc/self/statm")


@pytest.fixture(params=FAMILIES, ids=lambda family: family[0])
def pair(request, make_model):
    """Directories of two models of one architecture."""
    family, more = request.param
    return make_model(family, **more), make_model(family, seed=1, **more)


def stored(directory):
    return {name: parameter.detach() for name, parameter in load_causal_lm(directory, "float32").named_parameters()}


def size(tensors):
    return sum(tensor.nbytes for tensor in tensors.values())


def resident():
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_the_cache_is_freed_and_grows_again(pair, build, run, requests, same):
    engine, untouched = build(pair[0], offload="cache"), build(pair[0])
    first = run(engine, requests(6))
    again = run(untouched, requests(6))
    freed = engine.release_memory()
    # of layers, slots and positions that six requests needed at least: keys and values, float32
    assert freed >= 2 * 2 * 6 * 16 * 2 * 8 * 4
    assert (engine.release_memory(), engine.resume_memory()) == (0, 0)
    same(first, again)
    same(run(engine, requests(7, prefix="b")), run(untouched, requests(7, prefix="b")))


def test_weights_go_to_a_file_and_come_back(pair, build, run, requests, same):
    engine, untouched = build(pair[0], offload="weights"), build(pair[0])
    checksum = engine.weights_checksum()
    weights = size(stored(pair[0]))
    assert engine.release_memory() == weights
    assert engine.weights_checksum() == checksum
    assert engine.release_memory() == 0
    assert (engine.resume_memory(), engine.resume_memory()) == (weights, 0)
    assert engine.weights_checksum() == checksum
    same(run(engine, requests(5)), run(untouched, requests(5)))
    assert engine.release_memory() > weights  # and what the requests have left in the cache


def test_new_weights_come_while_the_old_ones_are_away(pair, build, run, requests, same):
    engine, other = build(pair[0], offload="weights"), build(pair[1])
    run(engine, requests(2))
    engine.release_memory()
    engine.update_weights(1, stored(pair[1]).items())
    assert engine.weights_checksum() == weights_checksum(stored(pair[1]).items())
    with pytest.raises(ValueError, match="missing"):
        engine.update_weights(2, list(stored(pair[0]).items())[1:])
    assert engine.resume_memory() == size(stored(pair[1]))
    assert engine.weights_checksum() == weights_checksum(stored(pair[1]).items())
    same(run(engine, requests(3, prefix="b")), run(other, requests(3, prefix="b")))


@pytest.mark.parametrize("away", ["before", "after", "both"])
def test_an_adapter_moves_with_the_weights(make_model, build, run, requests, same, away):
    directory = make_model("qwen2")
    noise, name = torch.Generator().manual_seed(3), "model.layers.0.self_attn.v_proj.weight"
    shape = stored(directory)[name].shape

    def factors():
        return {f"{name}.lora_A": torch.randn(2, shape[1], generator=noise),
                f"{name}.lora_B": torch.randn(shape[0], 2, generator=noise)}

    first, second = factors(), factors()
    engine, still = build(directory, offload="weights"), build(directory)
    for one in (engine, still):
        one.update_weights(1, first.items(), Adapter(2, 0.5, (name,)))
    if away in ("before", "both"):
        engine.release_memory()
    for one in (engine, still):
        one.update_weights(2, second.items(), Adapter(2, 0.5, (name,)))
    if away in ("after", "both"):
        engine.release_memory()
    assert engine.weights_checksum() == still.weights_checksum() == weights_checksum(second.items())
    engine.resume_memory()
    assert engine.weights_checksum() == still.weights_checksum()
    same(run(engine, requests(4)), run(still, requests(4)))


def test_nothing_is_released_under_a_request(make_model, build, requests):
    engine = build(make_model("qwen2"), offload="weights")
    engine.submit(requests(2))
    with pytest.raises(ValueError, match="2 requests are pending: memory is released once all have been collected"):
        engine.release_memory()
    engine.abort()
    with pytest.raises(ValueError, match="2 requests are pending"):
        engine.release_memory()
    engine.collect()
    assert engine.release_memory() > 0


def test_what_is_chosen():
    cpu, cuda = torch.device("cpu"), torch.device("cuda:0")
    assert [_choice("auto", device) for device in (cpu, cuda)] == ["keep", "weights"]
    assert {_choice(choice, device) for choice in ("keep", "cache") for device in (cpu, cuda)} == {"keep", "cache"}


def test_on_a_cpu_nothing_is_released_unless_asked(make_model, build, run, requests):
    engine = build(make_model("qwen2"))
    run(engine, requests(2))
    assert (engine.release_memory(), engine.resume_memory()) == (0, 0)


def test_weights_that_a_trainer_trains_in_place_stay(make_model, build, run, requests):
    engine = build(make_model("qwen2"), offload="weights")
    own = dict(engine.weights_in_place())
    weights = {name: own.get(name, tensor) for name, tensor in stored(make_model("qwen2")).items()}
    assert engine.update_in_place(1, weights.items()) > 0
    run(engine, requests(2))
    assert engine.release_memory() > 0
    assert engine.release_memory() == 0
    assert engine.weights_in_place().keys() == own.keys()
    assert all(tensor.data_ptr() == own[name].data_ptr() for name, tensor in engine.weights_in_place().items())
    engine.update_weights(2, stored(make_model("qwen2")).items())
    assert engine.release_memory() == size(stored(make_model("qwen2")))
    assert engine.weights_in_place() == {}


@pytest.mark.skipif(not STATM.exists(), reason="reads Linux's account of a process's memory")
def test_resident_memory_falls(make_model, build, run, requests):
    directory = make_model("qwen2", hidden_size=512, intermediate_size=2048, num_hidden_layers=4)
    engine = build(directory, offload="weights")
    run(engine, requests(2))
    weights = size(stored(directory))
    gc.collect()
    give_back(torch.device("cpu"))
    before = resident()
    freed = engine.release_memory()
    assert freed > weights > 40e6
    assert before - resident() > 0.95 * weights
    engine.update_weights(1, stored(directory).items())
    gc.collect()
    give_back(torch.device("cpu"))
    assert before - resident() > 0.9 * weights
    before = resident()
    engine.resume_memory()
    assert resident() - before > 0.9 * weights
