"""The engine says what transformers says: the same greedy tokens, log-probabilities within 2e-6 in float32."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from rlinf_cli.errors import UsageError
from rlinf_torch.decoder_fused import FusedDecoder
from rlinf_torch.decoder_transformers import TransformersDecoder

LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
OWN = {
    "llama": ("llama", {}),
    "llama with biases, tied": ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "llama with one head a group": ("llama", {"num_key_value_heads": 4}),
    "llama 3.1": ("llama", {"rope_parameters": LLAMA3}),
    "llama, linear": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}}),
    "qwen2, tied": ("qwen2", {"tie_word_embeddings": True}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"head_dim": 16}),
}
OTHERS = {
    "gpt_neox": ("gpt_neox", {}),
    "gemma2": ("gemma2", {"head_dim": 8, "sliding_window": 96}),
    "llama, yarn": ("llama", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0,
                                                  "original_max_position_embeddings": 64}}),
}


def compare(directory, done, requests, reference, temperature=1.0, greedy=True, atol=2e-6):
    for request in requests:
        one = done[request.id]
        expected = reference(directory, request.prompt_ids, one.token_ids, temperature)
        if greedy:
            assert one.token_ids.tolist() == expected.argmax(-1).tolist()
        chosen = expected[np.arange(len(one.token_ids)), one.token_ids]
        np.testing.assert_allclose(one.logprobs, chosen, atol=atol, rtol=0)


@pytest.mark.parametrize("family", [*OWN, *OTHERS])
def test_greedy(family, make_model, build, run, requests, reference):
    model_type, more = {**OWN, **OTHERS}[family]
    directory = make_model(model_type, **more)
    engine = build(directory, slots=4)
    assert type(engine._decoder) is (FusedDecoder if family in OWN else TransformersDecoder)
    batch = requests(7, new=[3, 40, 8, 25, 1, 12, 6], temperature=0.0, vocabulary=61)
    compare(directory, run(engine, batch), batch, reference)


@pytest.mark.parametrize("family", ["qwen2", "gpt_neox"])
def test_sampled(family, make_model, build, run, requests, reference):
    directory = make_model(family)
    batch = requests(9, new=20, temperature=1.5, vocabulary=61, seed=4)
    compare(directory, run(build(directory, slots=3), batch), batch, reference, temperature=1.5, greedy=False)


def test_prompts_longer_than_the_cache_has_grown(make_model, build, run, requests, reference):
    directory = make_model("qwen2")
    engine = build(directory, max_sequence=128, slots=4)
    short = requests(2, new=3, temperature=0.0)
    long = requests(3, new=5, temperature=0.0, longest=120, prefix="long")
    assert max(len(request.prompt_ids) for request in long) > 64
    compare(directory, run(engine, short), short, reference)
    compare(directory, run(engine, long), long, reference)


def test_greedy_is_what_generate_says(make_model, build, run, requests):
    from transformers import AutoModelForCausalLM

    directory = make_model("llama")
    model = AutoModelForCausalLM.from_pretrained(directory)
    batch = requests(3, new=16, temperature=0.0, vocabulary=61)
    done = run(build(directory), batch)
    for request in batch:
        ids = torch.from_numpy(request.prompt_ids.astype(np.int64))[None]
        said = model.generate(input_ids=ids, max_new_tokens=16, do_sample=False, eos_token_id=None)
        assert said[0, ids.shape[1] :].tolist() == done[request.id].token_ids.tolist()


def test_an_old_configuration_file(make_model, build, run, requests, reference, tmp_path):
    """`rope_theta` beside `rope_scaling`, as files written before transformers 5 have it."""
    directory = make_model("llama", rope_parameters=LLAMA3)
    config = json.loads((directory / "config.json").read_text())
    rope = config.pop("rope_parameters")
    config |= {"rope_theta": rope.pop("rope_theta"), "rope_scaling": rope}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes((directory / "model.safetensors").read_bytes())
    engine = build(tmp_path)
    assert type(engine._decoder) is FusedDecoder
    batch = requests(3, new=40, temperature=0.0, vocabulary=61)
    compare(directory, run(engine, batch), batch, reference)


def test_stored_copies_of_tied_weights_are_ignored(make_model, build, run, requests, reference, tmp_path):
    directory = make_model("qwen2", tie_word_embeddings=True)
    weights = load_file(directory / "model.safetensors")
    extra = {"lm_head.weight": weights["model.embed_tokens.weight"].clone(),
             "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    save_file({**weights, **extra}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((directory / "config.json").read_text())
    batch = requests(2, temperature=0.0, vocabulary=61)
    compare(directory, run(build(tmp_path), batch), batch, reference)


@pytest.mark.parametrize("family", ["qwen3", "gpt_neox"])
def test_bfloat16_is_near(family, make_model, build, run, requests, reference):
    directory = make_model(family, **OWN.get(family, (None, {}))[1])
    batch = requests(4, new=6, temperature=1.0, vocabulary=61)
    done = run(build(directory, dtype="bfloat16"), batch)
    compare(directory, done, batch, reference, greedy=False, atol=0.3)
    mean = np.concatenate([done[r.id].logprobs - reference(directory, r.prompt_ids, done[r.id].token_ids)[
        np.arange(6), done[r.id].token_ids] for r in batch])
    assert np.abs(mean).mean() < 0.06


def test_incomplete_weights_are_refused(make_model, build, tmp_path):
    directory = make_model("qwen2")
    weights = load_file(directory / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((directory / "config.json").read_text())
    with pytest.raises(UsageError, match=r"missing: model\.norm\.weight"):
        build(tmp_path)


@pytest.mark.parametrize(("family", "more", "reason"), [
    ("mamba", {}, "keeps its past in a LinearAttentionLayer"),
    ("bloom", {"n_layer": 2, "n_head": 4}, "BloomForCausalLM does not take masks and positions"),
    ("mistral", {"sliding_window": 16}, "sees 16 tokens, fewer than the 96"),
])
def test_what_cannot_run_is_refused_with_the_reason(family, more, reason, make_model, build):
    with pytest.raises(UsageError, match=reason):
        build(make_model(family, **more))


def test_a_family_that_ignores_the_mask_is_found_out(make_model, build, monkeypatch):
    from rlinf_torch import transformers_cache

    def ignores_the_mask(model, tokens, positions, mask, cache, keep):
        return transformers_cache.run(model, tokens, positions, torch.zeros_like(mask), cache, keep)

    monkeypatch.setattr("rlinf_torch.decoder_transformers.run", ignores_the_mask)
    with pytest.raises(UsageError, match="the logits of GPTNeoXForCausalLM differ"):
        build(make_model("gpt_neox"))


def test_longer_than_the_model_was_made_for(make_model, build):
    with pytest.raises(UsageError, match=r"may have 129 tokens together, but the model .* was made for 128"):
        build(make_model("qwen2"), max_sequence=129)
