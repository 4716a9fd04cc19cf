from __future__ import annotations

import pytest

from rlinf_cli.runs.redact import HIDDEN, hide, redact, redact_all, redact_argument

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


def test_a_configuration_is_shown_without_its_secrets(monkeypatch):
    monkeypatch.setenv("TRACKER_TOKEN", "tok-0123456789")
    config = {"log": {"board": {"api_key": "mine", "token": "", "url": "https://tok-0123456789@x", "tags": ["tok-0123456789"]}},
              "rollout": {"max_new_tokens": 7}, "seed": 0}
    assert hide(config) == {
        "log": {"board": {"api_key": HIDDEN, "token": "", "url": "https://${oc.env:TRACKER_TOKEN}@x",
                          "tags": ["${oc.env:TRACKER_TOKEN}"]}},
        "rollout": {"max_new_tokens": 7}, "seed": 0}
