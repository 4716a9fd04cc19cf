"""The rollout role's own decisions: what ends a response, and how the samples of a prompt stay together."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from rlinf_cli.contracts.engine import Completion, Sampling
from rlinf_cli.errors import UsageError
from rlinf_cli.rl.trajectory import Prompt
from rlinf_cli.workers.rollout import RolloutWorker, _Group, stop_tokens


class Tokenizer:
    """One token a character."""

    eos_token_id = 2
    chat_template = None

    def __call__(self, text, add_special_tokens):
        assert not add_special_tokens
        return {"input_ids": [ord(letter) for letter in text]}

    def decode(self, ids, skip_special_tokens):
        return "".join(map(chr, ids))


def test_end_tokens_come_from_the_tokenizer_and_both_configurations(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 5}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 8]}))
    assert stop_tokens(tmp_path, Tokenizer(), ["!"]) == (2, 5, 7, 8, ord("!"))


def test_a_configuration_may_name_none(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert stop_tokens(tmp_path, Tokenizer(), []) == (2,)


def test_a_stop_string_of_several_tokens_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"rollout.stop='END' is 3 tokens .* must be a single token"):
        stop_tokens(tmp_path, Tokenizer(), ["END"])


def rollout(world=1, capacity=8, prompts=4, group_size=2):
    worker = RolloutWorker.__new__(RolloutWorker)
    worker._rollout = SimpleNamespace(max_prompt_tokens=4, group_size=group_size, prompts=prompts)
    worker._fair = -(-prompts // world)
    worker._engine = SimpleNamespace(capacity=capacity)
    worker._tokenizer, worker._model = Tokenizer(), "some-model"
    return worker


@pytest.mark.parametrize(("world", "capacity", "most"), [(1, 8, 4), (2, 8, 2), (1, 4, 2), (1, 1, 1), (4, 100, 1)])
def test_a_replica_takes_what_fits_and_no_more_than_its_share(world, capacity, most):
    assert rollout(world, capacity)._most() == most


@pytest.mark.parametrize(("text", "count"), [("", 0), ("12345", 5)])
def test_a_prompt_of_a_wrong_length_is_named(text, count):
    with pytest.raises(UsageError, match=rf"prompt 0-7 has {count} tokens; allowed are 1 to rollout.max_prompt_tokens=4"):
        rollout()._encode(Prompt("0-7", text))


def test_messages_need_a_chat_template():
    with pytest.raises(UsageError, match="some-model has no chat template"):
        rollout()._encode(Prompt("0-7", messages=[{"role": "user", "content": "hi"}]))


def test_a_group_is_complete_with_its_last_sample():
    group = _Group(Prompt("0-7", "d4=", answer="4", columns={"unit": "m"}), "d4=", np.array([1, 2, 3], np.int32), 2)
    requests = group.requests(Sampling(3, seed=1))
    assert [request.id for request in requests] == ["0-7/0000", "0-7/0001"]
    for number, request in enumerate(reversed(requests)):
        assert not group.complete()
        ids = np.array([ord("4"), 2][: 2 - number], np.int32)
        group.add(Completion(request.id, ids, np.zeros(len(ids), np.float32), np.full(len(ids), 6, np.int32), "stop"), "4")
    assert group.complete()
    last = group.samples[-1]
    assert (last.id, last.group_id, last.answer, last.columns, last.response) == ("0-7/0000", "0-7", "4", {"unit": "m"}, "4")
    assert last.mask.tolist() == [True]
    assert last.versions.tolist() == [6]
