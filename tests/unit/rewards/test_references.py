from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rlinf_cli.errors import UsageError
from rlinf_cli.plugins.references import FunctionReward, check_function, load_function
from rlinf_cli.rl.trajectory import Sample

MakeSample = Callable[..., Sample]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current directory; what is imported from it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    modules = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def refused(reference: str, **rest: Any) -> str:
    """What the user is told: one line."""
    with pytest.raises(UsageError) as caught:
        check_function(reference, **rest)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_module_of_the_current_directory(here: Path, sample: MakeSample) -> None:
    (here / "my_rewards.py").write_text("def length(sample):\n    return len(sample.response)\n")
    assert FunctionReward(load_function("my_rewards:length")).score(sample("abc")) == 3


def test_a_package_and_a_dotted_attribute(here: Path, sample: MakeSample) -> None:
    (here / "pkg").mkdir()
    (here / "pkg" / "__init__.py").touch()
    (here / "pkg" / "scores.py").write_text(
        "class Scores:\n    @staticmethod\n    def half(response):\n        return 0.5\n")
    assert FunctionReward(load_function("pkg.scores:Scores.half")).score(sample("abc")) == 0.5


@pytest.mark.parametrize("absolute", [False, True])
def test_a_file_and_a_module_beside_it(here: Path, sample: MakeSample, absolute: bool) -> None:
    (here / "sub").mkdir()
    (here / "sub" / "half.py").write_text("HALF = 0.5\n")
    (here / "sub" / "my-reward.py").write_text("from half import HALF\n\ndef score(sample):\n    return HALF\n")
    path = here / "sub" / "my-reward.py" if absolute else Path("sub/my-reward.py")
    assert FunctionReward(load_function(f"{path}:score")).score(sample()) == 0.5


def test_two_files_of_one_name(here: Path) -> None:
    for name in ("a", "b"):
        (here / name).mkdir()
        (here / name / "reward.py").write_text(
            f"from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass C:\n    x: int\n"
            f"def score(sample):\n    return '{name}'\n")
    functions = [load_function(f"{name}/reward.py:score") for name in ("a", "b")]
    assert [function(None) for function in functions] == ["a", "b"]


def test_a_local_file_never_replaces_an_installed_module(here: Path) -> None:
    (here / "json.py").write_text("def score(sample):\n    return 0\n")
    (here / "mine.py").write_text("import json\ndef score(sample):\n    return json.loads('1')\n")
    assert load_function("mine:score")(None) == 1
    assert "has no 'score'" in refused("json:score")


@pytest.mark.parametrize("reference", ["", "x", ":f", "m:", "my-rewards:f", ".rewards:f", "a..b:f", "d/mine:f", "1:f"])
def test_what_is_no_reference(here: Path, reference: str) -> None:
    assert refused(reference) == (f"{reference!r} names no reward function; "
                                  "write module:function or path/to/file.py:function")


def test_missing_modules_and_files(here: Path) -> None:
    (here / "my_rewards.py").write_text("")
    assert refused("my_reward:f") == ("no module 'my_reward' for the reward; install it, or run from the directory "
                                      "that holds it; did you mean 'my_rewards'")
    assert refused("nowhere_at_all.rewards:f").startswith("no module 'nowhere_at_all' for the reward; install it")
    assert refused("my_rewards.sub:f").startswith("no module 'my_rewards.sub' for the reward")
    assert refused("my_reward.py:f") == "no file my_reward.py for the reward; did you mean 'my_rewards.py'"
    assert refused("no/such/file.py:f") == "no file no/such/file.py for the reward"


@pytest.mark.parametrize(("source", "message"), [
    ("\nimport numpi\n", "raised ModuleNotFoundError: No module named 'numpi' ({path}, line 2)"),
    ("def f(:\n", "raised SyntaxError: "),
    ("x = 1\n\ny = x / 0\n", "raised ZeroDivisionError: division by zero ({path}, line 3)"),
    ("import json\n\n\njson.loads('')\n", "({path}, line 4)"),
    ("import sys\nsys.exit('usage: ...')\n", "raised SystemExit: usage: ... ({path}, line 2)"),
    ("raise ValueError('one\\ntwo')\n", "raised ValueError: one two ({path}, line 1)"),
])
@pytest.mark.parametrize("reference", ["broken:f", "broken.py:f"])
def test_an_import_that_fails_names_the_users_line(here: Path, source: str, message: str, reference: str) -> None:
    path = here / "broken.py"
    path.write_text(source)
    told = refused(reference)
    assert told.startswith(f"importing {reference.removesuffix(':f')} for the reward raised ")
    assert message.format(path=path) in told
    assert "broken" not in sys.modules


def test_a_file_that_is_no_text(here: Path) -> None:
    (here / "binary.py").write_bytes(b"\x00\xff\xfe")
    assert refused("binary.py:f").startswith("importing binary.py for the reward raised ")


def test_the_attribute(here: Path) -> None:
    (here / "mine.py").write_text(
        "def accuracy(sample): ...\nlimit = 3\nclass Score: ...\nasync def later(sample): ...\n")
    assert refused("mine:acuracy") == f"reward mine:acuracy: {here}/mine.py has no 'acuracy'; did you mean 'accuracy'"
    assert refused("builtins:acuracy") == "reward builtins:acuracy: builtins has no 'acuracy'"
    assert refused("mine:limit") == "reward mine:limit is of type int, not a function"
    assert refused("mine:Score") == "reward mine:Score is a class, not a function"
    assert refused("mine:later") == "reward mine:later is async; it must be an ordinary function"


@pytest.mark.parametrize(("parameters", "message"), [
    ("", "does not take the response: give it a parameter named sample, response or completion (it has: none)"),
    ("x", "does not take the response: give it a parameter named sample, response or completion (it has: x)"),
    ("*sample", "(it has: sample)"),
    ("**columns", "(it has: columns)"),
    ("prompts, completions, **kwargs", "(it has: prompts, completions, kwargs)"),
    ("prompt, answer", "(it has: prompt, answer)"),
    ("response, /, answer", "cannot be called by name: parameter 'response' is positional-only"),
])
def test_signatures_that_do_not_fit(here: Path, parameters: str, message: str) -> None:
    (here / "mine.py").write_text(f"def f({parameters}): ...\n")
    told = refused("mine.py:f")
    assert told.startswith("reward mine.py:f ")
    assert told.endswith(message)


def test_builtin_functions_are_refused() -> None:
    assert refused("math:sqrt").startswith("reward math:sqrt cannot be called by name")
    assert refused("builtins:dict.fromkeys").startswith("reward builtins:dict.fromkeys ")


def test_needed_columns_are_checked_against_the_data(here: Path) -> None:
    (here / "mine.py").write_text("def f(response, levle, answer, bonus=0): ...\n")
    check_function("mine:f")
    check_function("mine:f", columns=["levle"])
    assert refused("mine:f", columns=["level", "id"]) == (
        "reward mine:f needs 'levle', which is no column of the data (columns: level, id); did you mean 'level'")
    assert refused("mine:f", columns=[]).endswith("(columns: none)")


def test_each_part_reaches_its_parameters(sample: MakeSample) -> None:
    given = sample("R", "A", prompt="P", columns={"level": 3, "extra_info": {}, "answer_key": "x"})
    taken: dict[str, Any] = {}

    def common(prompt: str, completion: str, answer: str, **columns: Any) -> float:
        taken.update(prompt=prompt, completion=completion, answer=answer, columns=columns)
        return 1.0

    def verl(solution_str: str, ground_truth: str, extra_info: Any = None, data_source: str = "none") -> list[Any]:
        return [solution_str, ground_truth, extra_info, data_source]

    def everything(sample: Sample, response: str, *, level: int, missing: int = 9) -> list[Any]:
        return [sample, response, level, missing]

    FunctionReward(common).score(given)
    assert taken == {"prompt": "P", "completion": "R", "answer": "A", "columns": given.columns}
    assert FunctionReward(verl).score(given) == ["R", "A", {}, "none"]
    assert FunctionReward(everything).score(given) == [given, "R", 3, 9]
    assert FunctionReward(everything).columns == ["level"]


def test_a_named_column_is_not_given_twice(sample: MakeSample) -> None:
    def f(response: str, level: int, **columns: Any) -> list[Any]:
        return [level, columns]

    assert FunctionReward(f).score(sample("R", columns={"level": 1, "response": "column", "id": 2})) == [1, {"id": 2}]


def test_null_columns_are_given_and_missing_answers_keep_the_default(sample: MakeSample) -> None:
    def f(response: str, level: int | None = 5, answer: str = "default") -> list[Any]:
        return [level, answer]

    assert FunctionReward(f).score(sample("R", columns={"level": None})) == [None, "default"]


def test_callable_objects_and_partial_functions(sample: MakeSample) -> None:
    class Scale:
        def __call__(self, response: str, scale: float = 2.0) -> float:
            return scale * len(response)

    assert FunctionReward(Scale()).score(sample("abc")) == 6
    assert FunctionReward(partial(Scale(), scale=3.0)).score(sample("abc")) == 9


def test_what_the_data_lacks_is_no_zero(sample: MakeSample) -> None:
    def needs_answer(response: str, answer: str) -> float:
        return 1.0

    def needs_column(response: str, level: int) -> float:
        return 1.0

    with pytest.raises(ValueError, match="needs 'answer', but the data has no answers"):
        FunctionReward(needs_answer).score(sample("R"))
    with pytest.raises(ValueError, match=re.escape("needs 'level', which is no column of the data (columns: lvl, id)")):
        FunctionReward(needs_column).score(sample("R", columns={"lvl": 1, "id": 2}))


def test_what_the_function_raises_is_passed_on(sample: MakeSample) -> None:
    def f(sample: Sample) -> float:
        return 1 / len(sample.response)

    with pytest.raises(ZeroDivisionError):
        FunctionReward(f).score(sample(""))


def test_nothing_heavy_is_imported() -> None:
    code = ("import sys, rlinf_cli.plugins.references;"
            "print([m for m in ('numpy', 'torch', 'ray', 'transformers') if m in sys.modules])")
    output = subprocess.check_output([sys.executable, "-c", code], text=True, env={**os.environ, "PYTHONPATH": ""})
    assert output.strip() == "[]"
