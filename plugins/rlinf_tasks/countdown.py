"""The task "countdown": make 56 of 3, 5 and 7; an answer is `(3+5)*7`."""

from __future__ import annotations

from collections.abc import Iterator

from rlinf_cli.api import Row
from rlinf_tasks.config import CountdownConfig
from rlinf_tasks.draw import Draw


class Countdown:
    """An endless data set of numbers and a target that an expression of all of them gives; a row is a function of
    (seed, index). Columns: `numbers`, `target`; the answer is one of the solutions."""

    size: int | None = None

    def __init__(self, config: CountdownConfig, seed: int) -> None:
        self._config, self._seed = config, seed

    def row(self, index: int) -> Row:
        draw = Draw("countdown", self._seed, index)
        numbers = [draw.between(1, self._config.largest) for _ in range(self._config.count)]
        target, solution = self._combined(numbers, draw)
        numbers.sort()  # their order would tell how to combine them
        columns = {"numbers": numbers, "target": target}
        listed = ",".join(map(str, numbers))
        if self._config.form == "text":
            return Row(text=f"{listed}={target}?", answer=solution, columns=columns)
        return Row(messages=[{"role": "user", "content": self._task(numbers, target)}], answer=solution, columns=columns)

    def _combined(self, numbers: list[int], draw: Draw) -> tuple[int, str]:
        """A value made of all numbers, one after the other, and the expression that says how."""
        value, expression = numbers[0], str(numbers[0])
        for number in numbers[1:]:
            options = [one for sign in self._config.operations for one in _results(value, expression, sign, number)]
            value, expression = draw.choice(options)
        return value, expression

    def _task(self, numbers: list[int], target: int) -> str:
        signs = ", ".join(self._config.operations)
        return (f"Make {target} of the numbers {', '.join(map(str, numbers))}: use each of them exactly once, with the "
                f"operations {signs} and parentheses. End with the expression, on a line of its own.")


def _results(value: int, expression: str, sign: str, number: int) -> Iterator[tuple[int, str]]:
    """What comes of a value and a number: no negative number and no fraction; none when they cannot be divided."""
    inner = expression if expression.isdecimal() else f"({expression})"
    if sign == "+":
        yield value + number, f"{expression}+{number}"
    elif sign == "*":
        yield value * number, f"{inner}*{number}"
    elif sign == "-" and value >= number:
        yield value - number, f"{expression}-{number}"
    elif sign == "-":
        yield number - value, f"{number}-{inner}"
    elif value % number == 0:
        yield value // number, f"{inner}/{number}"
    elif value and number % value == 0:
        yield number // value, f"{number}/{inner}"
