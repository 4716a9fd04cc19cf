"""Small random models of several types, engines on them, and what transformers itself says."""

import json

import numpy as np
import pytest
import torch

from rlinf_cli.api import Request, Sampling
from rlinf_models.tiny import TinyModel
from rlinf_torch.engine import TorchEngine
from rlinf_torch.engine_config import TorchEngineConfig

VOCABULARY = 61
SMALL = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
         "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def make_model(tmp_path_factory):
    """`make_model(type, seed, **configuration)`: the directory of a random model, far from uniform."""
    from transformers import AutoConfig, AutoModelForCausalLM

    made = {}

    def make(model_type, seed=0, **more):
        name = f"{model_type}-{seed}-{json.dumps(more, sort_keys=True)}"
        if name not in made:
            torch.manual_seed(seed)
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **{**SMALL, **more}))
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(0.15 * torch.randn_like(parameter))
            made[name] = tmp_path_factory.mktemp(model_type)
            model.save_pretrained(made[name])
        return made[name]

    return make


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The directory of `tiny:digits`, its weights made larger so that its distributions are far from uniform."""
    from safetensors.torch import load_file, save_file

    directory = tmp_path_factory.mktemp("tiny")
    TinyModel("digits", 0).build(directory)
    weights = load_file(directory / "model.safetensors")
    larger = {name: 2.5 * tensor if tensor.dim() == 2 else tensor for name, tensor in weights.items()}
    save_file(larger, directory / "model.safetensors", metadata={"format": "pt"})
    return directory


@pytest.fixture
def build():
    """`build(directory, max_sequence, **keys)`: an engine."""
    return lambda directory, max_sequence=96, **keys: TorchEngine(TorchEngineConfig(**keys), directory, "cpu",
                                                                  max_sequence)


@pytest.fixture(scope="session")
def run():
    """`run(engine, requests)`: all completions by id."""

    def all_of(engine, requests=()):
        engine.submit(list(requests))
        done = {}
        while engine.pending():
            done.update((one.id, one) for one in engine.collect())
        return done

    return all_of


@pytest.fixture(scope="session")
def requests():
    """`requests(count, new, **sampling)`: of unequal prompts; `new` is a number of tokens or one a request."""

    def make(count, new=8, vocabulary=27, prefix="", longest=12, **sampling):
        noise = np.random.default_rng(count)
        news = [new] * count if isinstance(new, int) else new
        return [Request(f"{prefix}{number}", noise.integers(3, vocabulary, noise.integers(1, longest)).astype(np.int32),
                        Sampling(news[number], **sampling)) for number in range(count)]

    return make


@pytest.fixture(scope="session")
def reference():
    """`reference(directory, prompt, response)`: log-softmax of transformers' logits at each response token, [n, V]."""
    from transformers import AutoModelForCausalLM

    loaded = {}

    def compute(directory, prompt_ids, token_ids, temperature=1.0):
        if directory not in loaded:
            loaded[directory] = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
        tokens = torch.from_numpy(np.concatenate([prompt_ids, token_ids]).astype(np.int64))[None]
        with torch.no_grad():
            logits = loaded[directory](input_ids=tokens, use_cache=False).logits[0, len(prompt_ids) - 1 : -1]
        return torch.log_softmax(logits.float() / temperature, -1).numpy()

    return compute


@pytest.fixture(scope="session")
def same():
    """`same(one, other)`: whether two sets of completions say the same (float32 sums differ with the batch's size)."""

    def compare(one, other):
        assert one.keys() == other.keys()
        for name, completion in one.items():
            assert completion.token_ids.tolist() == other[name].token_ids.tolist(), name
            assert completion.finish == other[name].finish
            np.testing.assert_allclose(completion.logprobs, other[name].logprobs, rtol=1e-6, atol=1e-6)

    return compare
