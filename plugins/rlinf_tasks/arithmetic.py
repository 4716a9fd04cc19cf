"""The task "arithmetic": `What is 47 + 8?`, the answer `55`."""

from __future__ import annotations

import operator

from rlinf_cli.api import Row
from rlinf_tasks.config import ArithmeticConfig
from rlinf_tasks.draw import Draw

OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


class Arithmetic:
    """An endless data set of two numbers and an operation; a row is a function of (seed, index)."""

    size: int | None = None

    def __init__(self, config: ArithmeticConfig, seed: int) -> None:
        self._config, self._seed = config, seed

    def row(self, index: int) -> Row:
        draw, largest = Draw("arithmetic", self._seed, index), 10**self._config.digits - 1
        sign = draw.choice(self._config.operations)
        a, b = draw.between(0, largest), draw.between(0, largest)
        if sign == "-":
            a, b = max(a, b), min(a, b)
        answer = str(OPERATIONS[sign](a, b))
        if self._config.form == "text":
            return Row(text=f"{a}{sign}{b}=", answer=answer)
        return Row(messages=[{"role": "user", "content": f"What is {a} {sign} {b}?"}], answer=answer)
