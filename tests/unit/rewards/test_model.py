"""A trained reward model: its scores are the classifier's own, in batches, and what it cannot score is counted."""

import json
import shutil

import numpy as np
import pytest
import torch

from rlinf_cli.config.load import check, resolve
from rlinf_cli.errors import UsageError
from rlinf_cli.models.load import load_tokenizer
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.plugins.testing import check_reward
from rlinf_cli.rl.trajectory import Sample
from rlinf_cli.workers.reward_model import RewardModelWorker
from rlinf_models.tiny import TinyModel
from rlinf_rewards.config import ModelRewardConfig
from rlinf_rewards.model import ModelReward

INSTALLED = load_plugins(None)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    directory = tmp_path_factory.mktemp("base")
    TinyModel("digits", 0).build(directory)
    return directory


@pytest.fixture(scope="module")
def judge(base, tmp_path_factory):
    """A random classifier over the tiny model, with the tiny tokenizer."""
    from transformers import AutoModelForSequenceClassification

    directory = tmp_path_factory.mktemp("judge")
    torch.manual_seed(3)
    model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1, pad_token_id=0)
    torch.nn.init.normal_(model.score.weight, std=1.0)
    model.save_pretrained(directory)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(base / name, directory)
    return directory


@pytest.fixture(scope="module")
def encoder(judge, tmp_path_factory):
    """The same of an encoder, which pools its first token."""
    from transformers import BertConfig, BertForSequenceClassification

    directory = tmp_path_factory.mktemp("encoder")
    torch.manual_seed(4)
    BertForSequenceClassification(BertConfig(vocab_size=32, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                                             intermediate_size=32, max_position_embeddings=16, num_labels=1,
                                             initializer_range=0.5)).save_pretrained(directory)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(judge / name, directory)
    return directory


def sample(response, number=0, finish="stop", prompt="d47="):
    count = len(response) + 1
    return Sample(f"a/{number:04d}", "a", np.zeros(4, np.int32), np.zeros(count, np.int32), np.ones(count, np.bool_),
                  np.zeros(count, np.float32), np.zeros(count, np.int32), finish, prompt, response)


SAMPLES = [sample(text, number) for number, text in enumerate(["7", "", "123", "7777777", "d=", "0"])]


@pytest.mark.parametrize("kind", ["judge", "encoder"])
@pytest.mark.parametrize("budget", [16384, 12, 1])
def test_scores_are_the_classifiers_own_however_they_are_batched(kind, budget, request):
    from transformers import AutoModelForSequenceClassification

    path = request.getfixturevalue(kind)
    found = ModelReward(ModelRewardConfig(str(path), batch_tokens=budget), "cpu").score_batch(SAMPLES)
    model = AutoModelForSequenceClassification.from_pretrained(path, dtype=torch.float32).eval()
    tokenizer = load_tokenizer(path)
    for one, score in zip(SAMPLES, found, strict=True):
        ids = [*tokenizer.encode(one.prompt + one.response, add_special_tokens=False), tokenizer.eos_token_id]
        with torch.no_grad():
            expected = model(torch.tensor([ids])).logits.item()
        assert score == pytest.approx(expected, abs=1e-5)
    assert len({round(score, 3) for score in found}) == len(SAMPLES)


def test_an_end_that_is_also_the_padding_counts(judge, tmp_path):
    """Classifiers of transformers would read the token before it."""
    shutil.copytree(judge, tmp_path / "m")
    config = json.loads((judge / "config.json").read_text())
    (tmp_path / "m/config.json").write_text(json.dumps(config | {"pad_token_id": load_tokenizer(judge).eos_token_id}))
    scores = [ModelReward(ModelRewardConfig(str(path)), "cpu").score_batch(SAMPLES) for path in (judge, tmp_path / "m")]
    assert scores[0] == scores[1]


def test_a_response_that_was_cut_off_has_no_end(judge):
    reward = ModelReward(ModelRewardConfig(str(judge)), "cpu")
    ended, cut = reward.score_batch([sample("7"), sample("7", finish="length")])
    assert ended != cut


def test_what_is_too_long_has_no_score(encoder):
    scores = ModelReward(ModelRewardConfig(str(encoder)), "cpu").score_batch([sample("7"), sample("7" * 20, 1)])
    assert np.isfinite(scores[0])
    assert np.isnan(scores[1])


def test_its_memory_on_a_cpu_stays(judge):
    reward = ModelReward(ModelRewardConfig(str(judge)), "cpu")
    assert reward.offload() == reward.onload() == 0


class OfItsPlace(ModelReward):
    def score_batch(self, samples):
        return [float(place) for place in range(len(samples))]


class TooFew(ModelReward):
    def score_batch(self, samples):
        return super().score_batch(samples)[1:]


def test_the_contract(judge):
    config = ModelRewardConfig(str(judge))
    check_reward(ModelReward, config)
    with pytest.raises(AssertionError, match="a reward must depend on the sample only"):
        check_reward(OfItsPlace, config)
    with pytest.raises(AssertionError, match="must give a number for each of"):
        check_reward(TooFew, config)


# ---- the worker ----


class Queue:
    def __init__(self, *items):
        self.items = list(items)

    def leases(self, n, at_least=None):
        from rlinf_cli.flow.channel import Lease

        while self.items:
            taken, self.items = self.items[:n], self.items[n:]
            yield [Lease(item, self, number) for number, item in enumerate(taken)]

    def qsize(self):
        return len(self.items)

    def put(self, item, weight, settles=()):
        self.items.append(item)


@pytest.fixture
def worker():
    def make(*settings):
        made = RewardModelWorker.__new__(RewardModelWorker)
        made.role, made.rank, made.world, made.device = "reward", 0, 1, "cpu"
        made.__init__(resolve([], settings, {}, INSTALLED))
        return made

    return make


def test_the_worker_adds_it_to_what_else_is_named(worker, judge):
    reward, out = worker("reward.name=model + 0.5*length", f"reward.model.path={judge}", "reward.length.target=2"), Queue()
    groups = [[sample("7", 0), sample("77", 1)], [sample("123", 2), sample("", 3)]]
    reward.score(Queue(*groups), out)
    expected = ModelReward(ModelRewardConfig(str(judge)), "cpu").score_batch([one for group in groups for one in group])
    scored = [one for group in out.items for one in group]
    for one, score in zip(scored, expected, strict=True):
        assert one.rewards["model"] == pytest.approx(score, abs=1e-6)
        assert one.reward == pytest.approx(one.rewards["model"] + 0.5 * one.rewards["length"])
    assert not reward._values


def test_what_has_no_score_is_left_out_and_says_so(worker, encoder):
    reward, out = worker("reward.name=model", f"reward.path={encoder}"), Queue()
    reward.score(Queue([sample("7", 0), sample("7" * 20, 1)]), out)
    good, bad = out.items[0]
    assert np.isfinite(good.reward)
    assert np.isnan(bad.reward)
    assert "reward model gave reward=nan, which is not finite" in bad.error


# ---- what is wrong is told before anything starts ----


def problem(*settings):
    with pytest.raises(UsageError) as caught:
        check(resolve([], ["reward.name=model", *settings], {}, INSTALLED))
    return str(caught.value)


def test_a_reward_model_is_checked_before_anything_starts(judge, base, tmp_path):
    check(resolve([], ["reward.name=model", f"reward.path={judge}"], {}, INSTALLED))
    assert "reward.path is not set" in problem()
    assert "is no directory" in problem("reward.path=nowhere")
    assert "holds Qwen2ForCausalLM, which is no sequence classifier" in problem(f"reward.path={base}")
    shutil.copytree(judge, tmp_path / "m")
    config = json.loads((judge / "config.json").read_text())
    (tmp_path / "m/config.json").write_text(json.dumps(config | {"id2label": {"0": "a", "1": "b"}}))
    assert "tells 2 labels apart" in problem(f"reward.path={tmp_path / 'm'}")
    (tmp_path / "m/model.safetensors").unlink()
    assert "has no weights" in problem(f"reward.path={tmp_path / 'm'}")


def test_a_head_that_was_never_trained_is_refused(judge, tmp_path):
    from safetensors.torch import load_file, save_file

    shutil.copytree(judge, tmp_path / "m")
    weights = load_file(tmp_path / "m/model.safetensors")
    del weights["score.weight"]
    save_file(weights, tmp_path / "m/model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UsageError, match="has no trained head that scores texts"):
        ModelReward(ModelRewardConfig(str(tmp_path / "m")), "cpu")
