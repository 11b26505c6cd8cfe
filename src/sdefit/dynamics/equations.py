"""`equations`: a model from text such as `dprey = a*prey - b*prey*predator`."""

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from sdefit._types import Array, Float
from sdefit.data.inputs import Hold
from sdefit.dynamics.expressions import PLAIN, Formula
from sdefit.dynamics.parameters import Parameter, as_parameters, real
from sdefit.dynamics.parser import RESERVED, Equation, read, rows
from sdefit.dynamics.sde import SDE, Diffusion
from sdefit.errors import EquationError, ModelError


def equations(
    text: str,
    params: Mapping[str, Parameter | float] | None = None,
    diffusion: Diffusion = "full",
    name: str = "model",
    inputs: Sequence[str] = (),
    hold: Hold = "linear",
) -> SDE:
    """A model from one equation per line: `dx = ...` or `dx/dt = ...`, with blank lines and # comments.

    A formula is made of numbers, names, the time `t`, + - * / ** ( ) and exp, log, sqrt, sin, cos, tan,
    tanh, abs; operators group as in Python and numbers are floats. Nothing in the text is executed.

    **Arguments**
    - `text`: the equations; the states come in their order.
    - `params`: the range of some parameters. A name that is not a state, `t` or an input is a parameter,
      and is real unless this says otherwise.
    - `diffusion`, `name`: as for `sf.SDE`.
    - `inputs`: names of known inputs u(t), which the series must have.
    - `hold`: what an input is between two rows: "linear" or "previous", as for `sf.SDE`.

    **Raises** `EquationError` with the line and a caret below the place.

    >>> print(sf.equations("dx = rate*(level - x)", params={"rate": sf.positive()}))
    model: dx = f(t, x, θ) dt + G dw  (Itô, constant G)
      dx/dt = rate*(level - x)
      states      x
      parameters  rate   positive
                  level  real
      diffusion   full: G is lower triangular, every entry estimated
    """
    if not isinstance(text, str):
        raise ModelError(f"equations must be text, one equation per line, not {type(text).__name__}")
    if isinstance(inputs, str):
        raise ModelError(f"inputs must be a list of names, not the string {inputs!r}; write [{inputs!r}]")
    found = read(text)
    drift = Equations(_states(found), tuple(one.formula for one in found), tuple(inputs), _tidy(text))
    given = as_parameters({} if params is None else params)
    _check_names(found, drift, given)
    ranges = {one: given.get(one, real()) for one in drift.parameters}
    return SDE(drift, drift.states, ranges, diffusion, name, drift.inputs, hold)


@dataclasses.dataclass(frozen=True)
class Equations:
    """A drift f(t, x, p) read from text; a value, equal to every other with the same formulas."""

    states: tuple[str, ...]
    formulas: tuple[Formula, ...]
    inputs: tuple[str, ...]
    # As the user wrote it, comments and all; two texts of the same formulas are the same drift.
    text: str = dataclasses.field(compare=False, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name in the formulas, in order of appearance."""
        return tuple(dict.fromkeys(name for formula in self.formulas for name in formula.names))

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names that are parameters, in order of appearance."""
        return tuple(name for name in self.names if name not in ("t", *self.states, *self.inputs))

    def __call__(self, t: Any, x: Any, p: Mapping[str, Any]) -> Float[Array, "state"]:
        x = jnp.asarray(x, jnp.result_type(x, float))
        if x.shape != (len(self.states),):
            raise ModelError(f"x must hold {len(self.states)} number(s), one per state, but its shape is {x.shape}")
        values = {"t": jnp.asarray(t, x.dtype)} | {name: x[i] for i, name in enumerate(self.states)}
        for name in (*self.parameters, *self.inputs):
            if name not in p:
                raise ModelError(f"the drift needs a value for {name!r}, but only {', '.join(p) or 'none'} came")
            values[name] = jnp.asarray(p[name], x.dtype)
        return jnp.stack([jnp.asarray(one.evaluate(values, _TRACED), x.dtype) for one in self.formulas])


def _power(base: Any, exponent: Any) -> Any:
    # A whole constant exponent becomes multiplications: faster, and exact derivatives at and below zero.
    if isinstance(exponent, float) and exponent.is_integer() and abs(exponent) <= 64:
        return base ** int(exponent)
    return jnp.power(base, exponent)


_TRACED = PLAIN | {word: getattr(jnp, word) for word in PLAIN if word.isalpha() and word != "negate"} | {"**": _power}


def _tidy(text: str) -> str:
    tidy = textwrap.dedent("\n".join(row.rstrip() for row in rows(text))).strip("\n")
    try:
        tidy.encode()
    except UnicodeEncodeError:
        raise EquationError("the equations hold a character that cannot be written to a file; remove it") from None
    return tidy


def _states(found: list[Equation]) -> tuple[str, ...]:
    if not found:
        raise EquationError("the equations are empty; write one line per state, as in dx = -a*x")
    seen: dict[str, int] = {}
    for one in found:
        state = one.state.text
        if state in seen:
            raise one.line.error(f"{state!r} already has an equation, on line {seen[state]}", one.state.column)
        seen[state] = one.line.number
    return tuple(seen)


def _check_names(found: list[Equation], drift: Equations, given: Mapping[str, Parameter]) -> None:
    """Refuses names that cannot mean what the user hopes, and `params` or `inputs` that do not occur."""
    for one in found:
        for name, column in one.places.items():
            if name[:1] == "d" and name[1:] in drift.states:
                raise one.line.error(f"the derivative {name!r} cannot stand on the right side", column)
            if name == "pi" and name in drift.parameters and name not in given:
                raise one.line.error("'pi' is not known here; write 3.141592653589793, or give it in params", column)
    for name in drift.inputs:
        if name in RESERVED or name in drift.states or name in given or name not in drift.names:
            raise ModelError(f"input {name!r} must be a name in the equations, and no state, parameter or t")
    for name in given:
        if name not in drift.parameters:
            known = ", ".join(drift.parameters) or "none"
            raise ModelError(f"params names {name!r}, which is not a parameter of the equations; those are: {known}")
