"""Lowers a sympy expression to a fast function of numbers, and prints it with its numbers filled in.

Whole bytes and whole nanoseconds are rounded up here and nowhere else. A quotient of whole numbers is rounded with
integer division, so that no count of bytes is ever off by a float's last bit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any, Literal

from sympy import Expr, Symbol, ceiling, fraction, lambdify, together
from sympy.printing.pycode import PythonCodePrinter
from sympy.printing.str import StrPrinter

Rounding = Literal["none", "up"]
Number = int | float

_SYMPY = Lock()
"""sympy fills tables of its own while it works (of assumptions, of a module's functions), and guards none of them."""


@cache
def lower(expression: Expr, arguments: tuple[Symbol, ...], rounding: Rounding = "up") -> Callable[..., Any]:
    """Returns a plain function of `arguments`, in their order; built once per expression.

    Args:
        expression: a formula whose symbols are all among `arguments`.
        arguments: the order in which the function takes its numbers.
        rounding: `up` gives an int, the least that is not below the value; `none` the value itself.

    Raises:
        ValueError: the expression has a symbol that is no argument.
    """
    missing = sorted(str(symbol) for symbol in expression.free_symbols - set(arguments))
    if missing:
        raise ValueError(f"{expression} needs {', '.join(missing)} as arguments")
    with _SYMPY:
        whole = ceiling(expression) if rounding == "up" else expression
        function: Callable[..., Any] = lambdify(arguments, whole, modules="math", printer=_ExactPrinter)
    return function


def round_up(value: float) -> int:
    """Returns the least whole number that is not below the value."""
    return math.ceil(value)


@dataclass(frozen=True, slots=True)
class Formula:
    """An expression with its name, its unit and where it is from. Called with numbers, it gives whole units."""

    name: str
    expression: Expr
    arguments: tuple[Symbol, ...]
    unit: str
    source: str

    def __call__(self, *numbers: Number) -> int:
        """Returns the value, rounded up to whole units; numbers in the order of `arguments`."""
        return int(lower(self.expression, self.arguments)(*numbers))


@dataclass(frozen=True, slots=True)
class FilledFormula:
    """A formula as people read it: with letters, with numbers, and its value."""

    name: str
    formula: str
    substituted: str
    value: int
    unit: str
    source: str

    def __str__(self) -> str:
        return f"{self.name} = {self.formula} = {self.substituted} = {self.value:,} {self.unit}"


def fill_in(formula: Formula, numbers: Mapping[Symbol, Number]) -> FilledFormula:
    """Returns the formula as text, with its letters replaced by numbers.

    Args:
        formula: what to print.
        numbers: a value for each of its arguments.

    Raises:
        KeyError: an argument has no number.
    """
    text = written(formula.expression)
    values = {str(symbol): _number(numbers[symbol]) for symbol in formula.arguments}
    return FilledFormula(
        name=formula.name,
        formula=text,
        substituted=re.sub(r"[A-Za-z_]+", lambda match: values.get(match.group(), match.group()), text),
        value=formula(*(numbers[symbol] for symbol in formula.arguments)),
        unit=formula.unit,
        source=formula.source,
    )


def written(expression: Expr) -> str:
    """Returns an expression as text for people: `c_p x ⌈P / p⌉`."""
    text: str = _ReadablePrinter().doprint(expression)  # type: ignore[no-untyped-call]
    return text.replace("**", "^").replace("*", " × ").replace("/", " / ")


def _number(number: Number) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:.4g}"


class _ExactPrinter(PythonCodePrinter):
    """Python text in which the ceiling of a quotient of whole numbers is an integer division."""

    def _print_ceiling(self, expression: Expr) -> str:
        (value,) = expression.args
        numerator, denominator = fraction(together(value))  # type: ignore[no-untyped-call]
        if numerator.is_integer and denominator.is_integer:
            return f"(-(-({self._print(numerator)})//({self._print(denominator)})))"
        return f"ceil({self._print(value)})"


class _ReadablePrinter(StrPrinter):
    def _print_ceiling(self, expression: Expr) -> str:
        return f"⌈{self._print(expression.args[0])}⌉"
