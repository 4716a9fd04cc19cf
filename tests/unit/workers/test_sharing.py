"""Weights on their way from a trainer to the engine in the same process."""

import logging
from types import SimpleNamespace

import pytest
import torch

from rlinf_cli.contracts.trainer import Ranks
from rlinf_cli.errors import RunError
from rlinf_cli.models.checksum import weights_checksum
from rlinf_cli.workers.engine_share import EngineShare
from rlinf_cli.workers.sharing import Handover, engine_here, offer_engine
from rlinf_torch.engine import TorchEngine
from rlinf_torch.trainer import TorchTrainer


@pytest.fixture
def pair(configure, tiny):
    """`pair("engine.dtype=bfloat16", ...)`: a trainer, an engine, and what brings the weights of one to the other."""

    def make(*arguments):
        config = configure("model.name=tiny:digits", *arguments)
        torch.manual_seed(0)
        trainer = TorchTrainer(config.settings("trainer"), tiny, "cpu", Ranks(), 10)
        engine = TorchEngine(config.settings("engine"), tiny, "cpu", 32)
        return trainer, engine, Handover(config, trainer, EngineShare(engine))

    return make


def move(trainer, by=0.25):
    """As an optimiser step does."""
    with torch.no_grad():
        for parameter in trainer._policy.trained.values():
            parameter.add_(by)


def held(trainer, dtype=torch.float32):
    return weights_checksum((name, tensor.to(dtype)) for name, tensor in trainer.named_weights())


def memory(named):
    return {tensor.data_ptr() for _, tensor in named}


def test_an_engine_is_found_under_its_role_in_this_process_only(pair):
    share = pair()[2]._share
    assert engine_here("some rollout") is None
    offer_engine("some rollout", share)
    assert engine_here("some rollout") is share


def test_trainer_and_engine_have_one_copy(pair, caplog):
    trainer, engine, handover = pair()
    with caplog.at_level(logging.INFO):
        handover.publish(0, changed=False)
        handover.publish(0, changed=False)
    assert len(caplog.messages) == 1
    assert "one copy of 1.8 MB of 2.0 MB of weights" in caplog.text
    assert len(memory(trainer.named_weights()) & memory(engine.weights_in_place().items())) > 10
    move(trainer)
    handover.publish(1, changed=True)
    assert engine.version == 1
    assert engine.weights_checksum() == held(trainer)
    assert engine.stats()["shared_bytes"] > 1.7e6


@pytest.mark.parametrize("arguments", [
    ("rollout.staleness=1", "algorithm.importance_cap=2"), ("trainer.lora_rank=2",), ("engine.dtype=bfloat16",)])
def test_where_they_cannot_the_engine_gets_a_copy(pair, caplog, arguments):
    """With staleness, responses are under way while the trainer changes its weights."""
    trainer, engine, handover = pair(*arguments)
    with caplog.at_level(logging.INFO):
        handover.publish(0, changed=False)
    assert "one copy of 0.0 MB" in caplog.text
    assert engine.stats()["shared_bytes"] == 0
    assert not memory(trainer.named_weights()) & memory(engine.weights_in_place().items())
    before = engine.weights_checksum()
    move(trainer)
    assert engine.weights_checksum() == before
    handover.publish(1, changed=True)
    assert engine.weights_checksum() != before
    assert engine.version == 1


def test_a_step_that_left_the_weights_as_they_were_is_an_error(pair):
    trainer, _, handover = pair()
    handover.publish(0, changed=False)
    with pytest.raises(RunError, match="stepped to version 1, but the weights did not change"):
        handover.publish(1, changed=True)
    move(trainer)
    handover.publish(1, changed=True)


def test_an_engine_with_other_weights_is_an_error(pair, monkeypatch):
    _, engine, handover = pair()
    monkeypatch.setattr(engine, "update_in_place", lambda version, tensors: None)
    engine._held.overwrite([(name, tensor + 1) for name, tensor in engine._held.named()])
    monkeypatch.setattr(handover, "_room", lambda: 1)
    with pytest.raises(RunError, match=r"holds other weights than it was given for version 3 \(checksum"):
        handover.publish(3, changed=False)


def test_a_trainer_of_another_kind_is_served_by_copies(pair, configure):
    trainer, engine, _ = pair()
    plain = SimpleNamespace(adapter=trainer.adapter, named_weights=trainer.named_weights)
    Handover(configure("model.name=tiny:digits"), plain, EngineShare(engine)).publish(2, changed=False)
    assert (engine.version, engine.stats()["shared_bytes"]) == (2, 0)
    assert engine.weights_checksum() == held(trainer)
