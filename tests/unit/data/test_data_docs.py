"""The examples of docs/data.md do what the page says."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlinf_cli.config.load import resolve
from rlinf_cli.config.schema import SECTIONS
from rlinf_cli.data.files import ENDINGS
from rlinf_cli.data.jsonl import JsonlDataset
from rlinf_cli.data.layouts import ROLES, Reading
from rlinf_cli.data.mixing import Mixture
from rlinf_cli.data.parquet import HELD
from rlinf_cli.data.rows import Row
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.plugins.references import PARTS, FunctionReward, check_function, load_function
from rlinf_rewards.config import ExactConfig
from rlinf_tasks import register_datasets
from rlinf_tasks.config import CountdownRewardConfig

PAGE = (Path(__file__).parents[3] / "docs" / "data.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+(?: \w+)?)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
INSTALLED = load_plugins(None)
COMMANDS = [line for language, text in BLOCKS if language == "console" for line in text.splitlines()]
KEYS = {f"{section}.{f.name}" for section, kind in SECTIONS.items() for f in fields(kind)}
REWARDS = [(f"reward.{f.name}", f.default) for kind in (ExactConfig, CountdownRewardConfig) for f in fields(kind)]
TASKS = {extension.name: extension.load_config() for extension in register_datasets()}
GENERATORS = [(name, f"data.{f.name}", f) for name, kind in TASKS.items() for f in fields(kind)]
KEYS |= {name for name, _ in REWARDS} | {name for _, name, _ in GENERATORS}


@dataclass
class Example:
    """A data file of the page, the keys it needs, and the first row that it becomes."""

    lines: str
    supervised: bool = False
    keys: dict[str, str] = field(default_factory=dict)
    row: str = ""


def examples() -> list[Example]:
    found: list[Example] = []
    for language, text in BLOCKS:
        if language.startswith("jsonl"):
            found.append(Example(text, language.endswith("sft")))
        elif language == "yaml":
            found[-1].keys = yaml.safe_load(text)["data"]
        elif language == "python" and text.startswith("Row("):
            found[-1].row = text
    return found


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.row[:30])
def test_a_file_becomes_the_row_shown(write: Callable[..., Path], example: Example) -> None:
    data = JsonlDataset(write(*example.lines.splitlines()), Reading(**example.keys, supervised=example.supervised))
    assert data.row(0) == eval(example.row, {"Row": Row})
    assert data.size == len(example.lines.splitlines())


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The page's Python files in the current directory; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    for language, text in BLOCKS:
        if language == "python" and (named := re.match(r"# (\w+\.py)\n", text)):
            Path(named[1]).write_text(text)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@dataclass
class Scored:
    prompt: str
    response: str
    answer: str | None
    columns: dict[str, Any]


@pytest.mark.usefixtures("modules")
@pytest.mark.parametrize(("reference", "expected"), [
    ("my_rewards.py:brevity", 0.5 + 1 / 5),
    ("my_rewards:graded", {"reward": 0.0, "exact": 0.0, "polite": 0.0}),
    ("verl_style.py:compute_score", 1.0),
])
def test_a_function_gives_the_reward(reference: str, expected: Any) -> None:
    sample = Scored("d47=", "is 7", "7", {"level": 2, "data_source": "sums"})
    check_function(reference, sample.columns)
    assert FunctionReward(load_function(reference)).score(sample) == expected


@pytest.mark.usefixtures("modules")
def test_every_reference_on_the_page_can_be_loaded() -> None:
    references = [match[1] for line in COMMANDS if (match := re.search(r"reward\.name=(\S+:\S+)", line))]
    assert len(references) == 3
    for reference in references:
        check_function(reference)


def test_every_key_on_the_page_exists() -> None:
    sections = "|".join(SECTIONS)
    used = set(re.findall(rf"(?:^|[ `])((?:{sections})\.[a-z_]+)[=`]", PAGE))
    assert {"data.prompt_key", "reward.extract", "rollout.prompts", "data.length"} <= used
    assert used <= KEYS


def test_every_key_parameter_and_role_is_on_the_page() -> None:
    needed = {f"data.{f.name}" for f in fields(SECTIONS["data"])} | set(PARTS) | set(ROLES) | set(ENDINGS)
    needed |= {f"`{name}`" for name in TASKS}
    assert [name for name in sorted(needed) if name not in PAGE] == []
    for name, default in REWARDS:
        shown = str(default).lower() if isinstance(default, bool) else default
        assert f"| `{name}` | `{shown}` |" in PAGE


@pytest.mark.parametrize(("task", "name", "key"), GENERATORS, ids=lambda value: value if isinstance(value, str) else "")
def test_the_keys_of_generators_are_in_the_table(task: str, name: str, key: Any) -> None:
    default = key.default if key.default_factory is MISSING else "`, `".join(key.default_factory())
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |") and f"`{task}`" in line]
    assert row.startswith(f"| `{name}` | `{default}` | ")


def test_every_command_on_the_page_resolves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = [line.removeprefix("$ rlinf train ") for line in COMMANDS]
    assert len(commands) > 8
    for command in commands:
        config = resolve([], shlex.split(command), {}, INSTALLED)
        assert config.parts("data")


def test_the_mixture_on_the_page() -> None:
    match = re.search(r"of these three (\d), (\d) and (\d) of every (\d) rows", PAGE)
    assert match is not None
    mixture = Mixture([part.weight for part in resolve(
        [], ["data.name=train.jsonl + 0.5*more.parquet + 0.25*arithmetic"], {}, INSTALLED).parts("data")])
    assert [*mixture.counts, mixture.period] == [int(number) for number in match.groups()]


def test_figures_on_the_page() -> None:
    assert f"up to {HELD >> 20} MB are kept" in PAGE
