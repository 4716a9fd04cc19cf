from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rlinf_cli.config.sections import RewardConfig
from rlinf_cli.rl.trajectory import Sample
from rlinf_rewards.code import Code, last_block
from rlinf_rewards.config import CodeConfig

MakeSample = Callable[..., Sample]

ADD = "def add(a, b):\n    return a + b\n"
TESTS = ["assert add(1, 2) == 3", "assert add(-1, 1) == 0", "assert add('a', 'b') == 'ab'", "assert add(1, 1) == 2"]
DOUBLE = "print(int(input()) * 2)\n"
PAIRS = [{"input": "1\n", "output": "2\n"}, {"input": "21\n", "output": " 42"}, {"input": "-3\n", "output": "-6"}]


def fenced(program: str) -> str:
    return f"Let us see.\n```python\n{program}\n```\nThat is it."


@pytest.fixture
def score(sample: MakeSample) -> Callable[..., dict[str, float]]:
    def score(program: str, tests: Any = TESTS, **keys: Any) -> dict[str, float]:
        return Code(CodeConfig(**{"run_s": 60.0, **keys})).score(sample(fenced(program), columns={"tests": tests}))

    return score


Score = Callable[..., dict[str, float]]


@pytest.mark.parametrize(("program", "share"), [
    (ADD, 1.0),
    ("def add(a, b):\n    return abs(int(a) + int(b))\n", 0.75),
    ("def add(a, b):\n    return 3\n", 0.25),
    ("def sub(a, b):\n    return a - b\n", 0.0),
    ("def add(a, b:\n", 0.0),
    ("1 / 0\n" + ADD, 0.0),
])
def test_assert_statements(score: Score, program: str, share: float) -> None:
    assert score(program, score="fraction") == {"reward": share, "found": 1}
    assert score(program) == {"reward": float(share == 1), "found": 1}


@pytest.mark.parametrize("trick", [
    "import sys\nsys.exit(0)", "import os\nos._exit(0)", "raise SystemExit", "def add(a, b):\n    raise SystemExit(0)",
    "import os\nprint('0\\n1\\n2\\n3')\nos._exit(0)",
    "import os\nfor fd in range(20):\n    try: os.write(fd, b'0\\n1\\n2\\n3\\n')\n    except OSError: pass",
])
def test_ending_early_is_no_success(score: Score, trick: str) -> None:
    assert score(trick, score="fraction")["reward"] == 0


def test_a_test_does_not_disturb_the_next(score: Score) -> None:
    tests = ["add = None", "import sys; sys.exit(1)", "print('noise')", "assert add(1, 2) == 3"]
    assert score(ADD, tests, score="fraction")["reward"] == 0.75


def test_what_is_only_run_as_a_script_is_not(score: Score) -> None:
    assert score(ADD + "if __name__ == '__main__':\n    input()\n    1 / 0\n")["reward"] == 1


@pytest.mark.parametrize(("program", "share"), [
    (DOUBLE, 1.0), ("print(abs(int(input())) * 2)", 2 / 3), ("print('?')", 0.0), (DOUBLE + "1 / 0", 0.0),
    ("print(f' {int(input()) * 2}  ')\nprint()", 1.0),
])
def test_input_and_output(score: Score, program: str, share: float) -> None:
    assert score(program, PAIRS, score="fraction")["reward"] == pytest.approx(share)
    assert score(program, PAIRS)["reward"] == float(share == 1)


def test_all_tests_share_the_time(score: Score) -> None:
    begin = time.monotonic()
    assert score("import time\ntime.sleep(600)", PAIRS * 20, run_s=0.6)["reward"] == 0
    assert score("while True: pass", run_s=0.3)["reward"] == 0
    assert score("while True: pass", PAIRS * 20, run_s=0.3, score="fraction")["reward"] == 0
    assert time.monotonic() - begin < 20


def test_what_passed_before_the_time_was_over_counts(score: Score) -> None:
    tests = ["assert add(1, 2) == 3", "while True: pass", "assert add(1, 2) == 3"]
    assert score(ADD, tests, run_s=4.0, score="fraction")["reward"] == pytest.approx(1 / 3)


def test_memory_is_limited(score: Score) -> None:
    assert score(f"{ADD}x = bytearray(1 << 30)", memory_mb=256)["reward"] == 0


@pytest.mark.parametrize(("response", "block"), [
    ("```python\na\n```", "a\n"), ("```\na\n```", "a\n"), ("```py\na\n```\nand\n```Python\nb\n```", "b\n"),
    ("```python\na\n```\n```bash\nls\n```", "a\n"), ("1. so\n   ```python\n   a\n     b\n   ```", "a\n  b\n"),
    ("```python title=x\na\n```", "a\n"),
    ("```python\n```", ""), ("a", None), ("```python\na", None), ("```bash\nls\n```", None), ("", None),
])
def test_the_last_block(response: str, block: str | None) -> None:
    assert last_block(response) == block


def test_without_a_block_nothing_is_run(sample: MakeSample) -> None:
    assert Code(CodeConfig()).score(sample(ADD, columns={"tests": TESTS})) == {"reward": 0, "found": 0}


def test_tests_in_the_answer(sample: MakeSample) -> None:
    one = sample(fenced(DOUBLE), '{"inputs": ["1"], "outputs": ["2"]}')
    assert Code(CodeConfig(tests="answer")).score(one)["reward"] == 1
    config = CodeConfig(tests="answer")
    assert (config.needs_answer, config.needs_columns) == (True, ())
    assert (CodeConfig().needs_answer, CodeConfig("test_list").needs_columns) == (False, ("test_list",))


def test_missing_tests_are_no_zero(sample: MakeSample) -> None:
    with pytest.raises(ValueError, match=r"no column 'tests' with tests \(see reward\.tests\)"):
        Code(CodeConfig()).score(sample(fenced(ADD)))
    with pytest.raises(ValueError, match="the row has no tests"):
        Code(CodeConfig()).score(sample(fenced(ADD), columns={"tests": []}))


def test_the_limit_of_the_program_is_below_that_of_the_reward() -> None:
    def problems(**reward: float) -> list[str]:
        return list(CodeConfig(run_s=8).problems_with(SimpleNamespace(reward=RewardConfig(**reward))))

    assert problems() == []
    (told,) = problems(timeout_s=8)
    assert told.startswith("reward.run_s=8 reaches the limit of the whole reward, reward.timeout_s=8")
