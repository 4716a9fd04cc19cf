from __future__ import annotations

import pytest

from rlinf_cli.errors import UsageError
from rlinf_cli.runs.settings import differences, parse_settings, read_settings, shown

TEXT = """
steps: 5
data:
  name: digits
log:
  loggers: [tensorboard]
  tensorboard:
    flush_s: 3
secret: ${oc.env:TOKEN}
"""


def test_keys_are_dotted_and_values_as_written(tmp_path):
    (tmp_path / "config.yaml").write_text(TEXT)
    assert read_settings(tmp_path / "config.yaml") == {
        "steps": 5, "data.name": "digits", "log.loggers": ["tensorboard"], "log.tensorboard.flush_s": 3,
        "secret": "${oc.env:TOKEN}"}


@pytest.mark.parametrize(("content", "why"), [("a: [", "not YAML"), ("7", "it holds no keys"), ("", "it holds no keys")])
def test_what_is_no_configuration_is_named(tmp_path, content, why):
    (tmp_path / "config.yaml").write_text(content)
    with pytest.raises(UsageError, match=rf"cannot read .*config.yaml: {why}"):
        read_settings(tmp_path / "config.yaml")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read .*config.yaml: no such file or directory"):
        read_settings(tmp_path / "config.yaml")


def test_what_differs_with_both_values():
    before, after = {"a": 1, "b": 2, "c": [1]}, {"a": 1, "b": 3, "d": True}
    assert differences(before, after) == {"b": (2, 3), "c": ([1], None), "d": (None, True)}
    assert differences(parse_settings(TEXT), parse_settings(TEXT)) == {}


def test_values_in_words():
    assert [shown(value) for value in (None, "", True, 0, 0.5, "x", [1])] == ["–", "–", "true", "0", "0.5", "x", "[1]"]
