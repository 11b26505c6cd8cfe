"""Lines of a model's text and their tokens: numbers, names and marks, each with its place."""

import dataclasses
import re
from collections.abc import Iterator

from sdefit.dynamics.expressions import FUNCTIONS
from sdefit.errors import EquationError

RESERVED = ("t", "dt", "dw", "dW", *FUNCTIONS)
OWN = (*RESERVED, "G", "pi")  # what has a meaning of its own, and can be no parameter, state or column
NOISE = re.compile(r"d[wW](?:[0-9]+|_[A-Za-z_0-9]+)?")  # dw, dw1, dw_wind; dwell is a name like any other

_TOKEN = re.compile(
    r"(?P<space>[ \t]+)"
    r"|(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z_0-9]*'{0,2})"
    r"|(?P<mark>\*\*|[-+*/()=,])"
)
_ABBREVIATES = re.compile(r"[ \t]*[A-Za-z_][A-Za-z_0-9]*'{0,2}[ \t]*(:=)")
_SECOND = re.compile(r"[ \t]*d[ \t]*(?:\^|\*\*)[ \t]*2[ \t]*(?P<state>[A-Za-z_][A-Za-z_0-9]*)")
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
    """One line of text, which knows how to show a place in itself."""

    number: int
    text: str
    origin: str = ""

    @property
    def place(self) -> str:
        """Where the line stands, in words."""
        return self.origin or f"line {self.number} of the equations"

    def error(self, problem: str, column: int) -> EquationError:
        """An error whose first line stands alone, with the line and a caret below."""
        start = max(0, column - 60)
        shown = "".join(c if c.isprintable() else " " for c in self.text[start : column + 60])
        # The indent of the user's text would only push the caret to the right.
        margin = len(shown) - len(shown.lstrip()) if column - start >= len(shown) - len(shown.lstrip()) else 0
        caret = " " * (column - start - margin) + "^"
        return EquationError(f"{self.place}: {problem}\n    {shown[margin:]}\n    {caret}")


def rows(text: str) -> list[str]:
    """The lines of a text. Not `splitlines`, which would also end a comment at rarer marks."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def tokens(line: Line) -> Iterator[Token]:
    """The tokens of a line, the last one its end."""
    if second := _SECOND.match(line.text):
        state = second["state"]
        raise line.error(f"a second derivative is written {state}'' = ...", second.end() - len(state))
    abbreviates = _ABBREVIATES.match(line.text)
    column = 0
    while column < len(line.text):
        if abbreviates and column == abbreviates.start(1):
            yield Token("mark", ":=", column)
            column += 2
            continue
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
