"""Text to formulas: a tokenizer and a precedence parser for one equation per line.

The grammar is arithmetic and nothing else: numbers, names, + - * / ** ( ) and eight functions. Nothing
in the text is ever executed, and length, size and nesting are bounded.
"""

import dataclasses
import math
import re
from collections.abc import Iterator

from sdefit.dynamics.expressions import (
    BINDING,
    FUNCTIONS,
    POWER,
    SIGN,
    Apply,
    Formula,
    Name,
    Number,
    Step,
    fold,
)
from sdefit.errors import EquationError

MAX_TEXT = 20_000  # characters in all
MAX_STEPS = 2_000  # numbers, names and operations in one equation: each is an operation to compile
MAX_DEPTH = 100  # brackets, signs and powers inside each other: Python's call stack holds 1000 frames
RESERVED = ("t", "dt", "dw", "dW", *FUNCTIONS)

_TOKEN = re.compile(
    r"(?P<space>[ \t]+)"
    r"|(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z_0-9]*)"
    r"|(?P<mark>\*\*|[-+*/()=,])"
)
_HINTS = (
    {"^": "write ** for a power", "[": "use round brackets ( )", "]": "use round brackets ( )"}
    | dict.fromkeys("−‐‑‒–—﹣-", "write an ordinary minus sign -")
    | dict.fromkeys("×·⋅∙∗✕", "write * to multiply")
    | dict.fromkeys("÷∕⁄", "write / to divide")
    | dict.fromkeys("⁰¹²³⁴⁵⁶⁷⁸⁹", "write ** and the exponent, as in x**2")
    | dict.fromkeys("()", "write ordinary brackets ( )")
    | dict.fromkeys("\xa0\u2009\u202f\u3000", "replace this unusual space by an ordinary one")
    | dict.fromkeys("%@!&|~<>?:;", "only + - * / ** and ( ) are read")
    | dict.fromkeys("\"'`{}$\\.", "only numbers, names, + - * / ** and ( ) are read")
)


@dataclasses.dataclass(frozen=True)
class Token:
    """One word of a line: a number, a name, a mark, or its end."""

    kind: str
    text: str
    column: int

    def __str__(self) -> str:
        return repr(self.text if len(self.text) <= 30 else self.text[:29] + "…")


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of the text, which knows how to show a place in itself."""

    number: int
    text: str

    def error(self, problem: str, column: int) -> EquationError:
        """An error whose first line stands alone, with the line and a caret below."""
        start = max(0, column - 60)
        shown = "".join(c if c.isprintable() else " " for c in self.text[start : column + 60])
        # The indent of the user's text would only push the caret to the right.
        margin = len(shown) - len(shown.lstrip()) if column - start >= len(shown) - len(shown.lstrip()) else 0
        caret = " " * (column - start - margin) + "^"
        return EquationError(f"line {self.number} of the equations: {problem}\n    {shown[margin:]}\n    {caret}")


@dataclasses.dataclass(frozen=True)
class Equation:
    """One read line: the state, its formula, and where each name first stands."""

    line: Line
    state: Token
    formula: Formula
    places: dict[str, int]


def read(text: str) -> list[Equation]:
    """The equations of a text, in order; blank lines and # comments are passed over."""
    if len(text) > MAX_TEXT:
        raise EquationError(f"the equations must be at most {MAX_TEXT} characters, but {len(text)} were given")
    lines = [Line(number, row.partition("#")[0].rstrip(" \t")) for number, row in enumerate(rows(text), 1)]
    return [_Reader(line).equation() for line in lines if line.text]


def rows(text: str) -> list[str]:
    """The lines of a text. Not `splitlines`, which would also end a comment at rarer marks."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _tokens(line: Line) -> Iterator[Token]:
    column = 0
    while column < len(line.text):
        found = _TOKEN.match(line.text, column)
        if found is None:
            raise _unreadable(line, column)
        if found.lastgroup != "space":
            yield Token(str(found.lastgroup), found.group(), column)
        column = found.end()
    yield Token("end", "the end of the line", column)


def _unreadable(line: Line, column: int) -> EquationError:
    character = line.text[column]
    if character in _HINTS:
        hint = _HINTS[character]
    elif character.isalpha():
        hint = "names are made of the letters a-z and A-Z, digits and _, so spell it out"
    else:
        hint = "only numbers, names, + - * / ** and ( ) are read"
    return line.error(f"{character!r} cannot be read; {hint}", column)


class _Reader:
    """Reads the tokens of one line from left to right into postfix steps."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.tokens = list(_tokens(line))
        self.position = 0
        self.steps: list[Step] = []
        self.places: dict[str, int] = {}
        # Beside the steps: the value of what is made of numbers alone, so that 1/0 is refused at its place.
        self.constants: list[float | None] = []

    def equation(self) -> Equation:
        state = self.left_side()
        self.value(0, 0)
        if self.here.kind != "end":
            raise self.error(*self.unexpected())
        return Equation(self.line, state, Formula(tuple(self.steps)), self.places)

    def left_side(self) -> Token:
        """The state named by `dprey =` or `dprey/dt =`."""
        first = self.take()
        if first.kind != "name" or not first.text.startswith("d") or first.text == "d":
            raise self.error("an equation must begin with d and the name of a state, as in dprey = ...", first)
        state = Token("name", first.text[1:], first.column + 1)
        if state.text in RESERVED or state.text[0].isdigit():
            raise self.error(f"{state} cannot be the name of a state; choose another", state)
        if self.here.text == "/":
            self.take()
            self.expect("dt", f"write {first.text}/dt = ... or {first.text} = ...")
        self.expect("=", f"write {first.text} = and then its formula")
        return state

    def value(self, floor: int, depth: int) -> None:
        """Reads an operand and every operator after it that binds tighter than `floor`."""
        self.operand(depth)
        while (binding := BINDING.get(self.here.text, 0)) > floor:
            mark = self.take()
            # ** groups to the right and its exponent may carry a sign: 2**3**2 is 2**(3**2), and 2**-x is read.
            self.value(SIGN if binding == POWER else binding, depth + (binding == POWER))
            self.apply(mark.text, 2, mark)

    def operand(self, depth: int) -> None:
        token = self.take()
        if depth > MAX_DEPTH:
            raise self.error(f"brackets, signs and powers go more than {MAX_DEPTH} deep; split the formula", token)
        if token.kind == "number":
            self.number(token)
        elif token.kind == "name":
            self.call(token, depth) if token.text in FUNCTIONS else self.name(token)
        elif token.text in ("+", "-"):
            self.value(SIGN, depth + 1)
            if token.text == "-":
                self.apply("negate", 1, token)
        elif token.text == "(":
            self.bracket(token, depth)
        else:
            raise self.error(f"a number, a name or ( must come here, not {self.describe(token)}", token)

    def bracket(self, opened: Token, depth: int) -> None:
        self.value(0, depth + 1)
        if self.here.kind == "end":
            raise self.error("this ( is never closed; an equation stays on one line", opened)
        if self.here.text != ")":
            raise self.error(*self.unexpected())
        self.take()

    def call(self, function: Token, depth: int) -> None:
        if self.here.text != "(":
            raise self.error(f"{function} is a function; write {function.text}(...)", function)
        self.bracket(self.take(), depth)
        self.apply(function.text, 1, function)

    def name(self, token: Token) -> None:
        if token.text in ("dt", "dw", "dW"):
            raise self.error(f"write the drift without {token.text}; dt and the noise G dw are understood", token)
        self.places.setdefault(token.text, token.column)
        self.put(Name(token.text), None, token)

    def number(self, token: Token) -> None:
        value = float(token.text)
        if not math.isfinite(value):
            raise self.error(f"the number {token} is too large", token)
        if re.fullmatch("0+[1-9][0-9]*", token.text):
            raise self.error(f"the whole number {token} must not begin with 0", token)
        self.put(Number(value), value, token)

    def apply(self, word: str, count: int, token: Token) -> None:
        given = [one for one in self.constants[-count:] if one is not None]
        value = fold(word, given) if len(given) == count else None
        if value is None and len(given) == count:
            raise self.error("this constant is not a finite real number", token)
        del self.constants[-count:]
        self.put(Apply(word, count), value, token)

    def put(self, step: Step, constant: float | None, token: Token) -> None:
        if len(self.steps) >= MAX_STEPS:
            raise self.error(f"an equation must have at most {MAX_STEPS} numbers, names and operations", token)
        self.steps.append(step)
        self.constants.append(constant)

    def unexpected(self) -> tuple[str, Token]:
        token, before = self.here, self.tokens[self.position - 1]
        if token.text == ",":
            return "each function takes exactly one argument, so no comma is read", token
        if token.text == ")":
            return "this ) was never opened", token
        if token.text == "(" and before.kind == "name":
            return f"{before} is not a function (those are {', '.join(FUNCTIONS)}); write * to multiply", before
        if token.text == "=":
            return "only one = is read in an equation", token
        return f"an operator must come before {self.describe(token)}; write * to multiply", token

    @property
    def here(self) -> Token:
        return self.tokens[self.position]

    def take(self) -> Token:
        token = self.here
        self.position = min(self.position + 1, len(self.tokens) - 1)
        return token

    def expect(self, text: str, hint: str) -> None:
        token = self.take()
        if token.text != text:
            raise self.error(f"{text!r} must come here, not {self.describe(token)}; {hint}", token)

    def describe(self, token: Token) -> str:
        return token.text if token.kind == "end" else str(token)

    def error(self, problem: str, token: Token) -> EquationError:
        return self.line.error(problem, token.column)
