"""An adapter's factors become the weights that the engine was built with plus it; taken back, nothing of it is left."""

import numpy as np
import pytest
import torch

from rlinf_cli.api import Adapter, Ranks, Request, Sample, Sampling, adapted, load_causal_lm
from rlinf_cli.models.checksum import weights_checksum
from rlinf_torch.engine import TorchEngine
from rlinf_torch.trainer import TorchTrainer
from rlinf_torch.trainer_config import TorchTrainerConfig

FAMILIES = [("qwen2", {"tie_word_embeddings": True}), ("qwen3", {"head_dim": 16}), ("llama", {"attention_bias": True}),
            ("gpt_neox", {})]


@pytest.fixture(params=FAMILIES, ids=lambda family: family[0])
def family(request):
    return request.param


@pytest.fixture
def directory(family, make_model):
    return make_model(family[0], **family[1])


def stored(directory):
    return {name: parameter.detach() for name, parameter in load_causal_lm(directory, "float32").named_parameters()}


def drawn(directory, seed, rank=3, scale=0.5, keep=lambda name: True):
    """An adapter of the weights of all linear layers, and its factors."""
    noise = torch.Generator().manual_seed(seed)
    weights = {name: tensor for name, tensor in stored(directory).items()
               if tensor.dim() == 2 and "layers" in name and keep(name)}
    factors = {}
    for name, tensor in weights.items():
        factors[f"{name}.lora_A"] = 0.3 * torch.randn(rank, tensor.shape[1], generator=noise)
        factors[f"{name}.lora_B"] = 0.3 * torch.randn(tensor.shape[0], rank, generator=noise)
    return Adapter(rank, scale, tuple(weights)), factors


def merged(directory, adapter, factors):
    weights = stored(directory)
    for name in adapter.targets:
        weights[name] = adapted(weights[name], factors[f"{name}.lora_A"], factors[f"{name}.lora_B"], adapter.scale)
    return weights


def held(engine):
    """Copies of all weights in use, whatever was set last."""
    return {name: place.read().clone() for name, place in engine._decoder.places().items()}


def same_bits(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def one(new=8):
    return Request("a", np.array([5, 6, 7], np.int32), Sampling(new, temperature=0.0))


def test_it_is_the_merged_model(directory, build, run):
    assert TorchEngine.takes_adapters
    engine, whole = build(directory), build(directory)
    adapter, factors = drawn(directory, 0)
    before = run(engine, [one()])["a"]
    engine.update_weights(3, factors.items(), adapter)
    whole.update_weights(3, merged(directory, adapter, factors).items())
    assert engine.version == 3
    assert same_bits(held(engine), held(whole))
    after, expected = run(engine, [one()])["a"], run(whole, [one()])["a"]
    assert after.token_ids.tolist() == expected.token_ids.tolist() != before.token_ids.tolist()
    assert after.logprobs.tolist() == expected.logprobs.tolist()
    assert (after.versions == 3).all()


def test_the_checksum_is_that_of_the_factors_as_they_are_held(directory, build):
    engine = build(directory)
    adapter, factors = drawn(directory, 0)
    engine.update_weights(1, reversed(list(factors.items())), adapter)
    assert engine.weights_checksum() == weights_checksum(factors.items())
    with torch.inference_mode():
        next(iter(engine._held.named()))[1].mul_(2)
    assert engine.weights_checksum() != weights_checksum(factors.items())


def test_nothing_adds_up_over_the_updates(directory, build):
    engine = build(directory)
    (adapter, first), (_, second) = drawn(directory, 0), drawn(directory, 1)
    seen = []
    for version, factors in enumerate((first, second, first, second), 1):
        engine.update_weights(version, factors.items(), adapter)
        seen.append(held(engine))
    assert same_bits(seen[0], seen[2])
    assert same_bits(seen[1], seen[3])
    assert not same_bits(seen[0], seen[1])


def test_an_adapter_of_other_layers_gives_back_those_of_the_one_before(directory, build):
    engine, alone = build(directory), build(directory)
    everything, few = drawn(directory, 0), drawn(directory, 1, rank=2, keep=lambda name: "layers.1" in name)
    engine.update_weights(1, everything[1].items(), everything[0])
    engine.update_weights(2, few[1].items(), few[0])
    alone.update_weights(1, few[1].items(), few[0])
    assert 0 < len(few[0].targets) < len(everything[0].targets)
    assert same_bits(held(engine), held(alone))
    assert same_bits(held(engine), held_whole(build, directory, merged(directory, *few)))


def held_whole(build, directory, weights):
    engine = build(directory)
    engine.update_weights(1, weights.items())
    return held(engine)


def test_after_whole_weights_it_is_put_on_those_that_the_engine_was_built_with(family, directory, make_model, build):
    other = make_model(family[0], seed=1, **family[1])
    adapter, factors = drawn(directory, 0)
    engine = build(directory)
    states = []
    for version, (tensors, chosen) in enumerate(
            [(stored(other), None), (factors, adapter), (stored(other), None), (factors, adapter)], 1):
        engine.update_weights(version, tensors.items(), chosen)
        states.append(held(engine))
        assert engine.weights_checksum() == weights_checksum(tensors.items())
    assert same_bits(states[0], states[2])
    assert same_bits(states[0], held_whole(build, directory, stored(other)))
    assert same_bits(states[1], states[3])
    assert same_bits(states[1], held_whole(build, directory, merged(directory, adapter, factors)))


@pytest.mark.parametrize("damage", ["missing", "left over", "wrong shape"])
def test_what_does_not_fit_is_named_and_the_old_weights_hold(directory, build, damage):
    engine = build(directory)
    adapter, factors = drawn(directory, 0)
    engine.update_weights(1, factors.items(), adapter)
    before, checksum = held(engine), engine.weights_checksum()
    changed = dict(drawn(directory, 1)[1])
    name = list(changed)[-1]
    if damage == "missing":
        del changed[name]
    elif damage == "wrong shape":
        changed[name] = torch.zeros(3, 1)
    else:
        name = "lm_head.weight.lora_A"
        changed[name] = torch.zeros(2)
    with pytest.raises(ValueError, match=f"{damage}: {name}"):
        engine.update_weights(2, changed.items(), adapter)
    assert engine.version == 1
    assert engine.weights_checksum() == checksum
    assert same_bits(held(engine), before)


@pytest.mark.parametrize("target", ["model.layers.9.mlp.up_proj.weight", "model.norm.weight"])
def test_a_target_that_is_no_matrix_of_the_model(make_model, build, target):
    engine = build(make_model("qwen2"))
    with pytest.raises(ValueError, match=f"the adapter changes {target}, which is no matrix of the model"):
        engine.update_weights(1, [], Adapter(2, 1.0, (target,)))


def test_a_running_request_goes_on_under_the_adapter(directory, build, run):
    engine = build(directory, slots=2)
    engine.submit([one(new=20)])
    for _ in range(4):
        assert engine.collect(timeout=0) == []
    adapter, factors = drawn(directory, 0)
    engine.update_weights(7, factors.items(), adapter)
    assert run(engine)["a"].versions.tolist() == [0] * 5 + [7] * 15


def test_in_bfloat16_it_is_rounded_once_and_the_factors_not_at_all(make_model, build):
    directory = make_model("qwen2")
    engine = build(directory, dtype="bfloat16")
    adapter, factors = drawn(directory, 0)
    for version in (1, 2):
        engine.update_weights(version, factors.items(), adapter)
    assert engine.weights_checksum() == weights_checksum(factors.items())
    name = adapter.targets[0]
    base = stored(directory)[name].bfloat16()
    expected = adapted(base, factors[f"{name}.lora_A"], factors[f"{name}.lora_B"], adapter.scale)
    assert torch.equal(held(engine)[name], expected.bfloat16())


def test_trainer_and_engine_agree(directory, build, run, requests):
    """Scenario N1: log-probabilities of the trainer, unmerged, and of the engine, merged."""
    config = TorchTrainerConfig(lora_rank=4, lora_alpha=8.0, lr=1e-2)
    trainer, engine = TorchTrainer(config, directory, "cpu", Ranks(), 4), build(directory)
    noise = torch.Generator().manual_seed(0)
    for name, tensor in trainer.adapter_weights():
        tensor.add_(0.1 * torch.randn(tensor.shape, generator=noise))
        assert name.endswith(("lora_A", "lora_B"))
    batch = requests(6, new=12, temperature=1.3, vocabulary=61, seed=4)
    plain = run(build(directory), batch)
    engine.update_weights(1, trainer.adapter_weights(), trainer.adapter())
    assert engine.weights_checksum() == weights_checksum(trainer.adapter_weights())
    done = run(engine, batch)
    assert any(done[name].token_ids.tolist() != plain[name].token_ids.tolist() for name in done)
    samples = [Sample(request.id, "0", request.prompt_ids, done[request.id].token_ids, np.ones(12, np.bool_),
                      done[request.id].logprobs, done[request.id].versions, "stop") for request in batch]
    for sample, expected in zip(samples, trainer.log_probs(samples, 1.3), strict=True):
        np.testing.assert_allclose(sample.logprobs, expected, atol=1e-5, rtol=0)
