"""Each family: the tiny models load whole, and engine, trainer and transformers say the same of them (scenario N1)."""

import hashlib
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlinf_cli.api import Ranks, Request, Sample, Sampling
from rlinf_cli.errors import UsageError
from rlinf_cli.models.check import check_directory
from rlinf_cli.models.load import load_causal_lm, load_tokenizer
from rlinf_models.tiny import CHARACTERS, FAMILIES, VARIANTS, TinyModel
from rlinf_torch.engine import TorchEngine
from rlinf_torch.engine_config import TorchEngineConfig
from rlinf_torch.trainer import TorchTrainer
from rlinf_torch.trainer_config import TorchTrainerConfig

PARAMETERS = {"qwen2": 496_128, "qwen3": 594_176, "llama": 499_072, "smollm": 495_616}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """`tiny(variant)`: its directory."""
    made = {}

    def build(variant):
        if variant not in made:
            made[variant] = tmp_path_factory.mktemp(variant)
            TinyModel(variant, 0).build(made[variant])
        return made[variant]

    return build


@pytest.fixture
def sharp(tiny, tmp_path):
    """`sharp(family, **settings)`: a tiny model with larger weights, whose distributions are far from uniform, and biases
    and norms that are no zeros and ones; `settings` of its config.json."""
    def build(family, **settings):
        noise = torch.Generator().manual_seed(1)
        weights = {name: 2.5 * tensor if tensor.dim() == 2 else tensor + 0.2 * torch.randn(tensor.shape, generator=noise)
                   for name, tensor in load_file(tiny(family) / "model.safetensors").items()}
        save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
        config = json.loads((tiny(family) / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps({**config, **settings}))
        return tmp_path

    return build


def digest(directory):
    return hashlib.sha256((directory / "model.safetensors").read_bytes()).hexdigest()


class TestTiny:
    @pytest.mark.parametrize("family", FAMILIES)
    def test_its_weights_are_those_that_transformers_expects(self, tiny, family):
        check_directory(tiny(family))
        model, found = AutoModelForCausalLM.from_pretrained(tiny(family), output_loading_info=True)
        assert not any(found.values()), found
        assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS[family]
        assert (model.generation_config.eos_token_id, model.generation_config.pad_token_id) == (2, 0)

    @pytest.mark.parametrize("family", FAMILIES)
    def test_it_begins_as_transformers_would_begin(self, tiny, family):
        """The same means and spreads as from_config's random weights, and next to uniform predictions."""
        model = load_causal_lm(tiny(family), "float32")
        own = AutoModelForCausalLM.from_config(model.config).state_dict()
        for name, tensor in model.state_dict().items():
            assert tensor.mean().item() == pytest.approx(own[name].mean().item(), abs=2e-3), name
            if tensor.dim() == 2:
                assert tensor.std().item() == pytest.approx(own[name].std().item(), rel=0.05), name
        with torch.no_grad():
            assert model(input_ids=torch.tensor([[22, 7, 10, 16]])).logits[0, -1].std() < 0.5

    def test_digits_are_the_bytes_that_they_always_were(self, tiny):
        assert digest(tiny("digits")) == digest(tiny("qwen2"))
        assert digest(tiny("digits")) == "06afa3462f9f0a303e5c784ee440c8a123c5a60601a579018e8585e2812f4ff3"
        assert {TinyModel(variant, 3).key() for variant in ("", "digits", "qwen2")} == {"tiny-digits-seed3-v1"}

    def test_families_and_seeds_are_models_of_their_own(self, tiny, tmp_path):
        assert len({TinyModel(variant, seed).key() for variant in FAMILIES for seed in (0, 1)}) == 8
        assert len({digest(tiny(variant)) for variant in FAMILIES}) == 4
        for seed in 0, 1:
            (tmp_path / str(seed)).mkdir()
            TinyModel("qwen3", seed).build(tmp_path / str(seed))
        assert digest(tmp_path / "0") == digest(tiny("qwen3")) != digest(tmp_path / "1")

    @pytest.mark.parametrize("family", FAMILIES)
    def test_its_tokenizer_is_the_same_to_everybody(self, tiny, family):
        light, auto = load_tokenizer(tiny(family)), AutoTokenizer.from_pretrained(tiny(family))
        assert light(CHARACTERS)["input_ids"] == auto(CHARACTERS)["input_ids"] == list(range(3, 27))
        assert light.decode(range(3, 27)) == auto.decode(range(3, 27)) == CHARACTERS
        assert len(light) == len(auto) == 27

    def test_unknown_variants_are_told_the_known_ones(self):
        with pytest.raises(UsageError, match=r"there are tiny:digits, tiny:qwen2, tiny:qwen3, tiny:llama, tiny:smollm$"):
            TinyModel("mamba", 0)
        assert list(VARIANTS) == ["digits", "qwen2", "qwen3", "llama", "smollm"]


LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
CASES = {
    **{family: (family, {}) for family in FAMILIES},
    "llama 3.2": ("smollm", {"rope_parameters": LLAMA3}),
    "qwen2, yarn": ("qwen2", {"rope_parameters": YARN}),
    "llama, dynamic, within its length": ("llama", {"rope_parameters": {
        "rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}}),
    # the fused decoder does not know it; it computes what llama does
    "mistral": ("llama", {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": None}),
}


def completions(directory, temperature):
    noise = np.random.default_rng(5)
    engine = TorchEngine(TorchEngineConfig(slots=4), directory, "cpu", 96)
    requests = [Request(str(number), noise.integers(3, 27, noise.integers(1, 30)).astype(np.int32),
                        Sampling(int(noise.integers(1, 50)), temperature=temperature)) for number in range(7)]
    engine.submit(requests)
    done = {}
    while engine.pending():
        done.update((one.id, one) for one in engine.collect())
    return [(request, done[request.id]) for request in requests]


def distribution(model, request, completion):
    tokens = torch.from_numpy(np.concatenate([request.prompt_ids, completion.token_ids]).astype(np.int64))[None]
    with torch.no_grad():
        logits = model(input_ids=tokens, use_cache=False).logits[0, len(request.prompt_ids) - 1 : -1]
    return torch.log_softmax(logits, -1).numpy()


def sample(request, completion):
    count = len(completion.token_ids)
    return Sample(request.id, request.id, request.prompt_ids, completion.token_ids, np.ones(count, np.bool_),
                  completion.logprobs, np.zeros(count, np.int32), completion.finish)


class TestParity:
    @pytest.mark.parametrize("case", CASES)
    def test_engine_and_trainer_say_what_transformers_says(self, sharp, case):
        family, settings = CASES[case]
        directory = sharp(family, **settings)
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
        for request, completion in completions(directory, temperature=0.0):
            expected = distribution(model, request, completion)
            assert completion.token_ids.tolist() == expected.argmax(-1).tolist()
        sampled = completions(directory, temperature=1.0)
        trainer = TorchTrainer(TorchTrainerConfig(lr=1e-3), directory, "cpu", Ranks(), 10)
        scored = trainer.log_probs([sample(*one) for one in sampled], 1.0)
        assert np.concatenate(scored).std() > 0.3
        for (request, completion), trained in zip(sampled, scored, strict=True):
            expected = distribution(model, request, completion)
            chosen = expected[np.arange(len(trained)), completion.token_ids]
            np.testing.assert_allclose(completion.logprobs, chosen, atol=1e-5, rtol=0)
            np.testing.assert_allclose(trained, chosen, atol=1e-5, rtol=0)
            np.testing.assert_allclose(trained, completion.logprobs, atol=1e-5, rtol=0)
