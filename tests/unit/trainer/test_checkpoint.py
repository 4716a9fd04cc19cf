"""Saving, loading and going on exactly."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from rlinf_cli.api import weights_checksum

KEYS = {"schedule": "cosine", "warmup_steps": 2, "weight_decay": 0.1, "total_steps": 8}


def saved(trainer, directory):
    directory.mkdir()
    trainer.save(directory)
    return directory


@pytest.mark.parametrize("stop", [0, 1, 3])
def test_going_on_after_loading_is_exact(build, samples, make_items, grpo, tmp_path, stop):
    items = make_items(samples)
    straight, first = build(**KEYS), build(**KEYS)
    expected = [straight.train_step(items, grpo.loss, 1.0) for _ in range(5)]
    for _ in range(stop):
        first.train_step(items, grpo.loss, 1.0)
    second = build(**KEYS)
    second.train_step(items, grpo.loss, 1.0)  # what it did before is forgotten
    second.load(saved(first, tmp_path / "c"))
    assert [second.train_step(items, grpo.loss, 1.0) for _ in range(stop, 5)] == expected[stop:]
    assert weights_checksum(second.named_weights()) == weights_checksum(straight.named_weights())
    one, other = (load_file(saved(trainer, tmp_path / name) / "optimizer.safetensors")
                  for name, trainer in (("a", straight), ("b", second)))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_transformers_loads_the_model(build, samples, make_items, grpo, tmp_path):
    from transformers import AutoModelForCausalLM

    trainer = build()
    trainer.train_step(make_items(samples), grpo.loss, 1.0)
    model = AutoModelForCausalLM.from_pretrained(saved(trainer, tmp_path / "c") / "model", dtype=torch.float32)
    for sample, expected in zip(samples, trainer.log_probs(samples, 1.0), strict=True):
        tokens = torch.from_numpy(np.concatenate([sample.prompt_ids, sample.response_ids]).astype(np.int64))
        logits = model(input_ids=tokens[None]).logits[0, len(sample.prompt_ids) - 1 : -1]
        got = torch.log_softmax(logits, -1)[torch.arange(len(expected)), tokens[len(sample.prompt_ids) :]]
        np.testing.assert_allclose(got.detach().numpy(), expected, rtol=3e-7, atol=1e-6)


def test_the_tokenizer_goes_along_even_when_its_source_is_gone(build, make_model, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(make_model(), source)
    files = {"tokenizer.json": b'{"version": "1.0"}', "tokenizer_config.json": b"{}", "merges.txt": b"a b\n",
             "chat_template.jinja": b"{{ messages }}", "special_tokens_map.json": b"{}"}
    for name, content in files.items():
        (source / name).write_bytes(content)
    (source / "notes.md").write_text("not the tokenizer's")
    trainer = build(source)
    shutil.rmtree(source)
    written = saved(trainer, tmp_path / "c") / "model"
    assert {name: (written / name).read_bytes() for name in files} == files
    assert not (written / "notes.md").exists()


def test_nothing_that_can_run_code_is_written(build, samples, make_items, grpo, tmp_path):
    trainer = build()
    trainer.train_step(make_items(samples), grpo.loss, 1.0)
    files = [path for path in saved(trainer, tmp_path / "c").rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".safetensors", ".json"}


def drop(tensors):
    del tensors["model.norm.weight.exp_avg"]


def rename(tensors):
    tensors["model.norm.scale.exp_avg"] = tensors.pop("model.norm.weight.exp_avg")


def reshape(tensors):
    tensors["model.norm.weight.exp_avg"] = torch.zeros(33)


@pytest.mark.parametrize(("change", "named"), [
    (drop, r"missing: model\.norm\.weight\.exp_avg\)"),
    (rename, r"missing: model\.norm\.weight\.exp_avg; left over: model\.norm\.scale\.exp_avg\)"),
    (reshape, r"wrong shape: model\.norm\.weight\.exp_avg \(33,\) instead of \(32,\)\)"),
])
def test_misfits_are_named_and_change_nothing(build, samples, make_items, grpo, tmp_path, change, named):
    trainer = build()
    trainer.train_step(make_items(samples), grpo.loss, 1.0)
    directory = saved(trainer, tmp_path / "c")
    tensors = load_file(directory / "optimizer.safetensors")
    change(tensors)
    save_file(tensors, directory / "optimizer.safetensors")
    trainer.train_step(make_items(samples), grpo.loss, 1.0)
    before = weights_checksum(trainer.named_weights())
    with pytest.raises(ValueError, match=named):
        trainer.load(directory)
    assert weights_checksum(trainer.named_weights()) == before


def test_another_model_does_not_fit(build, make_model, tmp_path):
    small = saved(build(make_model(num_hidden_layers=2)), tmp_path / "c")
    with pytest.raises(ValueError, match=r"does not fit .*missing: model\.layers\.2\..* and 7 more"):
        build().load(small)
    wide = saved(build(make_model(intermediate_size=64)), tmp_path / "d")
    with pytest.raises(ValueError, match=r"wrong shape: .*down_proj\.weight \(32, 64\) instead of \(32, 48\)"):
        build().load(wide)


def test_other_trained_layers_do_not_fit(build, samples, make_items, grpo, tmp_path):
    trainer = build(train_layers=1)
    trainer.train_step(make_items(samples), grpo.loss, 1.0)
    directory = saved(trainer, tmp_path / "c")
    with pytest.raises(ValueError, match="resume with the model and trainer settings of the run that wrote it"):
        build().load(directory)
    build(train_layers=1).load(directory)


def test_a_later_format_is_refused(build, tmp_path):
    directory = saved(build(), tmp_path / "c")
    progress = json.loads((directory / "trainer.json").read_text())
    (directory / "trainer.json").write_text(json.dumps({**progress, "format": 2}))
    with pytest.raises(ValueError, match="has format 2, this version reads format 1"):
        build().load(directory)


def test_buffers_belong_to_the_weights(make_model):
    """Scenario W1: what a model keeps beside its parameters travels and is checked like them."""
    from rlinf_cli.api import load_causal_lm
    from rlinf_torch.policy import named_tensors

    model = load_causal_lm(make_model(), "float32")
    model.model.register_buffer("scale", torch.ones(3))
    model.model.register_buffer("cache", torch.ones(3), persistent=False)
    before = weights_checksum(named_tensors(model))
    names = [name for name, _ in named_tensors(model)]
    assert "model.scale" in names
    assert "model.cache" not in names
    model.model.scale.add_(1)
    assert weights_checksum(named_tensors(model)) != before
