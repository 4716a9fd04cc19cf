"""A critic: its values are transformers' own, and what it learns does not depend on how a step is computed."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rlinf_cli.api import Ranks, UsageError, ValueItem
from rlinf_cli.models.load import load_value_model
from rlinf_cli.rl.aggregation import token_weights
from rlinf_cli.rl.values import clipped_value_loss
from rlinf_torch.trainer import TorchTrainer
from rlinf_torch.trainer_config import TorchTrainerConfig


@pytest.fixture
def critic(make_model):
    """`critic(model directory, lr=0.0, **keys)`."""

    def make(model=None, lr=0.0, **keys):
        return TorchTrainer.critic(TorchTrainerConfig(**{"lr": 1e-3, **keys}), model or make_model(), "cpu", Ranks(), 10, lr)

    return make


@pytest.fixture(scope="session")
def with_head(make_model, tmp_path_factory):
    """`with_head(type, kind)`: the directory of a model with a random scalar head, for tokens or for whole sequences."""

    def make(model_type="qwen2", kind="TokenClassification"):
        import transformers

        directory = tmp_path_factory.mktemp("head")
        torch.manual_seed(1)
        getattr(transformers, f"AutoModelFor{kind}").from_pretrained(
            make_model(model_type), num_labels=1, dtype=torch.float32).save_pretrained(directory)
        return directory

    return make


@pytest.fixture(scope="session")
def value_items(samples):
    """Of all samples, or the chosen ones: targets that are a function of the token."""

    def make(chosen=samples, aggregation="token-mean"):
        weights = token_weights([sample.mask for sample in chosen], aggregation, 16)
        return [ValueItem(sample, np.zeros(len(sample.mask), np.float32), np.sin(sample.response_ids).astype(np.float32), share)
                for sample, share in zip(chosen, weights, strict=True)]

    return make


def loss(inputs):
    losses, held = clipped_value_loss(inputs.values, inputs.old_values, inputs.targets, 0.0)
    return (inputs.weights * losses).sum(), {"critic/clip_frac": (inputs.weights * held).sum()}


def gradient(trainer, directory):
    """Of the first step, read from AdamW's first moment."""
    directory.mkdir()
    trainer.save(directory)
    moments = load_file(directory / "optimizer.safetensors")
    return torch.cat([moments[name].flatten() for name in sorted(moments) if name.endswith("exp_avg")]) / 0.1


@pytest.mark.parametrize("model_type", ["qwen2", "llama", "gemma"])  # the last has rows of its own for each sample
def test_a_value_is_that_of_the_text_before_the_token(critic, with_head, samples, model_type):
    from transformers import AutoModelForTokenClassification

    directory = with_head(model_type)
    trainer = critic(directory, micro_batch_tokens=40)
    model = AutoModelForTokenClassification.from_pretrained(directory, dtype=torch.float32).eval()
    together = trainer.values(samples)
    for sample, found in zip(samples, together, strict=True):
        tokens = torch.from_numpy(np.concatenate([sample.prompt_ids, sample.response_ids]).astype(np.int64))[None]
        with torch.no_grad():
            expected = model(input_ids=tokens).logits[0, len(sample.prompt_ids) - 1 : -1, 0].numpy()
        np.testing.assert_allclose(found, expected, atol=2e-6)
        np.testing.assert_allclose(trainer.values([sample])[0], expected, atol=2e-6)
    assert np.abs(np.concatenate(together)).max() > 0.01
    assert trainer.values([]) == []


def test_a_language_model_begins_with_values_of_zero(critic, samples):
    trainer = critic()
    assert not np.concatenate(trainer.values(samples)).any()


def test_a_reward_model_brings_its_head(critic, with_head, samples):
    directory = with_head(kind="SequenceClassification")
    trainer = critic(directory)
    head = load_file(directory / "model.safetensors")["score.weight"]
    assert torch.equal(dict(trainer._policy.named_weights())["score.weight"], head)
    assert np.abs(np.concatenate(trainer.values(samples))).max() > 0.01


@pytest.mark.parametrize("aggregation", ["token-mean", "sequence-mean"])
def test_the_gradient_does_not_depend_on_micro_batches(critic, with_head, value_items, tmp_path, aggregation):
    directory = with_head()
    whole = critic(directory, max_grad_norm=1e9)
    expected = whole.train_values(value_items(aggregation=aggregation), loss)
    wanted = gradient(whole, tmp_path / "whole")
    for budget in (40, 1):
        trainer = critic(directory, max_grad_norm=1e9, micro_batch_tokens=budget)
        metrics = trainer.train_values(value_items(aggregation=aggregation), loss)
        assert metrics == pytest.approx(expected, rel=1e-5, abs=1e-7)
        assert metrics["critic/loss"] == pytest.approx(expected["critic/loss"], rel=1e-6)
        found = gradient(trainer, tmp_path / f"{budget}")
        assert float((found - wanted).norm() / wanted.norm()) < 2e-6


def test_the_loss_is_the_mean_over_trained_tokens(critic, value_items, samples):
    metrics = critic().train_values(value_items(), loss)
    targets = np.concatenate([np.sin(sample.response_ids)[sample.mask] for sample in samples])
    assert metrics["critic/loss"] == pytest.approx(float((targets**2).mean() / 2), rel=1e-5)
    assert set(metrics) == {"critic/loss", "critic/clip_frac", "critic/grad_norm", "critic/lr"}


def test_it_learns(critic, value_items):
    trainer = critic(lr=3e-3)
    losses = [trainer.train_values(value_items(), loss) for _ in range(10)]
    assert losses[-1]["critic/loss"] < 0.5 * losses[0]["critic/loss"]
    assert losses[0]["critic/lr"] == 3e-3


def test_its_rate_is_the_trainers_where_it_has_none(critic, value_items):
    assert critic().train_values(value_items(), loss)["critic/lr"] == 1e-3


def test_numbers_that_are_not_finite_leave_it_as_it_was(critic, value_items):
    trainer = critic()
    before = trainer._policy.checksum()
    with pytest.raises(FloatingPointError, match="the loss is nan in optimiser step 1"):
        trainer.train_values(value_items(), lambda inputs: (loss(inputs)[0] * torch.nan, {}))
    assert trainer._policy.checksum() == before


def test_what_is_saved_goes_on_exactly_and_is_a_model_of_transformers(critic, value_items, samples, tmp_path):
    from transformers import AutoModelForTokenClassification

    trainer, again = critic(), critic()
    trainer.train_values(value_items(), loss)
    trainer.save(tmp_path)
    again.load(tmp_path)
    saved = again.values(samples)
    assert trainer.train_values(value_items(), loss) == again.train_values(value_items(), loss)
    assert trainer._policy.checksum() == again._policy.checksum()
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "model", dtype=torch.float32)
    assert model.config.num_labels == 1
    for found, expected in zip(critic(tmp_path / "model").values(samples), saved, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_last_layers_are_trained_with_the_head(critic, value_items):
    trainer = critic(train_layers=1)
    names = set(trainer._policy.trained)
    assert {"score.weight", "score.bias"} < names
    assert all(name.startswith(("model.layers.2.", "score.")) for name in names)
    assert trainer.train_values(value_items(), loss)["critic/grad_norm"] > 0


def test_an_adapter_is_the_policys(critic):
    assert "model.embed_tokens.weight" in critic(lora_rank=2)._policy.trained


def test_what_is_missing_below_the_head_is_refused(make_model, tmp_path):
    import shutil

    from safetensors.torch import save_file

    shutil.copytree(make_model(), tmp_path / "m")
    weights = load_file(tmp_path / "m/model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, tmp_path / "m/model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UsageError, match=r"1 tensors are missing or of another shape, first 'model\.norm\.weight'"):
        load_value_model(tmp_path / "m")
