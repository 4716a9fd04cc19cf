"""From rows to the examples of supervised training."""

import numpy as np
import pytest

from rlinf_cli.errors import UsageError
from rlinf_cli.rl.trajectory import Prompt
from rlinf_cli.workers.examples import CHUNK, ExamplesWorker

EOS = 2


@pytest.fixture
def examples(start, configure, tiny):
    return start(ExamplesWorker, configure("algorithm.name=sft", f"model.name={tiny}", "rollout.max_new_tokens=3"))


def test_an_example_is_prompt_response_and_end(examples):
    one = examples.example(Prompt("0-7", "d47=", answer="7", columns={"unit": "m"}, target="07"))
    zero, four, seven = one.response_ids[0], one.prompt_ids[1], one.response_ids[1]
    assert one.prompt_ids[2] == seven
    assert one.response_ids.tolist() == [zero, seven, EOS]
    assert four not in one.response_ids
    assert one.mask.tolist() == [True] * 3
    assert (one.id, one.group_id, one.answer, one.columns, one.finish) == ("0-7/0000", "0-7", "7", {"unit": "m"}, "stop")
    assert (one.prompt, one.response) == ("d47=", "07")
    assert np.isnan(one.reward)
    assert not one.logprobs.any()


def test_the_answer_stands_for_a_response(examples):
    assert examples.example(Prompt("0-7", "d47=", answer="7")).response == "7"
    assert examples.example(Prompt("0-7", "d47=", answer="7", target="")).response_ids.tolist() == [EOS]


def test_a_row_without_a_response_is_named(examples):
    with pytest.raises(UsageError, match=r"row 0-7 has no response to learn: name its column with data\.target_key"):
        examples.example(Prompt("0-7", "d47="))


def test_what_is_too_long_is_left_out_and_counted(examples, queue):
    rows = [Prompt(f"0-{number}", "d47=", target="1" * (number % 4)) for number in range(CHUNK + 6)]
    out = queue()
    result = examples.tokenise(queue(*rows), out)
    expected = [row.id for row in rows if len(row.target) <= 2]
    assert [group[0].id for group in out.items] == [f"{name}/0000" for name in expected]
    assert all(len(group) == 1 for group in out.items)
    assert result.metrics == {"rollout/left_out": len(rows) - len(expected)}


def test_prompts_are_read_as_for_generation(examples):
    with pytest.raises(UsageError, match=r"rollout\.max_prompt_tokens"):
        examples.example(Prompt("0-7", "1" * 50, target="7"))
