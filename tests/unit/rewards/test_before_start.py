"""What is wrong with rewards, their keys and the data is told before anything starts."""

import json
import subprocess
import sys

import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.errors import UsageError
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.runs.preflight import prepare
from rlinf_rewards import register_rewards


@pytest.fixture
def checked(tmp_path, monkeypatch):
    """Prepare a run on a row of data with these arguments."""
    monkeypatch.chdir(tmp_path)
    installed = load_plugins(None)

    def prepared(row, *arguments):
        (tmp_path / "d.jsonl").write_text(json.dumps(row) + "\n")
        return prepare(resolve([], ["data.name=d.jsonl", *arguments], {}, installed), installed)

    return prepared


ROW = {"prompt": "add", "answer": "3", "test_list": ["assert add(1, 2) == 3"]}


@pytest.mark.parametrize("arguments", [
    ["reward.name=code", "reward.tests=test_list"],
    ["reward.name=math + 0.2*format + 0.1*length", "reward.length.target=100"],
    ["reward.name=code + 0.5*math", "reward.code.tests=test_list"],
    ["reward.name=regex", r"reward.pattern=(\d+)"],
])
def test_what_fits(checked, arguments):
    assert checked(ROW, *arguments).config.reward.name == arguments[0].partition("=")[2]


@pytest.mark.parametrize(("row", "arguments", "message"), [
    (ROW, ["reward.name=code"], r"reward\.name=code needs column 'tests', which d\.jsonl does not have \(columns: test_list\)"),
    (ROW, ["reward.name=code", "reward.tests=testlist"], "did you mean 'test_list'"),
    ({"prompt": "x"}, ["reward.name=code", "reward.tests=answer"],
     r"reward\.name=code compares with an answer, but d\.jsonl has none"),
    ({"prompt": "x"}, ["reward.name=math"], r"reward\.name=math compares with an answer"),
    ({"prompt": "x"}, ["reward.name=format + math"], r"reward\.name=math compares with an answer"),
    (ROW, ["reward.name=format", "reward.pattern=("], r"reward\.pattern=\( is no regular expression"),
    (ROW, ["reward.name=math + regex", "reward.regex.pattern=x"], r"reward\.regex\.pattern=x has no group"),
    (ROW, ["reward.name=code", "reward.tests=test_list", "reward.run_s=10"], r"reward\.run_s=10 reaches the limit"),
    (ROW, ["reward.name=length"], r"reward\.target is not set"),
    (ROW, ["reward.name=math + nowhere.py:f"], r"no file nowhere\.py for the reward"),
    (ROW, ["reward.name=math + mth"], "mth"),
])
def test_what_does_not(checked, row, arguments, message):
    with pytest.raises(UsageError, match=message):
        checked(row, *arguments)


def test_all_are_light_until_they_are_used():
    code = ("import sys, rlinf_rewards, rlinf_math\n"
            "[one.load_config() for one in [*rlinf_rewards.register_rewards(), *rlinf_math.register_rewards()]]\n"
            "[one.load() for one in [*rlinf_rewards.register_rewards(), *rlinf_math.register_rewards()]]\n"
            "print([name for name in ('numpy', 'torch', 'ray', 'sympy', 'math_verify') if name in sys.modules])")
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_every_reward_says_what_it_is():
    assert all(one.summary and one.config for one in register_rewards())
