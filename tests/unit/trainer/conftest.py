"""Small random models of several types, and samples of unequal lengths that share prompts."""

import numpy as np
import pytest
import torch

from rlinf_cli.api import Ranks, Sample, TrainItem
from rlinf_cli.rl.aggregation import token_weights
from rlinf_grpo.algorithm import GRPO
from rlinf_grpo.config import GRPOConfig
from rlinf_torch.trainer import TorchTrainer
from rlinf_torch.trainer_config import TorchTrainerConfig

VOCABULARY = 31
SMALL = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "head_dim": 8,
         "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def make_model(tmp_path_factory):
    """`make_model(type, seed, **configuration)`: the directory of a random model, far from uniform."""
    from transformers import AutoConfig, AutoModelForCausalLM

    made = {}

    def make(model_type="qwen2", seed=0, **more):
        name = f"{model_type}-{seed}-" + "-".join(f"{key}={value}" for key, value in more.items())
        if name not in made:
            torch.manual_seed(seed)
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **{**SMALL, **more}))
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(0.15 * torch.randn_like(parameter))
            made[name] = tmp_path_factory.mktemp("model")
            model.save_pretrained(made[name])
        return made[name]

    return make


@pytest.fixture
def build(make_model):
    """`build(model directory, total_steps, **keys)`: a trainer."""

    def make(model=None, total_steps=10, **keys):
        config = TorchTrainerConfig(**{"lr": 1e-3, **keys})
        return TorchTrainer(config, model or make_model(), "cpu", Ranks(), total_steps)

    return make


@pytest.fixture(scope="session")
def samples():
    """Eleven samples of four prompts; lengths 1 to 15; some tokens are not trained."""
    noise = np.random.default_rng(7)

    def draw(low, high):
        return noise.integers(3, VOCABULARY, noise.integers(low, high)).astype(np.int32)

    made = []
    for group, size in enumerate((5, 3, 2, 1)):
        prompt = draw(1, 9)
        for number in range(size):
            response = draw(1, 16)
            mask = noise.random(len(response)) < 0.8
            mask[-1] = True
            made.append(Sample(f"{group}/{number}", f"{group}", prompt.copy(), response, mask,
                               -noise.random(len(response), np.float32) * 4, np.zeros(len(response), np.int32), "stop"))
    return made


@pytest.fixture(scope="session")
def make_items():
    """`make_items(samples, aggregation)`: with random advantages, a function of the sample's id."""

    def make(samples, aggregation="token-mean"):
        weights = token_weights([sample.mask for sample in samples], aggregation, 16)
        return [TrainItem(sample, advantage(sample.id) * sample.mask, share)
                for sample, share in zip(samples, weights, strict=True)]

    def advantage(name):
        return np.float32(np.sin(7 * sum(ord(letter) * 31**place for place, letter in enumerate(name))))

    return make


@pytest.fixture(scope="session")
def grpo():
    return GRPO(GRPOConfig())


@pytest.fixture(scope="session")
def reference():
    """`reference(model directory, sample, temperature)`: log-softmax of transformers' own logits [response, V]."""
    from transformers import AutoModelForCausalLM

    loaded = {}

    def compute(directory, sample, temperature=1.0):
        if directory not in loaded:
            loaded[directory] = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
        tokens = torch.from_numpy(np.concatenate([sample.prompt_ids, sample.response_ids]).astype(np.int64))[None]
        with torch.no_grad():
            logits = loaded[directory](input_ids=tokens, use_cache=False).logits[0, len(sample.prompt_ids) - 1 : -1]
        return torch.log_softmax(logits / temperature, -1)

    return compute
