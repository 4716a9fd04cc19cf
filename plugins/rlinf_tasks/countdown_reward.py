"""reward = 1 for an expression of the given numbers that gives the target, `valid` for another expression of them.

The expression is parsed, never run: whole numbers, + - * / and parentheses, computed exactly.
"""

from __future__ import annotations

import ast
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

from rlinf_tasks.config import CountdownRewardConfig

if TYPE_CHECKING:
    from rlinf_cli.api import Sample

LONGEST = 200
"""Characters of an expression that is still read."""

_OPERATIONS: dict[type, Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
_ALLOWED = re.compile(r"[0-9+\-*/() ]+")
_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "\t": " ", "$": " ", "`": " "})


class CountdownReward:
    """Reads the numbers from the row's column `numbers` (or `nums`) and the target from `target`."""

    isolated = False

    def __init__(self, config: CountdownRewardConfig) -> None:
        self.config = config

    def score(self, sample: Sample) -> dict[str, float]:
        """`reward`, and as 0 or 1: `countdown` (gives the target), `valid` (is an expression of the numbers). ValueError
        when the row does not tell numbers and target."""
        numbers, target = _task(sample)
        value = None
        if sample.finish == "stop" or not self.config.require_end:
            value = self._value(expression(sample.response), Counter(numbers))
        right = value is not None and value == target
        reward = 1.0 if right else self.config.valid * (value is not None)
        return {"reward": reward, "countdown": float(right), "valid": float(value is not None)}

    def _value(self, text: str, numbers: Counter[int]) -> Fraction | None:
        """The value of an expression of the numbers; None when it is none."""
        tree = parse(text)
        if tree is None:
            return None
        used = Counter(constants(tree))
        fits = used == numbers if self.config.use == "exactly" else used <= numbers
        return evaluate(tree) if fits else None


def expression(response: str) -> str:
    """Where a response says its expression: between the last `<answer>` tags, else in its last line; what follows an
    equals sign does not count."""
    tagged = _TAGGED.findall(response)
    lines = (tagged[-1] if tagged else response).strip().splitlines()
    return lines[-1].partition("=")[0].translate(_SIGNS).strip() if lines else ""


def parse(text: str) -> ast.expr | None:
    """The tree of an expression of whole numbers, + - * / and parentheses; None for anything else."""
    if len(text) > LONGEST or not _ALLOWED.fullmatch(text):
        return None
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, RecursionError, MemoryError):  # the last two: nested too deeply for the parser
        return None
    return tree if _is_arithmetic(tree) else None


def constants(tree: ast.expr) -> Iterator[int]:
    """The numbers of an expression."""
    return (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, int))


def evaluate(tree: ast.expr) -> Fraction | None:
    """The exact value; None when something is divided by zero."""
    try:
        return _evaluate(tree)
    except ZeroDivisionError:
        return None


def _evaluate(tree: ast.expr) -> Fraction:
    if isinstance(tree, ast.BinOp):
        return _OPERATIONS[type(tree.op)](_evaluate(tree.left), _evaluate(tree.right))
    assert isinstance(tree, ast.Constant)
    assert isinstance(tree.value, int)
    return Fraction(tree.value)


def _is_arithmetic(tree: ast.expr) -> bool:
    if isinstance(tree, ast.BinOp):
        return type(tree.op) in _OPERATIONS and _is_arithmetic(tree.left) and _is_arithmetic(tree.right)
    return isinstance(tree, ast.Constant) and type(tree.value) is int


def _task(sample: Sample) -> tuple[list[int], Fraction]:
    numbers = sample.columns.get("numbers", sample.columns.get("nums"))
    target = sample.columns.get("target")
    if not isinstance(numbers, list) or target is None:
        raise ValueError("reward 'countdown' needs the columns numbers (a list) and target, which the row does not have")
    return numbers, Fraction(str(target))
