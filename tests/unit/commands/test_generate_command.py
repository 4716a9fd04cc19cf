"""`rlinf generate`, with a small model that is trained on nothing."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from rlinf_cli.commands import main


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    import torch

    torch.set_num_threads(1)


def generate(*words, **more):
    return CliRunner().invoke(main, ["--no-plugins", "generate", *map(str, words)], **more)


def answers(*words, **more):
    """What it says, as JSON has it."""
    ended = generate(*words, "--json", **more)
    assert ended.exit_code == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.fixture(scope="module")
def chat(tmp_path_factory):
    """The directory of a model with a chat template."""
    from rlinf_models.tiny import TinyModel

    directory = tmp_path_factory.mktemp("chat")
    TinyModel("digits", 0).build(directory)
    (directory / "chat_template.jinja").write_text("{% for m in messages %}{{ m['content'] }}={% endfor %}")
    return directory


def test_each_prompt_is_answered_in_order():
    document = answers("tiny:digits", "--prompt", "d47=", "--prompt", "d11=", "--max-new-tokens", 5)
    assert (document["policy"], document["seed"]) == ("tiny:digits", 0)
    assert [(one["prompt"], one["number"]) for one in document["answers"]] == [("d47=", 0), ("d11=", 0)]
    assert all(one["tokens"] <= 5 for one in document["answers"])


def test_without_json_an_answer_follows_its_prompt():
    ended = generate("tiny:digits", "--prompt", "d47=", "--max-new-tokens", 3)
    assert ended.exit_code == 0
    assert ended.stdout.startswith("> d47=\n")
    assert ended.stdout.endswith("[cut off after 3 tokens]\n\n")


def test_lines_of_the_standard_input_are_prompts():
    document = answers("tiny:digits", "--max-new-tokens", 2, input="d47=\n\nd11=\n")
    assert [one["prompt"] for one in document["answers"]] == ["d47=", "d11="]


def test_several_responses_are_sampled_and_repeatable():
    words = ["tiny:digits", "--prompt", "d47=", "--n", 6, "--max-new-tokens", 8]
    document = answers(*words)
    assert [one["number"] for one in document["answers"]] == list(range(6))
    assert len({one["text"] for one in document["answers"]}) > 1
    assert answers(*words) == document
    assert answers(*words, "--seed", 1)["answers"] != document["answers"]


def test_an_answer_does_not_depend_on_what_else_is_asked():
    alone = answers("tiny:digits", "--prompt", "d47=", "--temperature", 1, "--max-new-tokens", 8)["answers"]
    among = answers("tiny:digits", "--prompt", "d47=", "--prompt", "d1=", "--temperature", 1, "--max-new-tokens", 8)["answers"]
    assert alone == among[:1]


def test_the_first_rows_of_data():
    document = answers("tiny:digits", "--data", "digits", "--rows", 3, "--max-new-tokens", 2)
    assert [len(one["prompt"]) for one in document["answers"]] == [4, 4, 4]


class TestTemplate:
    def encoded(self, chat, *words):
        """The text that reaches the engine."""
        from rlinf_cli.config.load import resolve
        from rlinf_cli.plugins.loader import load_plugins
        from rlinf_cli.runs.generation import Asked, Generator
        from rlinf_cli.runs.reference import find_policy

        plugins = load_plugins(third_party=False)
        config = resolve([], [], {"model": str(chat)}, plugins)
        generator = Generator(find_policy(str(chat), plugins), config, Asked(**dict(words)), plugins)
        (prompt,) = generator.prompts(["d47"])
        return generator._encoder.encode(prompt)[0]

    def test_is_used_where_there_is_one(self, chat):
        assert self.encoded(chat) == "d47="

    def test_is_left_out_on_request(self, chat):
        assert self.encoded(chat, ("raw", True)) == "d47"

    def test_takes_a_system_message(self, chat):
        assert self.encoded(chat, ("system", "d1")) == "d1=d47="


def test_the_longest_response_is_what_the_model_has_room_for(chat):
    refused = generate(chat, "--prompt", "d47", "--max-new-tokens", 2048)
    assert refused.exit_code == 2
    assert "made for 2048 tokens, of which the longest prompt takes 4: --max-new-tokens can be at most 2044" in refused.stderr


def test_a_prompt_that_leaves_no_room(chat):
    refused = generate(chat, "--prompt", "d" * 3000)
    assert refused.exit_code == 2
    assert "made for 2048 tokens, of which the longest prompt takes 3001: shorten it" in refused.stderr


@pytest.mark.parametrize(("words", "said"), [
    (["nothing-of-the-kind", "--prompt", "d1="], "no run 'nothing-of-the-kind'"),
    (["tiny:digits", "--prompt", ""], "prompt 1 is empty"),
    (["tiny:digits", "--prompt", "d1=", "--system", "be brief"], "--system needs a chat template"),
    (["tiny:digits", "--prompt", "d1=", "--data", "digits"], "--data brings its own prompts"),
    (["tiny:digits", "--prompt", "d1=", "--n", "2", "--temperature", "0"], "the same response every time"),
    (["tiny:digits", "--data", "nowhere.jsonl"], "nowhere.jsonl"),
    (["tiny:digits", "--prompt", "d1=", "engine.slot=1"], "Did you mean 'engine.slots'"),
    (["tiny:digits", "--prompt", "d1=", "--max-new-tokens", "0"], "0 is not in the range"),
    (["tiny:digits"], "the standard input holds no line"),
])
def test_wrong_use_is_one_sentence_and_exit_code_2(words, said):
    ended = generate(*words)
    assert ended.exit_code == 2
    assert ended.stdout == ""
    assert ended.stderr.startswith("Error: ")
    assert said in ended.stderr


def test_ctrl_c_is_130(monkeypatch):
    from rlinf_cli.runs.generation import Generator

    def interrupted(self, prompts):
        raise KeyboardInterrupt

    monkeypatch.setattr(Generator, "answers", interrupted)
    ended = generate("tiny:digits", "--prompt", "d1=")
    assert ended.exit_code == 130
