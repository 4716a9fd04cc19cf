"""From prompts to token ids, and what ends a response."""

import json
import shutil

import numpy as np
import pytest

from rlinf_cli.errors import UsageError
from rlinf_cli.rl.trajectory import Prompt
from rlinf_cli.workers.prompts import PromptEncoder

EOS = 2
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}={% endif %}"


@pytest.fixture
def directory(tiny, tmp_path):
    """`directory(config, generation, tokenizer)`: tiny:digits with other values in its files."""

    def make(config=None, generation=None, tokenizer=None):
        made = tmp_path / "model"
        shutil.copytree(tiny, made)
        for name, changes in (("config.json", config), ("generation_config.json", generation),
                              ("tokenizer_config.json", tokenizer)):
            if changes is not None:
                path = made / name
                path.write_text(json.dumps({**(json.loads(path.read_text()) if path.exists() else {}), **changes}))
        return made

    return make


def test_text_is_taken_as_it_is(tiny):
    encoder = PromptEncoder(tiny, 8)
    text, ids = encoder.encode(Prompt("0-7", "d47="))
    assert text == "d47="
    assert ids.dtype == np.int32
    assert len(ids) == 4
    assert encoder.tokenizer.decode(ids) == "d47="
    assert encoder.ids("7").tolist() == [ids[2]]


@pytest.mark.parametrize(("text", "count"), [("", 0), ("12345", 5)])
def test_a_prompt_of_a_wrong_length_is_named(tiny, text, count):
    with pytest.raises(UsageError, match=rf"prompt 0-7 has {count} tokens; allowed are 1 to rollout.max_prompt_tokens=4"):
        PromptEncoder(tiny, 4).encode(Prompt("0-7", text))


def test_messages_go_through_the_chat_template(directory):
    encoder = PromptEncoder(directory(tokenizer={"chat_template": TEMPLATE}), 8)
    text, ids = encoder.encode(Prompt("0-7", messages=[{"role": "user", "content": "d47"}]))
    assert text == "d47="
    assert ids.tolist() == encoder.ids("d47=").tolist()


def test_messages_need_a_chat_template(tiny):
    with pytest.raises(UsageError, match=r"the tokenizer of .* has no chat template"):
        PromptEncoder(tiny, 8).encode(Prompt("0-7", messages=[{"role": "user", "content": "hi"}]))


def test_end_tokens_come_from_the_tokenizer_and_both_configurations(directory):
    encoder = PromptEncoder(directory({"eos_token_id": 5}, {"eos_token_id": [7, 8]}), 8)
    (comma,) = encoder.ids(",").tolist()
    assert encoder.stops([","]) == tuple(sorted((EOS, 5, 7, 8, comma)))
    assert encoder.stops() == (EOS, 5, 7, 8)


def test_a_configuration_may_name_none(directory):
    assert PromptEncoder(directory({"eos_token_id": None}), 8).stops() == (EOS,)


def test_a_stop_string_of_several_tokens_is_refused(tiny):
    with pytest.raises(UsageError, match=r"rollout.stop='7=' is 2 tokens .* must be a single token"):
        PromptEncoder(tiny, 8).stops(["7="])


def test_what_is_learned_ends_with_the_tokenizers_own_token(directory, tiny):
    assert PromptEncoder(tiny, 8).end() == EOS
    bare = PromptEncoder(directory({"eos_token_id": None}, {"eos_token_id": [9, 6]}), 8)
    bare.tokenizer.eos_token = None
    assert bare.end() == 6


def test_a_model_that_names_no_end_cannot_learn_one(directory):
    bare = PromptEncoder(directory({"eos_token_id": None}, {"eos_token_id": None}), 8)
    bare.tokenizer.eos_token = None
    with pytest.raises(UsageError, match="names a token that ends a response"):
        bare.end()
