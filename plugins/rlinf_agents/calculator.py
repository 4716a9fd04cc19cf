"""`calculator`: arithmetic, worked out exactly and without running anything."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from rlinf_agents.config import CalculatorConfig
from rlinf_cli.api import ToolError, ToolSpec

LONGEST, LARGEST_POWER, LARGEST = 300, 1000, 10**400
"""Characters of an expression, an exponent, and the size of any number on the way."""

SPEC = ToolSpec("calculator", "Work out an arithmetic expression of numbers, + - * / ** and parentheses.", {
    "type": "object", "properties": {"expression": {"type": "string", "description": "for example (3 + 4) * 2.5"}},
    "required": ["expression"]}, cacheable=True)

_OPERATIONS: dict[type, Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: lambda a, b: Fraction(a // b), ast.Mod: operator.mod}
_SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "^": "**", ",": ""})


class Calculator:
    """Contract: `rlinf_cli.api.Tool`."""

    def __init__(self, config: CalculatorConfig) -> None:
        self.config = config

    def specs(self) -> Sequence[ToolSpec]:
        return [SPEC]

    async def open(self) -> None:
        """Nothing to load."""

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        value = evaluate(arguments["expression"])
        return str(value.numerator) if value.denominator == 1 else f"{float(value):.{self.config.digits}g}"

    async def close(self) -> None:
        """Nothing is open."""


def evaluate(text: str) -> Fraction:
    """The exact value. Raises ToolError for what is no arithmetic, or too large."""
    if len(text) > LONGEST:
        raise ToolError(f"an expression may have {LONGEST} characters.")
    written = text.translate(_SIGNS).strip().rstrip("=").strip()
    try:
        return _value(ast.parse(written, mode="eval").body)
    except ZeroDivisionError:
        raise ToolError("division by zero.") from None
    except (SyntaxError, RecursionError, MemoryError):  # the last two: nested too deeply for the parser
        raise ToolError(f"{text!r} is no arithmetic expression.") from None


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return _bounded(Fraction(str(node.value)))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        return -_value(node.operand) if isinstance(node.op, ast.USub) else _value(node.operand)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return _bounded(_power(_value(node.left), _value(node.right)))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        return _bounded(_OPERATIONS[type(node.op)](_value(node.left), _value(node.right)))
    raise ToolError(f"{ast.unparse(node)!r} is no arithmetic.")


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise ToolError("an exponent must be a whole number.")
    if abs(exponent) > LARGEST_POWER or (abs(base) > 1 and abs(exponent) * len(str(base.numerator)) > 2 * LARGEST_POWER):
        raise ToolError("the power is too large.")
    return Fraction(base ** int(exponent))


def _bounded(value: Fraction) -> Fraction:
    if abs(value.numerator) > LARGEST or value.denominator > LARGEST:
        raise ToolError("a number on the way is too large.")
    return value
