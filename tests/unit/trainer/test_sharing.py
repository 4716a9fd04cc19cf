"""A trainer and an engine in one process with one copy of the weights."""

import numpy as np
import pytest
import torch

from rlinf_cli.api import Adapter, Request, Sampling
from rlinf_cli.contracts.sharing import SharingEngine, SharingTrainer
from rlinf_cli.models.checksum import weights_checksum
from rlinf_torch.engine import TorchEngine
from rlinf_torch.engine_config import TorchEngineConfig

FAMILIES = {"qwen2": {"tie_word_embeddings": True}, "qwen3": {}, "llama": {"attention_bias": True}, "gpt_neox": {}}


def engine_on(directory, **keys):
    return TorchEngine(TorchEngineConfig(**keys), directory, "cpu", 64)


@pytest.fixture(params=FAMILIES)
def model(request, make_model):
    return make_model(request.param, **FAMILIES[request.param])


@pytest.fixture
def pair(model, build):
    """A trainer, and an engine in whose memory it keeps its weights."""
    trainer, engine = build(model), engine_on(model)
    shared = trainer.keep_weights_in(engine.weights_in_place())
    engine.update_in_place(0, trainer.named_weights())
    return trainer, engine, shared


def answer(engine):
    engine.submit([Request("a", np.array([5, 6, 7], np.int32), Sampling(8, temperature=0.0))])
    (completion,) = engine.collect()
    return completion


def size(trainer):
    return sum(tensor.nbytes for _, tensor in trainer.named_weights())


def test_both_offer_it(pair):
    trainer, engine, _ = pair
    assert isinstance(trainer, SharingTrainer)
    assert isinstance(engine, SharingEngine)


def test_most_weights_are_there_once(pair):
    trainer, engine, shared = pair
    own = {tensor.data_ptr() for tensor in engine.weights_in_place().values()}
    there = [tensor for _, tensor in trainer.named_weights() if tensor.data_ptr() in own]
    assert shared == sum(tensor.nbytes for tensor in there) == engine.stats()["shared_bytes"]
    copied = {name for name, tensor in trainer.named_weights() if tensor.data_ptr() not in own}
    # what the engine has in another order, since it rotates pairs of neighbours
    assert all(any(part in name for part in ("q_proj", "k_proj", "q_norm", "k_norm")) for name in copied)
    assert shared > 0.7 * size(trainer)


def test_nothing_has_changed_by_it(pair, model, build, samples):
    trainer, engine, _ = pair
    alone = build(model)
    assert weights_checksum(trainer.named_weights()) == weights_checksum(alone.named_weights()) == engine.weights_checksum()
    for one, other in zip(trainer.log_probs(samples, 1.0), alone.log_probs(samples, 1.0), strict=True):
        assert one.tolist() == other.tolist()
    assert answer(engine).token_ids.tolist() == answer(engine_on(model)).token_ids.tolist()


def test_training_is_the_same_and_reaches_the_engine(pair, model, build, samples, make_items, grpo):
    trainer, engine, _ = pair
    alone = build(model)
    for version in 1, 2:
        made = [one.train_step(make_items(samples), grpo.loss, 1.0) for one in (trainer, alone)]
        assert made[0] == made[1]
        engine.update_in_place(version, trainer.named_weights())
        assert engine.weights_checksum() == weights_checksum(alone.named_weights())
    expected = engine_on(model)
    expected.update_weights(2, alone.named_weights())
    one, other = answer(engine), answer(expected)
    assert (one.token_ids.tolist(), one.logprobs.tolist()) == (other.token_ids.tolist(), other.logprobs.tolist())
    assert engine.version == 2


def test_what_is_shared_stays_when_the_trainer_leaves(model, build, samples, make_items, grpo):
    trainer, engine = build(model, offload="file"), engine_on(model)
    shared = trainer.keep_weights_in(engine.weights_in_place())
    trainer.train_step(make_items(samples), grpo.loss, 1.0)
    engine.update_in_place(1, trainer.named_weights())
    said = answer(engine).token_ids.tolist()
    trainable = size(trainer)
    # two moments of each weight, and the weights that are not shared
    assert trainer.offload() == 2 * trainable + trainable - shared
    assert answer(engine).token_ids.tolist() == said
    assert trainer.onload() == 2 * trainable + trainable - shared
    assert trainer.keep_weights_in(engine.weights_in_place()) == shared
    trainer.train_step(make_items(samples), grpo.loss, 1.0)
    engine.update_in_place(2, trainer.named_weights())
    assert engine.weights_checksum() == weights_checksum(trainer.named_weights())


def test_an_engine_that_took_copies_meanwhile_is_shared_with_again(pair, model, build):
    trainer, engine, shared = pair
    engine.update_weights(1, trainer.named_weights())
    assert engine.update_in_place(2, trainer.named_weights()) == 0
    assert trainer.keep_weights_in(engine.weights_in_place()) == shared
    assert engine.update_in_place(3, trainer.named_weights()) == shared


def test_another_type_is_not_shared_but_copied(model, build):
    trainer, engine = build(model), engine_on(model, dtype="bfloat16")
    assert trainer.keep_weights_in(engine.weights_in_place()) == 0
    assert engine.update_in_place(1, trainer.named_weights()) == 0
    assert engine.weights_checksum() == weights_checksum((name, tensor.bfloat16()) for name, tensor in trainer.named_weights())


def test_what_does_not_fit_leaves_the_engine_as_it_was(pair):
    trainer, engine, _ = pair
    before = engine.weights_checksum()
    weights = {name: tensor + 1 for name, tensor in trainer.named_weights()}
    weights["model.extra"] = torch.zeros(2)
    with pytest.raises(ValueError, match=r"left over: model\.extra"):
        engine.update_in_place(5, weights.items())
    assert (engine.weights_checksum(), engine.version) == (before, 0)


def test_an_adapter_goes_onto_what_the_engine_was_built_with(pair, model):
    trainer, engine, _ = pair
    engine.update_in_place(1, [(name, tensor * 2) for name, tensor in trainer.named_weights()])
    name, weight = next((name, tensor) for name, tensor in trainer.named_weights() if tensor.ndim == 2)
    nothing = {f"{name}.lora_A": torch.zeros(1, weight.shape[1]), f"{name}.lora_B": torch.zeros(weight.shape[0], 1)}
    engine.update_weights(2, nothing.items(), Adapter(1, 1.0, (name,)))
    assert answer(engine).logprobs.tolist() == answer(engine_on(model)).logprobs.tolist()
