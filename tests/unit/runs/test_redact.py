from __future__ import annotations

import pytest

from rlinf_cli.runs.redact import redact, redact_all, redact_argument

ENVIRONMENT = {"HF_TOKEN": "hf_abcdefgh", "WANDB_API_KEY": "0123456789", "AWS_SECRET_ACCESS_KEY": "sekrit-sekrit",
               "TOKENIZERS_PARALLELISM": "false-false", "SHORT_TOKEN": "true", "HOME": "/home/somebody"}


def test_values_of_secret_variables_become_references():
    text = "model: org/x\nauth: hf_abcdefgh\nurl: https://u:0123456789@host/sekrit-sekrit\n"
    assert redact(text, ENVIRONMENT) == ("model: org/x\nauth: ${oc.env:HF_TOKEN}\n"
                                         "url: https://u:${oc.env:WANDB_API_KEY}@host/${oc.env:AWS_SECRET_ACCESS_KEY}\n")


def test_other_variables_and_short_values_stay():
    text = "a: true\nb: false-false\nc: /home/somebody"
    assert redact(text, ENVIRONMENT) == text


def test_the_process_environment_is_the_default(monkeypatch):
    monkeypatch.setenv("MY_PASSWORD", "open sesame")
    assert redact("say open sesame") == "say ${oc.env:MY_PASSWORD}"
    assert redact_all({"a": ["open sesame", 3, None], "b": {"c": ("open sesame",)}}) == {
        "a": ["${oc.env:MY_PASSWORD}", 3, None], "b": {"c": ["${oc.env:MY_PASSWORD}"]}}


@pytest.mark.parametrize("argument", [
    "logger.api_key=abc", "hub.token=abc", "--db-password=abc", "x.AWS_SECRET_ACCESS_KEY=a=b"])
def test_arguments_named_like_secrets_are_hidden(argument):
    assert redact_argument(argument) == argument.partition("=")[0] + "=[hidden]"


@pytest.mark.parametrize("argument", ["rollout.max_new_tokens=64", "--algo", "seed=3", "token", "data.prompt_key=q",
                                      "tokenizer=x"])
def test_other_arguments_stay(argument):
    assert redact_argument(argument) == argument
