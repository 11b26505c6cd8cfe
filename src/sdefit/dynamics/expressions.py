"""`Formula`: one right-hand side as a value that can be evaluated and printed.

A formula is a list of steps in postfix order: `a*x + 2` is a, x, *, 2, +. Every use of it is one walk
over the steps with a stack, so a long formula can never exhaust Python's own call stack.
"""

import dataclasses
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

# What each word of a formula does to plain floats. These words are all a formula can ever call.
PLAIN: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": operator.pow,
    "negate": operator.neg,
    "exp": math.exp,
    "log": math.log,
    "sqrt": math.sqrt,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "tanh": math.tanh,
    "abs": abs,
}
FUNCTIONS = ("exp", "log", "sqrt", "sin", "cos", "tan", "tanh", "abs")

# How tightly each operator holds its operands, as in Python: -x**2 is -(x**2), -x*y is (-x)*y.
SUM, PRODUCT, SIGN, FRACTION, POWER, ATOM = 1, 2, 3, 4, 5, 6
BINDING = {"+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT, "**": POWER}


@dataclasses.dataclass(frozen=True)
class Number:
    """A step that puts a number on the stack."""

    value: float


@dataclasses.dataclass(frozen=True)
class Name:
    """A step that puts the value of a name on the stack."""

    name: str


@dataclasses.dataclass(frozen=True)
class Apply:
    """A step that replaces the last `count` values by what `word` makes of them."""

    word: str
    count: int


Step = Number | Name | Apply


class _Constant(float):
    """A number known from the text alone; a name's value is never one."""


@dataclasses.dataclass(frozen=True)
class Formula:
    """One right-hand side: a hashable value, equal to every formula with the same steps."""

    steps: tuple[Step, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names used, each once, in order of appearance."""
        return tuple(dict.fromkeys(step.name for step in self.steps if isinstance(step, Name)))

    def evaluate(self, values: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]] = PLAIN) -> Any:
        """The value of the formula; `functions` says what each word of `PLAIN` means for these values.

        What is made of numbers alone is folded in float64 first, whatever the values are.
        """

        def apply(word: str, *given: Any) -> Any:
            if all(type(one) is _Constant for one in given):
                return _Constant(PLAIN[word](*given))
            return functions[word](*(float(one) if type(one) is _Constant else one for one in given))

        value = self.walk(_Constant, values.__getitem__, apply)
        return float(value) if type(value) is _Constant else value

    def __str__(self) -> str:
        return self.walk(_text_number, lambda name: (name, ATOM), _text_apply)[0]

    def latex(self) -> str:
        """The formula as LaTeX, for math mode."""
        return self.walk(_latex_number, lambda name: (latex_name(name), ATOM), _latex_apply)[0]

    def walk(self, number: Callable[[float], T], name: Callable[[str], T], apply: Callable[..., T]) -> T:
        """What the functions make of the tree, leaves first: of each number, each name, and each word with what it
        is applied to.
        """
        stack: list[T] = []
        for step in self.steps:
            match step:
                case Number(value):
                    stack.append(number(value))
                case Name(word):
                    stack.append(name(word))
                case Apply(word, count):
                    given = stack[-count:]
                    stack[-count:] = [apply(word, *given)]
        return stack[0]


def fold(word: str, given: Iterable[float]) -> float | None:
    """What `word` makes of plain floats, or None where that is not a finite real number."""
    try:
        value = PLAIN[word](*given)
    except (ArithmeticError, ValueError):
        return None
    return value if isinstance(value, float) and math.isfinite(value) else None


# Printing. Each piece is its text and how tightly it holds together.
_Piece = tuple[str, int]


def number_text(value: float) -> str:
    """The shortest text that reads back as the same float, without an idle `.0`."""
    return repr(float(value)).removesuffix(".0")


def _text_number(value: float) -> _Piece:
    return number_text(value), ATOM


def _text_apply(word: str, *given: _Piece) -> _Piece:
    if word == "negate":
        return "-" + _inside(given[0], SIGN), SIGN
    if word in FUNCTIONS:
        return f"{word}({given[0][0]})", ATOM
    left, right = _operands(word, given[0], given[1])
    return (f"{left} {word} {right}" if BINDING[word] == SUM else f"{left}{word}{right}"), BINDING[word]


def _operands(word: str, left: _Piece, right: _Piece, marks: tuple[str, str] = ("(", ")")) -> tuple[str, str]:
    """Both sides with the brackets they need; a signed right side gets them too, for the eye."""
    if word == "**":
        return _inside(left, POWER, marks), _inside(right, SIGN, marks)
    signed_right = (right[0], SUM) if right[1] == SIGN else right
    return _inside(left, BINDING[word] - 1, marks), _inside(signed_right, BINDING[word], marks)


def _inside(piece: _Piece, floor: int, marks: tuple[str, str] = ("(", ")")) -> str:
    return marks[0] + piece[0] + marks[1] if piece[1] <= floor else piece[0]


_BRACKETS = (r"\left(", r"\right)")


def _latex_number(value: float) -> _Piece:
    digits, _, exponent = number_text(value).partition("e")
    return (rf"{digits} \cdot 10^{{{int(exponent)}}}", PRODUCT) if exponent else (digits, ATOM)


def _latex_apply(word: str, *given: _Piece) -> _Piece:
    match word:
        case "negate":
            return "-" + _inside(given[0], SIGN, _BRACKETS), SIGN
        case "/":
            return rf"\frac{{{given[0][0]}}}{{{given[1][0]}}}", FRACTION
        case "**":
            return f"{_inside(given[0], POWER, _BRACKETS)}^{{{given[1][0]}}}", POWER
        case "sqrt":
            return rf"\sqrt{{{given[0][0]}}}", ATOM
        case "abs":
            return rf"\left|{given[0][0]}\right|", ATOM
        case "+" | "-" | "*":
            left, right = _operands(word, given[0], given[1], _BRACKETS)
            times = r"\cdot" if right[0].isdigit() else r"\,"
            return f"{left} {times if word == '*' else word} {right}", BINDING[word]
        case _:
            return rf"\{word}{_BRACKETS[0]}{given[0][0]}{_BRACKETS[1]}", ATOM


_GREEK = re.compile(
    "alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|pi|rho|sigma|tau|upsilon|phi|chi|psi|omega"
    "|Gamma|Delta|Theta|Lambda|Xi|Pi|Sigma|Upsilon|Phi|Psi|Omega"
)
NAME_PARTS = re.compile(r"([A-Za-z]+)(?:_?([0-9]+)|_([A-Za-z0-9]+))?")
_ESCAPES = {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}


def latex_name(name: str) -> str:
    """A name as LaTeX: Greek letters, subscripts for `theta_1`, `theta1` and `k_on`, else upright text."""
    found = NAME_PARTS.fullmatch(name)
    if not found:
        return rf"\text{{{''.join(_ESCAPES.get(c, '\\' + c if c in '&%$#_{}' else c) for c in name)}}}"
    base, digits, word = found.groups()
    stem = f"\\{base}" if _GREEK.fullmatch(base) else base if len(base) == 1 else rf"\mathit{{{base}}}"
    if digits or word:
        return f"{stem}_{{{digits or (word if len(word) == 1 else rf'\mathrm{{{word}}}')}}}"
    return stem
