"""Text to formulas: a precedence parser for one statement per line.

The grammar is arithmetic and nothing else: numbers, names, + - * / ** ( ) and eight functions. Nothing
in the text is ever executed, and length, size and nesting are bounded.
"""

import dataclasses
import math
import re

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
from sdefit.dynamics.tokens import OWN, Line, Token, rows, tokens
from sdefit.errors import EquationError

MAX_TEXT = 20_000  # characters in all
MAX_STEPS = 2_000  # numbers, names and operations in one equation: each is an operation to compile
MAX_DEPTH = 100  # brackets, signs and powers inside each other: Python's call stack holds 1000 frames

_EQUATION = "an equation must begin with d and the name of a state, as in dprey = ..."


@dataclasses.dataclass(frozen=True)
class Expression:
    """What was read of a formula: its steps in postfix order, and the token that each one came from."""

    line: Line
    steps: tuple[Step, ...]
    tokens: tuple[Token, ...]

    @property
    def formula(self) -> Formula:
        return Formula(self.steps)

    @property
    def names(self) -> dict[str, Token]:
        """Each name used, with the place where it first stands in the line."""
        first: dict[str, Token] = {}
        for step, token in zip(self.steps, self.tokens, strict=True):
            if isinstance(step, Name) and (step.name not in first or token.column < first[step.name].column):
                first[step.name] = token
        return first

    def error(self, problem: str, token: Token) -> EquationError:
        return self.line.error(problem, token.column)


@dataclasses.dataclass(frozen=True)
class Statement:
    """One line of a model: what stands on its left side, and the formula on its right.

    `form` is "rate" for `dx/dt =`, "second" for `x'' =`, "abbreviation" for `x :=`, and "plain" for any `name =`.
    """

    form: str
    left: Token
    right: Expression

    @property
    def line(self) -> Line:
        return self.right.line

    @property
    def state(self) -> Token | None:
        """The state whose equation of motion it may be: x of `dx`, `dx/dt` and `x''`."""
        if self.form == "second":
            return Token("name", self.left.text.removesuffix("''"), self.left.column)
        if self.form == "rate" or (self.form == "plain" and re.fullmatch("d[A-Za-z_].*", self.left.text)):
            return Token("name", self.left.text[1:], self.left.column + 1)
        return None

    def error(self, problem: str, token: Token | None = None) -> EquationError:
        return self.line.error(problem, (token or self.left).column)


def read(text: str) -> list[Statement]:
    """The statements of a text, in order; blank lines and # comments are passed over."""
    if len(text) > MAX_TEXT:
        raise EquationError(f"the equations must be at most {MAX_TEXT} characters, but {len(text)} were given")
    lines = [Line(number, row.partition("#")[0].rstrip(" \t")) for number, row in enumerate(rows(text), 1)]
    return [_Reader(line).statement() for line in lines if line.text]


def read_formula(text: str, origin: str) -> Expression:
    """One formula that stands alone, such as `s*x`; `origin` says where in an error."""
    line = Line(1, " ".join(text[:MAX_TEXT].split()), origin)
    if len(text) > MAX_TEXT:
        raise line.error(f"a formula must be at most {MAX_TEXT} characters, but this has {len(text)}", 0)
    return _Reader(line).formula()


def velocity(state: str) -> str:
    """The name of the state that is the derivative of another, which formulas write x'."""
    return f"{state}_dot"


class _Reader:
    """Reads the tokens of one line from left to right into postfix steps."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.tokens = list(tokens(line))
        self.position = 0
        self.steps: list[Step] = []
        self.sources: list[Token] = []
        # Beside the steps: the value of what is made of numbers alone, so that 1/0 is refused at its place.
        self.constants: list[float | None] = []

    def statement(self) -> Statement:
        form, left = self.left_side()
        return Statement(form, left, self.formula())

    def formula(self) -> Expression:
        self.value(0, 0)
        if self.here.kind != "end":
            raise self.error(*self.unexpected())
        return Expression(self.line, tuple(self.steps), tuple(self.sources))

    def left_side(self) -> tuple[str, Token]:
        """What the line is about: `dprey =`, `dprey/dt =`, `x'' =`, `flow :=` or `y =`."""
        first = self.take()
        if first.kind != "name" or (first.text == "d" and self.here.text not in ("=", ":=")):
            raise self.error(_EQUATION, first)
        if first.text.endswith("''"):
            return self.second_order(first)
        if first.text.endswith("'"):
            name = first.text[:-1]
            raise self.error(f"write d{name}/dt = ... or d{name} = ... for the first derivative", first)
        if self.here.text == ":=":
            self.take()
            self.check("an abbreviation", first)
            return "abbreviation", first
        if first.text.startswith("d") and re.fullmatch("d[0-9]*", first.text) is None:
            return self.derivative(first)
        if self.here.text == "/":
            raise self.error(_EQUATION, first)
        self.expect("=", f"write {first.text} = and then its formula")
        self.check("a column", first)
        return "plain", first

    def derivative(self, first: Token) -> tuple[str, Token]:
        """`dprey =` or `dprey/dt =`."""
        state = Token("name", first.text[1:], first.column + 1)
        if re.fullmatch("2[A-Za-z_].*", state.text):
            hint = f"a second derivative is written {state.text[1:]}'' = ..."
            raise self.error(f"{state} cannot be the name of a state; {hint}", state)
        self.check("a state", state)
        if self.here.text != "/":
            self.expect("=", f"write {first.text} = and then its formula")
            return "plain", first
        self.take()
        self.expect("dt", f"write {first.text}/dt = ... or {first.text} = ...")
        self.expect("=", f"write {first.text} = and then its formula")
        return "rate", first

    def second_order(self, first: Token) -> tuple[str, Token]:
        self.check("a state", Token("name", first.text[:-2], first.column))
        self.expect("=", f"write {first.text} = and then its formula")
        return "second", first

    def check(self, kind: str, named: Token) -> None:
        """Refuse the name of a state, a column or an abbreviation that has a meaning of its own."""
        if named.text in OWN or named.text[0].isdigit():
            raise self.error(f"{named} cannot be the name of {kind}; choose another", named)

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
        if token.text.endswith("''"):
            raise self.error(f"the second derivative {token} stands on the left side only", token)
        self.put(Name(velocity(token.text[:-1]) if token.text.endswith("'") else token.text), None, token)

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
        self.sources.append(token)
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
