"""A right side such as `a*x*dt + s*dw` taken apart: the exact coefficients of dt and of each dw.

A whole equation is linear in dt and every dw. Its steps are walked once with sums of the kind c + Σ c_i d_i in place
of numbers, where c_i are formulas: sums add them, products and quotients by what has no differential scale them, and
everything else is refused at its place.
"""

import dataclasses

from sdefit.dynamics.expressions import Apply, Formula, Name, Number, Step
from sdefit.dynamics.parser import MAX_STEPS, Expression
from sdefit.dynamics.tokens import NOISE, Token
from sdefit.errors import EquationError

ONE: tuple[Step, ...] = (Number(1.0),)
REST = ""  # the term with no differential


@dataclasses.dataclass(frozen=True)
class Term:
    """The coefficient of one differential, and the place where it first stands."""

    steps: tuple[Step, ...]
    token: Token

    @property
    def formula(self) -> Formula:
        return Formula(self.steps)


Terms = dict[str, Term]  # by differential


def differential(name: str) -> str | None:
    """`dt`, or a noise in lower case, if the name is one of these."""
    if name == "dt":
        return name
    return name.lower()[:2] + name[2:] if NOISE.fullmatch(name) else None


def differentials(right: Expression) -> dict[str, Token]:
    """The differentials that stand in a formula, each with its first place."""
    found = [(differential(name), token) for name, token in right.names.items()]
    return {name: token for name, token in found if name is not None}


def terms(right: Expression) -> Terms:
    """The coefficient of each differential of a formula that is linear in them, and the rest under `REST`."""
    stack: list[Terms] = []
    for step, token in zip(right.steps, right.tokens, strict=True):
        match step:
            case Apply(word, count):
                given = stack[-count:]
                stack[-count:] = [_applied(right, word, given, token)]
            case Name(name) if symbol := differential(name):
                stack.append({symbol: Term(ONE, token)})
            case _:
                stack.append({REST: Term((step,), token)})
        if sum(len(term.steps) for term in stack[-1].values()) > MAX_STEPS:
            raise right.error(f"multiplied out, an equation must have at most {MAX_STEPS} steps; split it", token)
    return stack[0]


def _applied(right: Expression, word: str, given: list[Terms], token: Token) -> Terms:
    if all(list(one) == [REST] for one in given):
        steps = tuple(step for one in given for step in one[REST].steps)
        return {REST: Term((*steps, Apply(word, len(given))), _first(given))}
    match word:
        case "negate":
            return {name: Term((*term.steps, Apply("negate", 1)), term.token) for name, term in given[0].items()}
        case "+" | "-":
            return _sum(word, given[0], given[1])
        case "*" | "/" if list(given[1]) == [REST]:
            return {name: _scaled(term, word, given[1][REST]) for name, term in given[0].items()}
        case "*" if list(given[0]) == [REST]:
            return {name: _scaled(given[0][REST], word, term) for name, term in given[1].items()}
    raise _nonlinear(right, word, given, token)


def _first(given: list[Terms]) -> Token:
    return min((term.token for one in given for term in one.values()), key=lambda token: token.column)


def _sum(word: str, left: Terms, right: Terms) -> Terms:
    out = dict(left)
    for name, term in right.items():
        if name in left:
            out[name] = Term((*left[name].steps, *term.steps, Apply(word, 2)), left[name].token)
        else:
            out[name] = term if word == "+" else Term((*term.steps, Apply("negate", 1)), term.token)
    return out


def _scaled(left: Term, word: str, right: Term) -> Term:
    """The product or quotient of two coefficients; a differential that stands alone has the coefficient 1."""
    token = min(left.token, right.token, key=lambda one: one.column)
    if word == "*" and left.steps == ONE:
        return Term(right.steps, token)
    if word == "*" and right.steps == ONE:
        return Term(left.steps, token)
    return Term((*left.steps, *right.steps, Apply(word, 2)), token)


def _nonlinear(right: Expression, word: str, given: list[Terms], token: Token) -> EquationError:
    symbol = next(name for one in reversed(given) for name in one if name != REST)
    if word == "*":
        return right.error("dt and dw cannot be multiplied with each other", token)
    if word == "/":
        return right.error(f"nothing can be divided by {symbol}; write a formula times dt or dw", token)
    shown = f"a power of {symbol}" if word == "**" else f"{word}({symbol})"
    return right.error(f"{shown} cannot be read; an equation is a sum of formulas times dt and dw", token)
