"""A model's text as its parts: equations of motion, diffusion, observation lines and abbreviations.

The rules by which a line is read:

1. `x'' = ...`, `dx/dt = ...`, and `dx = ...` with dt or a noise on its right side are equations of motion.
2. `dx = ...` without them is an equation of motion too if x is used as a name on some right side, if the formula is 0,
   and in a text where no line has dt or a noise. Otherwise it is a column called dx (as in `dose = k*x`), and so is a
   line that `noise` names. Beside whole equations such a column must not be called d and one letter, which is more
   often a dt forgotten.
3. `name := formula` abbreviates, in the lines below it. Any other `name = formula` is a column that is observed.
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping

from sdefit.dynamics.differentials import REST, Terms, differential, differentials, terms
from sdefit.dynamics.expressions import Apply, Formula, Name, Number, Step
from sdefit.dynamics.parser import MAX_STEPS, MAX_TEXT, Expression, Statement, read, velocity
from sdefit.dynamics.tokens import Token
from sdefit.errors import EquationError

ZERO = Formula((Number(0.0),))


@dataclasses.dataclass(frozen=True)
class Entry:
    """One entry of the diffusion: the formula in front of a noise, in one state's equation."""

    row: int
    column: int
    formula: Formula


@dataclasses.dataclass(frozen=True)
class Grammar:
    """The parts of a model's text, abbreviations filled in."""

    states: tuple[str, ...]
    drift: tuple[Formula, ...]
    whole: bool  # whether the lines are whole equations, with dt and the noise
    noises: tuple[str, ...]
    entries: tuple[Entry, ...]
    columns: tuple[str, ...]
    observed: tuple[Formula, ...]
    positions: tuple[str, ...]  # the states x of lines x'' = ...
    abbreviations: dict[str, tuple[Step, ...]]
    places: tuple[tuple[Expression, dict[str, Token]], ...]  # of each line the names in it, for errors

    @property
    def velocities(self) -> tuple[str, ...]:
        return tuple(velocity(one) for one in self.positions)


def grammar(text: str, named: Collection[str] = ()) -> Grammar:
    """The parts of a text; `named` are the columns that `noise` names."""
    statements = read(text)
    if not statements:
        raise EquationError("the equations are empty; write one line per state, as in dx = -a*x")
    whole = any(one.state and differentials(one.right) for one in statements)
    motions, columns, short = _sorted(statements, whole, named)
    if not motions:
        raise statements[0].error("an equation must begin with d and the name of a state, as in dprey = ...")
    states = _states(motions)
    positions = tuple(_state(one).text for one in motions if one.form == "second")
    for one in statements:
        check_names(one.right, states, [velocity(name) for name in positions])
    filled = _filled(statements, short, states)
    drift, noises, entries = _motion(motions, states, whole, filled)
    return Grammar(
        states=states,
        drift=drift,
        whole=whole,
        noises=noises,
        entries=entries,
        columns=tuple(one.left.text for one in columns),
        observed=tuple(_observed(one, filled[one.line.number], states) for one in columns),
        positions=positions,
        abbreviations={one.left.text: filled[one.line.number].steps for one in short},
        places=tuple((one.right, one.right.names) for one in statements),
    )


def _state(statement: Statement) -> Token:
    state = statement.state
    assert state is not None  # an equation of motion has one
    return state


def _sorted(
    statements: list[Statement], whole: bool, named: Collection[str]
) -> tuple[list[Statement], list[Statement], list[Statement]]:
    """The equations of motion, the observation lines and the abbreviations."""
    used = {name for one in statements for name in one.right.names}
    motions, columns, short = [], [], []
    for one in statements:
        if one.form == "abbreviation":
            short.append(one)
        elif _moves(one, whole, used, named):
            motions.append(one)
        else:
            columns.append(one)
    for one in columns:
        same = next(other for other in columns if other.left.text == one.left.text)
        if same is not one:
            raise one.error(f"the column {one.left} already has a line, {same.line.place}")
    return motions, columns, short


def _moves(one: Statement, whole: bool, used: set[str], named: Collection[str]) -> bool:
    """Whether a line is an equation of motion, by the rules at the top."""
    if one.state is None:
        return False
    if one.form in ("rate", "second") or differentials(one.right):
        return True
    if one.state.text in used or one.right.formula == ZERO:
        return True
    if one.left.text in named:
        return False
    if whole and len(one.state.text) == 1:
        raise one.error(
            f"this line has neither dt nor a noise; write {_times_dt(one)} for an equation of motion, or give a column "
            "that is observed another name",
            one.right.tokens[0],
        )
    return not whole


def _times_dt(one: Statement, formula: Formula | None = None) -> str:
    shown = str(formula or one.right.formula)
    return f"d{_state(one).text} = ({shown if len(shown) <= 40 else '...'})*dt"


def _states(motions: list[Statement]) -> tuple[str, ...]:
    seen: dict[str, int] = {}
    for one in motions:
        state = _state(one)
        for name in (state.text, velocity(state.text)) if one.form == "second" else (state.text,):
            if name in seen:
                raise one.error(f"{name!r} already has an equation, on line {seen[name]}", state)
            seen[name] = one.line.number
    return tuple(seen)


def check_names(right: Expression, states: Collection[str], velocities: Collection[str]) -> None:
    """Refuse names on a right side that cannot mean what the user hopes."""
    for name, token in right.names.items():
        if token.text.endswith("'") and name not in velocities:
            base = token.text[:-1]
            raise right.error(f"{token} is the velocity of a line {base}'' = ..., and there is none", token)
        if name[:1] == "d" and name[1:] in states:
            hint = "; number the noise, as in dw_1" if differential(name) else ""
            raise right.error(f"the derivative {name!r} cannot stand on the right side{hint}", token)
        if name == "G":
            raise right.error("'G' is the diffusion matrix here; choose another name", token)


def _filled(statements: list[Statement], short: list[Statement], states: tuple[str, ...]) -> dict[int, Expression]:
    """The right side of each line, by the line's number, with the abbreviations of the lines above filled in."""
    below = {one.left.text: one for one in short}
    known: dict[str, tuple[Step, ...]] = {}
    filled: dict[int, Expression] = {}
    size = 0
    for one in statements:
        for name, token in one.right.names.items():
            if name in below and name not in known:
                number = below[name].line.number
                raise one.error(f"{name!r} is defined on line {number}; move that line above this one", token)
        if one.form == "abbreviation":
            _check_abbreviation(one, known, states)
        expanded = fill(one.right, known)
        size += len(expanded.steps)
        if size > MAX_TEXT:
            raise one.error(f"with abbreviations filled in, a model must have at most {MAX_TEXT} steps; shorten it")
        filled[one.line.number] = expanded
        if one.form == "abbreviation":
            known[one.left.text] = expanded.steps
    return filled


def _check_abbreviation(one: Statement, known: Collection[str], states: tuple[str, ...]) -> None:
    name = one.left.text
    if name.endswith("'") or name in states:
        raise one.error(f"{one.left} is a state; an abbreviation must have another name")
    if name in known:
        raise one.error(f"{one.left} is already defined; give this another name")
    if differential(name):
        raise one.error(f"{one.left} is a noise; an abbreviation must have another name")
    for symbol, token in differentials(one.right).items():
        raise one.error(f"an abbreviation must be without {symbol}; write {symbol} in the equation of motion", token)


def fill(right: Expression, known: Mapping[str, tuple[Step, ...]]) -> Expression:
    """The formula with each abbreviation replaced by what it stands for."""
    if not any(isinstance(step, Name) and step.name in known for step in right.steps):
        return right
    pairs: list[tuple] = []
    for step, token in zip(right.steps, right.tokens, strict=True):
        inner = known[step.name] if isinstance(step, Name) and step.name in known else (step,)
        pairs += [(one, token) for one in inner]
        if len(pairs) > MAX_STEPS:
            raise right.error(
                f"with its abbreviations filled in, an equation must have at most {MAX_STEPS} numbers, names and "
                "operations", token,
            )  # fmt: skip
    return Expression(right.line, tuple(one for one, _ in pairs), tuple(token for _, token in pairs))


def _motion(
    motions: list[Statement], states: tuple[str, ...], whole: bool, filled: dict[int, Expression]
) -> tuple[tuple[Formula, ...], tuple[str, ...], tuple[Entry, ...]]:
    """The drift of every state, the noises, and what stands in front of each."""
    drift: list[Formula] = []
    noises: dict[tuple[str, int], int] = {}
    entries: list[Entry] = []
    for one in motions:
        right = filled[one.line.number]
        if one.form == "second":
            drift.append(Formula((Name(velocity(_state(one).text)),)))
        if not whole:
            drift.append(right.formula)
            continue
        found = terms(right)
        drift.append(_second(one, found) if one.form == "second" else _first(one, found))
        for name, term in found.items():
            if name not in (REST, "dt"):
                # dw alone is a noise of this line's own.
                key = (name, len(drift) if name == "dw" else 0)
                entries.append(Entry(len(drift) - 1, noises.setdefault(key, len(noises)), term.formula))
    return tuple(drift), tuple(name for name, _ in noises), tuple(entries)


def _second(one: Statement, found: Terms) -> Formula:
    """The acceleration of a line x'' = ..., which has no dt."""
    if "dt" in found:
        raise one.error(f"{one.left} is per unit of time already; write it without dt", found["dt"].token)
    return found[REST].formula if REST in found else ZERO


def _first(one: Statement, found: Terms) -> Formula:
    """The coefficient of dt of a whole equation."""
    rest = found.get(REST)
    if rest is not None and rest.formula != ZERO:
        raise one.error(_without_dt(one, found), rest.token)
    if one.form == "rate":
        token = next(iter(found.values())).token
        raise one.error(f"the left side must be d{_state(one).text}, as other lines have dt or a noise", token)
    return found["dt"].formula if "dt" in found else ZERO


def _without_dt(one: Statement, found: Terms) -> str:
    rest = found[REST].formula
    if list(found) == [REST]:
        return f"this line has neither dt nor a noise, but others have; write {_times_dt(one, rest)}"
    noise = [f"{term.formula.factor}*{name}" for name, term in found.items() if name not in (REST, "dt")]
    drift = Formula((*rest.steps, *found["dt"].steps, Apply("+", 2))) if "dt" in found else rest
    line = " + ".join([_times_dt(one, drift), *noise])
    return "a term has neither dt nor a noise; write " + (line if len(line) <= 100 else "(...)*dt for it")


def _observed(one: Statement, right: Expression, states: tuple[str, ...]) -> Formula:
    """The formula of an observation line, which must depend on a state."""
    for symbol, token in differentials(right).items():
        name = one.left.text
        hint = f"write d{name} = ... for an equation of motion; noise={{{name!r}: ...}} says what a column's noise is"
        raise one.error(f"{symbol} cannot stand in an observation; {hint}", token)
    if not any(name in states for name in right.names):
        raise one.error(
            f"an observation must depend on a state, and none stands here; the states are {', '.join(states)}",
            right.tokens[0],
        )
    return right.formula


def lines_with(found: Grammar, name: str) -> Iterator[tuple[Expression, Token]]:
    """Each line in which a name stands, with its place."""
    for right, names in found.places:
        if name in names:
            yield right, names[name]
