"""docs/rewards.md: every built-in reward and key with its default, commands that resolve, examples that work."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.config.sections import RewardConfig
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.sandbox.output import MOST
from rlinf_cli.workers.patience import IN_A_ROW, OF_A_GROUP
from rlinf_math import register_rewards as register_math
from rlinf_rewards import register_rewards
from rlinf_rewards.cases import read_cases

PAGE = (Path(__file__).parents[3] / "docs" / "rewards.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [line for language, text in BLOCKS if language == "console" for line in text.splitlines()]
REWARDS = {one.name: one for one in [*register_rewards(), *register_math()]}
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def row(key: str, f: Field[Any]) -> str:
    default = "none" if f.default is MISSING else f"`{str(f.default).lower() if isinstance(f.default, bool) else f.default}`"
    return f"| `{key}` | {'see below' if len(default) > 60 else default} |"


def test_every_reward_is_in_the_table() -> None:
    rows = {found[1] for found in re.finditer(r"^\| `(\w+)` \| [^`]", PAGE, re.MULTILINE)}
    assert rows == set(REWARDS)
    for name in rows - {"code"}:
        needs = re.search(rf"^\| `{name}` \| .*\| (.*)\|$", PAGE, re.MULTILINE)
        assert needs is not None
        assert ("an answer" in needs[1]) == getattr(REWARDS[name].load_config(), "needs_answer", False), name


@pytest.mark.parametrize("name", sorted(set(REWARDS) - {"exact"}))
def test_every_key_is_there_with_its_default(name: str) -> None:
    config = REWARDS[name].load_config()
    assert config is not None
    for f in fields(config):
        assert row(f"reward.{f.name}", f) in SECTIONS[name]
    keys = set(re.findall(r"^\| `reward\.(\w+)` \|", SECTIONS[name], re.MULTILINE))
    assert keys == {f.name for f in fields(config)}


def test_the_keys_of_all_rewards() -> None:
    for f in fields(RewardConfig):
        assert f.name == "name" or row(f"reward.{f.name}", f) in PAGE


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_can_be_typed(command: str, tmp_path: Path) -> None:
    words = shlex.split(command.removeprefix("$ "))
    assert words[:2] == ["rlinf", "train"]
    config = resolve([], words[2:], {}, load_plugins(None))
    assert f"reward.name={config.reward.name}" in words


def test_the_layouts_of_tests_can_be_read() -> None:
    lines = [line for language, text in BLOCKS if language == "jsonl" for line in text.splitlines()]
    cases = [read_cases(json.loads(line)["tests"]) for line in lines]
    assert [len(one) for one in cases] == [2, 2, 2]
    assert cases[1] == cases[2]


def test_the_python_example_works() -> None:
    (code,) = [text for language, text in BLOCKS if language == "python"]
    exec(code, {})


def test_the_numbers_are_those_of_the_code() -> None:
    assert (MOST, OF_A_GROUP, IN_A_ROW) == (1_000_000, 4, 6)
    assert "1 MB in all" in PAGE
    assert "four samples of a prompt" in PAGE
    assert "six samples of several prompts" in PAGE
