"""`equations`: a model from text such as `dprey = a*prey - b*prey*predator`."""

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from sdefit.data.inputs import Hold
from sdefit.dynamics.differentials import differentials
from sdefit.dynamics.diffusion_rows import diffusion_of
from sdefit.dynamics.expressions import Formula, Name, Number
from sdefit.dynamics.formula_functions import (
    DiffusionEquations,
    Equations,
    ObservationEquations,
    SpreadEquation,
    names_of,
)
from sdefit.dynamics.grammar import Grammar, check_names, fill, grammar, lines_with
from sdefit.dynamics.laws import Law
from sdefit.dynamics.parameters import Parameter, as_parameters, positive, real
from sdefit.dynamics.parser import read_formula, rows
from sdefit.dynamics.sde import SDE, Drift, Initial, Structure
from sdefit.dynamics.tokens import RESERVED
from sdefit.errors import EquationError, ModelError


def equations(
    text: str,
    params: Mapping[str, Parameter | float] | None = None,
    diffusion: Structure | Drift | Sequence[Any] = "full",
    name: str = "model",
    inputs: Sequence[str] = (),
    hold: Hold = "linear",
    *,
    hidden: Sequence[str] = (),
    noise: Mapping[str, Law | str] | None = None,
    initial: Initial = None,
) -> SDE:
    """A model from one line per statement, with blank lines and # comments. Nothing in the text is executed.

    | line | meaning |
    |---|---|
    | `dx = ...` or `dx/dt = ...` | the drift of x; `diffusion` says what the noise is |
    | `dx = a*x*dt + s*x*dw` | a whole equation; `dw` is a noise of its own, `dw1` in two lines is one noise |
    | `x'' = -k*x - c*x' + s*dw` | two states, x and its velocity `x_dot` (written x'), which is hidden |
    | `y = k*x` | column y is observed; without such lines each state is, under its own name |
    | `flow := k*x` | an abbreviation for the lines below |

    A formula is made of numbers, names, the time `t`, `pi`, + - * / ** ( ) and exp, log, sqrt, sin, cos, tan,
    tanh, abs; operators group as in Python and numbers are floats.

    **Arguments**
    - `text`: the equations; the states come in their order.
    - `params`: the range of some parameters. A name that is no state or input is a parameter. It is positive if it
      stands in the noise alone (but real before a noise that a state above has too), else real, unless this says else.
    - `diffusion`: as for `sf.SDE`, or the entries of G: rows, or a list for a diagonal G, of numbers, formulas and
      "free". Left out for whole equations.
    - `inputs`: names of known inputs u(t), which the series must have.
    - `name`, `hold`, `hidden`, `noise`, `initial`: as for `sf.SDE`; the `sd` of a law may be a formula.

    **Raises** `EquationError` with the line and a caret below the place.

    >>> model = sf.equations("dx = rate*(level - x)*dt + s*x*dw", noise={"x": sf.normal(sd=0.1)})
    >>> model.params["rate"], model.params["s"]
    (Parameter(lower=-inf, upper=inf, ...), Parameter(lower=0.0, upper=inf, ...))
    """
    return model_of(text, params, diffusion, name, inputs, hold, hidden=hidden, noise=noise, initial=initial)


def model_of(
    text: str, params: Any, diffusion: Any, name: str, inputs: Sequence[str], hold: Hold, *, noise: Any, **rest: Any
) -> SDE:
    """The same for all arguments of `SDE`, an observation function of Python included."""
    if not isinstance(text, str):
        raise ModelError(f"equations must be text, one equation per line, not {type(text).__name__}")
    if isinstance(inputs, str):
        raise ModelError(f"inputs must be a list of names, not the string {inputs!r}; write [{inputs!r}]")
    laws = noise if isinstance(noise, Mapping) else {}
    found = grammar(text, tuple(laws))
    given = as_parameters({} if params is None else params)
    drift = Equations(found.states, found.drift, tuple(inputs), _tidy(text))
    g = diffusion_of(found, diffusion, tuple(given))
    spreads = {column: _with_spread(law, column, found) for column, law in laws.items()}
    uses = _Uses.of(found, g, spreads, drift.inputs)
    _check_uses(found, uses, drift.inputs, given)
    ranges = {one: given.get(one, uses.default(one)) for one in uses.parameters if one != "pi" or one in given}
    noise = spreads if isinstance(noise, Mapping) else noise
    return SDE(drift, drift.states, ranges, g, name, drift.inputs, hold, noise=noise, **_observed(found, rest))


def observation_of(found: Grammar) -> ObservationEquations | None:
    """The observation function of the text's observation lines; None where these name states as they are."""
    plain = all(one == Formula((Name(column),)) for column, one in zip(found.columns, found.observed, strict=True))
    if plain and found.columns == tuple(one for one in found.states if one in found.columns):
        return None
    return ObservationEquations(found.states, found.observed)


def _observed(found: Grammar, rest: dict[str, Any]) -> dict[str, Any]:
    """The arguments with what `SDE` takes to say what is observed."""
    hidden = rest["hidden"] or ()
    if not found.columns:
        if isinstance(hidden, str) or "observe" in rest:
            return rest
        return rest | {"hidden": [*found.velocities, *(one for one in hidden if one not in found.velocities)]}
    if hidden:
        raise ModelError("hidden must be left out beside observation lines, which say what is observed")
    if "observe" in rest:
        raise ModelError("observe must be left out beside observation lines, which say what is observed")
    if (observe := observation_of(found)) is not None:
        return rest | {"observe": observe, "observations": found.columns}
    return rest | {"hidden": [one for one in found.states if one not in found.columns]}


def _with_spread(law: Any, column: str, found: Grammar) -> Any:
    """The law, with the formula of its standard deviation read."""
    if not isinstance(law, Law) or not isinstance(law.sd, str):
        return law
    right = read_formula(law.sd, f"the sd of {column!r}")
    check_names(right, found.states, found.velocities)
    for symbol, token in differentials(right).items():
        raise right.error(f"a standard deviation must be without {symbol}", token)
    columns = {name: one.steps for name, one in zip(found.columns, found.observed, strict=True)}
    known = {name: one for name, one in columns.items() if name not in found.states} | found.abbreviations
    formula = fill(right, known).formula
    match formula.steps:
        case (Number(value),):
            return dataclasses.replace(law, sd=value)
    return dataclasses.replace(law, sd=SpreadEquation(found.states, formula, law.sd))


@dataclasses.dataclass(frozen=True)
class _Uses:
    """Which names stand where; what is no state, time or input is a parameter."""

    motion: tuple[str, ...]  # in the drift and the observation
    noise: tuple[str, ...]
    signed: tuple[str, ...]
    parameters: tuple[str, ...]

    @classmethod
    def of(cls, found: Grammar, g: Any, laws: Mapping[str, Any], inputs: Sequence[str]) -> "_Uses":
        motion = names_of((*found.drift, *found.observed))
        spreads = [law.sd for law in laws.values() if isinstance(law, Law) and isinstance(law.sd, SpreadEquation)]
        noise = [
            *(g.names if isinstance(g, DiffusionEquations) else ()),
            *(name for sd in spreads for name in sd.names),
        ]
        signed = g.signed if isinstance(g, DiffusionEquations) else ()
        order = dict.fromkeys((*names_of(found.drift), *noise, *motion))
        parameters = tuple(one for one in order if one not in ("t", *found.states, *inputs))
        return cls(motion, tuple(noise), signed, parameters)

    def default(self, name: str) -> Parameter:
        """The range of a parameter that the user says nothing about."""
        return real() if name in self.motion or name in self.signed else positive()


def _check_uses(found: Grammar, uses: _Uses, inputs: Sequence[str], given: Mapping[str, Parameter]) -> None:
    """Refuse one name for two things, and `params` or `inputs` that do not occur."""
    for column in found.columns:
        if column in found.states or column in found.abbreviations:
            continue
        for right, token in lines_with(found, column):
            hint = f"to abbreviate, write {column} := ... above this line"
            raise right.error(f"{column!r} is an observed column, so it cannot stand here; {hint}", token)
    known = (*uses.motion, *uses.noise)
    for name in inputs:
        if name in ("G", *RESERVED, *found.states, *found.columns, *given) or name not in known:
            raise ModelError(f"input {name!r} must be a name in the equations, and no state, parameter or t")
    for name in given:
        if name not in uses.parameters:
            said = ", ".join(one for one in uses.parameters if one != "pi") or "none"
            raise ModelError(f"params names {name!r}, which is not a parameter of the equations; those are: {said}")


def _tidy(text: str) -> str:
    tidy = textwrap.dedent("\n".join(row.rstrip() for row in rows(text))).strip("\n")
    try:
        tidy.encode()
    except UnicodeEncodeError:
        raise EquationError("the equations hold a character that cannot be written to a file; remove it") from None
    return tidy
