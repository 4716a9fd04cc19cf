"""reward = [all tests pass], or the share of the tests that pass, of the last Python block in the response."""

from __future__ import annotations

import json
import re
import secrets
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlinf_cli.api import ProgramLimits, run_python
from rlinf_rewards import harness
from rlinf_rewards.cases import Cases, Exchange, read_cases
from rlinf_rewards.config import CodeConfig

if TYPE_CHECKING:
    from rlinf_cli.api import Sample

_BLOCK = re.compile(r"^[ \t]*```[ \t]*(\w*)[^\n]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
_PYTHON = ("", "python", "py", "python3")


class Code:
    """Runs what the response proposes, with limits on time, memory, files, processes and, where it can, network."""

    def __init__(self, config: CodeConfig) -> None:
        self.config = config
        self._limits = ProgramLimits(memory_mb=config.memory_mb)
        self._harness = Path(harness.__file__).read_text("utf-8")

    def score(self, sample: Sample) -> dict[str, float]:
        """`reward`, and as 0 or 1: `found`, whether there is a Python block. ValueError when the row's tests cannot be
        read."""
        cases, program = read_cases(self._tests(sample)), last_block(sample.response)
        if program is None:
            return {"reward": 0.0, "found": 0.0}
        passed = self._statements(program, cases) if cases.statements else self._exchanges(program, cases)
        share = passed / len(cases)
        return {"reward": share if self.config.score == "fraction" else float(share == 1), "found": 1.0}

    def _tests(self, sample: Sample) -> Any:
        if self.config.tests == "answer":
            return sample.answer
        if self.config.tests not in sample.columns:
            raise ValueError(f"the row has no column {self.config.tests!r} with tests (see reward.tests)")
        return sample.columns[self.config.tests]

    def _statements(self, program: str, cases: Cases) -> int:
        word = secrets.token_hex(16)
        order = json.dumps({"word": word, "program": program, "tests": cases.statements})
        outcome = run_python(self._harness, order, replace(self._limits, seconds=self.config.run_s))
        return len({line for line in outcome.stdout.splitlines() if line.startswith(word)})

    def _exchanges(self, program: str, cases: Cases) -> int:
        deadline, passed = time.monotonic() + self.config.run_s, 0
        for done, exchange in enumerate(cases.exchanges):
            left = deadline - time.monotonic()
            if left <= 0 or (self.config.score == "all" and passed < done):
                break
            passed += self._passes(program, exchange, left)
        return passed

    def _passes(self, program: str, exchange: Exchange, seconds: float) -> bool:
        outcome = run_python(program, exchange.input, replace(self._limits, seconds=seconds))
        return outcome.ok and _lines(outcome.stdout) == _lines(exchange.output)


def last_block(response: str) -> str | None:
    """The last fenced block of Python, or of no language; one that is indented as a whole is not any more."""
    found = [block for language, block in _BLOCK.findall(response) if language.lower() in _PYTHON]
    return textwrap.dedent(found[-1]) if found else None


def _lines(text: str) -> list[str]:
    """What counts of an output: blanks at line ends and around it do not."""
    return [line.rstrip() for line in text.strip().splitlines()]
