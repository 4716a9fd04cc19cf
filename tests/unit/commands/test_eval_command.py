"""`rlinf eval`: what is wrong is said before anything starts, and how results are shown."""

from __future__ import annotations

import json
import shutil
import sys
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from rlinf_cli.commands import main
from rlinf_cli.commands.eval import _rows
from rlinf_cli.config.load import resolve
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.rl.success import wilson
from rlinf_cli.runs import eval_session
from rlinf_cli.runs.checkpoints import Checkpoints
from rlinf_cli.runs.directory import RunDirectory
from rlinf_cli.runs.eval_session import EvalSession, Evaluated, open_eval
from rlinf_cli.runs.evaluation import TaskResult
from rlinf_cli.runs.reference import Policy
from rlinf_models.tiny import TinyModel


@pytest.fixture(scope="session")
def plugins():
    return load_plugins(third_party=False)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tiny")
    TinyModel("digits", 0).build(directory)
    return directory


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, plugins, tiny):
    """A directory with a run `a` (a checkpoint of step 3), a run `fresh` without one, and data files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    config = resolve([], ["data.name=digits", "reward.ended=0.1", "reward.timeout_s=7", "eval.k=2", "eval.temperature=0.5"],
                     {}, plugins)
    RunDirectory.create(tmp_path / "runs", "fresh", False, config.to_yaml(), {}).close()
    run = RunDirectory.create(tmp_path / "runs", "a", False, config.to_yaml(), {})
    with Checkpoints(run.checkpoints).write(3, {}) as path:
        shutil.copytree(tiny, path / "model")
    run.close()
    (tmp_path / "good.jsonl").write_text(json.dumps({"prompt": "d47=", "answer": "7"}) + "\n")
    (tmp_path / "unanswered.jsonl").write_text(json.dumps({"prompt": "d47="}) + "\n")
    (tmp_path / "mine.py").write_text("def score(response):\n    return 1.0\n\n\ndef wrong(nothing):\n    return 1.0\n")
    yield tmp_path
    sys.modules.pop("mine", None)


@pytest.fixture
def no_ray(monkeypatch):
    def start(*words):
        raise AssertionError("nothing may start")

    monkeypatch.setattr(eval_session.Cluster, "start", start)


@pytest.mark.parametrize(("words", "code", "said"), [
    (["a", "--data", "unanswered.jsonl"], 2, "reward.name=exact compares with an answer, but unanswered.jsonl has none"),
    (["a", "--data", "digit"], 2, "Did you mean 'digits'"),
    (["a", "--data", "nowhere.jsonl"], 2, "nowhere.jsonl"),
    (["a", "--k", "4", "eval.temperature=0"], 2, "eval.k=4"),
    (["tiny:digits", "--data", "good.jsonl", "--k", "4"], 2, "eval.temperature"),
    (["a", "--k", "0"], 2, "0 is not in the range"),
    (["a", "eval.prompts=0"], 2, "digits has no end"),
    (["a", "eval.succes=1"], 2, "Did you mean 'eval.success'"),
    (["fresh"], 2, "run runs/fresh has no checkpoint yet"),
    (["a@2"], 2, "no checkpoint of step 2"),
    (["nothing"], 2, "no run 'nothing'"),
    (["tiny:digits"], 2, "say what to evaluate tiny:digits on, with --data"),
    (["a", "--reward", "mine.py:wrong"], 2, "wrong"),
    (["a", "--reward", "exakt"], 2, "Did you mean 'exact'"),
    (["a", "--devices", "gpu:2"], 2, "cpu:N"),
    (["a", "--devices", "cuda:400"], 4, "cuda:400"),
    ([], 2, "Missing argument"),
])
def test_wrong_use_is_one_sentence_before_anything_starts(no_ray, words, code, said):
    ended = CliRunner().invoke(main, ["--no-plugins", "eval", *words])
    assert ended.exit_code == code, ended.stderr
    assert ended.stdout == ""
    assert ended.stderr.startswith("Error: ")
    assert said in ended.stderr


class TestConfiguration:
    def opened(self, plugins, name, *overrides, data=None, **flags):
        return open_eval(name, overrides, data, flags, plugins)

    def test_a_run_is_evaluated_as_it_says(self, plugins):
        session = self.opened(plugins, "a")
        assert (session.config.eval.k, session.config.rollout.max_new_tokens) == (2, 3)
        assert session.config.settings("reward").ended == 0.1
        assert set(session.roles) == {"rollout", "reward"}
        assert [task.name for task in session.evaluation.tasks] == ["digits"]

    def test_other_data_leaves_the_run_s_settings(self, plugins):
        session = self.opened(plugins, "a", data="good.jsonl")
        assert [prompt.id for prompt in session.evaluation.prompts()] == ["eval-good-0"]
        assert session.config.rollout.max_new_tokens == 3

    @pytest.mark.parametrize("how", ["flag", "key"])
    def test_another_reward_leaves_out_what_belongs_to_the_run_s(self, plugins, how):
        words, flags = ([], {"reward": "mine.py:score"}) if how == "flag" else (["reward.name=mine.py:score"], {})
        config = self.opened(plugins, "a", *words, **flags).config
        assert (config.reward.name, config.reward.timeout_s) == ("mine.py:score", 7)

    def test_a_model_is_evaluated_under_the_defaults_of_its_data(self, plugins):
        config = self.opened(plugins, "tiny:digits", data="good.jsonl").config
        assert (config.model.name, config.data.name, config.rollout.max_new_tokens) == ("tiny:digits", "good.jsonl", 256)
        config = self.opened(plugins, "tiny:digits", data="digits").config
        assert config.rollout.max_new_tokens == 3  # the preset of digits

    def test_a_supervised_run_has_what_answers(self, plugins):
        session = self.opened(plugins, "tiny:digits", "algorithm.name=sft", data="good.jsonl")
        assert session.config.workflow == "supervised"
        assert set(session.roles) == {"rollout", "reward"}


@pytest.fixture
def evaluated(plugins, sample):
    """Twelve of twenty responses, four to each of five prompts, are right."""
    config = resolve([], ["eval.k=4", "eval.temperature=0.7", "seed=9"], {}, plugins)
    result = TaskResult("sums", 4, [sample(finish="length")] + [sample()] * 19, (4, 4, 3, 1, 0))
    return Evaluated(EvalSession(Policy("smollm2"), config, None, {}, plugins), [result], 2, 1.25)


@pytest.fixture
def sample():
    import numpy as np

    from rlinf_cli.rl.trajectory import Sample

    tokens = np.arange(4, dtype=np.int32)

    def make(finish="stop"):
        return Sample("x/0", "x", tokens, tokens, tokens >= 0, tokens.astype(np.float32), tokens, finish, reward=0.6)

    return make


def test_the_document_has_integers_rates_and_intervals(evaluated):
    document = evaluated.document()
    assert (document["policy"], document["step"], document["k"], document["seed"]) == ("smollm2", None, 4, 9)
    (task,) = document["tasks"]
    assert (task["successes"], task["trials"], task["prompts"]) == (12, 20, 5)
    assert task["mean@4"] == task["pass@1"] == pytest.approx(0.6)
    assert task["pass@4"] == pytest.approx(0.8)
    assert task["pass@2"] == pytest.approx((1 + 1 + 1 + 0.5 + 0) / 5)
    assert task["pass@4_interval"] == list(wilson(0.8, 5))
    low, high = task["mean@4_interval"]
    narrow, wide = wilson(0.6, 20), wilson(0.6, 5)
    assert wide[0] <= low < narrow[0]
    assert narrow[1] < high <= wide[1]
    json.dumps(document, allow_nan=False)


def test_the_table_says_the_same(evaluated, tmp_path):
    rows = dict(_rows(evaluated.document(), tmp_path / "samples.jsonl"))
    assert rows["data"] == "sums, 5 prompts, 4 responses to each (temperature 0.7, seed 9)"
    assert rows["successes"] == "12 of 20"
    assert rows["mean@4"].startswith("0.600  (95 %: 0.")
    assert rows["pass@2"] == "0.700"
    assert rows["length"] == "4.0 tokens, 5 % cut off"
    assert rows["samples"].endswith("samples.jsonl")
    assert rows["time"] == "1.2 s on 2 devices"


def test_one_response_a_prompt_needs_no_pass(evaluated):
    config = SimpleNamespace(**{**vars(evaluated.session.config), "eval": SimpleNamespace(
        k=1, temperature=0.0, max_new_tokens=0, success=1.0)})
    session = SimpleNamespace(policy=Policy("m"), config=config, evaluation=None)
    done = Evaluated(session, [TaskResult("sums", 1, evaluated.results[0].samples[:2], (1, 0))], 1, 1.0)
    names = [name for name, _ in _rows(done.document(), None)]
    assert names == ["policy", "data", "successes", "mean@1", "reward", "length", "time"]
