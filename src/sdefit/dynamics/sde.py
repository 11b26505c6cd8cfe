"""`SDE`: the model dx = f(t, x, θ) dt + G dw, with the shape of G and the ranges of θ."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import jax.numpy as jnp

from sdefit._types import Array, Float, Scalar, Theta
from sdefit.data.inputs import Hold, TimeWithInputs
from sdefit.display.notebook import as_html
from sdefit.dynamics import printing
from sdefit.dynamics.parameters import Bounds, Parameter, as_parameters
from sdefit.errors import ModelError

Diffusion = Literal["full", "diagonal", "scalar", "none"]
Drift = Callable[[Any, Any, Mapping[str, Any]], Any]


@dataclasses.dataclass(frozen=True, init=False)
class SDE:
    """A stochastic differential equation dx = f(t, x, θ) dt + G dw (Itô) with constant G.

    **Arguments**
    - `drift`: a callable `f(t, x, p)`; `x` is an array of the states, `p` a mapping of parameter
      names to numbers. It returns an array (or a list) of one derivative per state.
    - `states`: the names of the states, in order.
    - `params`: parameter names to `sf.real()`, `sf.positive()`, `sf.interval(a, b)` or `sf.fixed(v)`.
    - `diffusion`: what is estimated of the lower-triangular G: "full", "diagonal", "scalar" (G = g I)
      or "none" (an ODE).
    - `name`: a short name for reports.
    - `inputs`: names of known inputs u(t), which the series must have; `p` holds their values at time t too.
    - `hold`: what an input is between two rows of the series: "linear", on the line from one to the next, or
      "previous", as at the row before.

    A model is a value: two models made of equal parts are equal, and share compiled programs.

    >>> model = sf.SDE(lambda t, x, p: -p["rate"] * x, ["x"], {"rate": sf.positive()})
    >>> model.free
    ('rate',)
    """

    drift: Drift
    states: tuple[str, ...]
    parameters: tuple[tuple[str, Parameter], ...]
    diffusion: Diffusion
    name: str
    inputs: tuple[str, ...]
    hold: Hold

    def __init__(
        self,
        drift: Drift,
        states: Sequence[str],
        params: Mapping[str, Parameter | float],
        diffusion: Diffusion = "full",
        name: str = "model",
        inputs: Sequence[str] = (),
        hold: Hold = "linear",
    ) -> None:
        _check_drift(drift)
        _check_names("states", states)
        parameters = as_parameters(params)
        if parameters:
            _check_names("params", list(parameters))
        if shared := [one for one in states if one in parameters]:
            raise ModelError(f"a name must be a state or a parameter, but {', '.join(map(repr, shared))} is both")
        if diffusion not in get_args(Diffusion):
            raise ModelError(f"diffusion must be one of {', '.join(get_args(Diffusion))}, not {diffusion!r}")
        if not isinstance(name, str):
            raise ModelError(f"a model's name must be text, not {name!r}")
        _check_inputs(inputs, hold, [*states, *parameters])
        put = object.__setattr__
        put(self, "drift", drift)
        put(self, "states", tuple(states))
        put(self, "parameters", tuple(parameters.items()))
        put(self, "diffusion", diffusion)
        put(self, "name", name)
        put(self, "inputs", tuple(inputs))
        put(self, "hold", hold)

    def __str__(self) -> str:
        return printing.text(self)

    def __repr__(self) -> str:
        return (
            f"SDE({self.name!r}, drift={printing.reference(self.drift)}, states={list(self.states)}, "
            f"params={list(self.params)}, diffusion={self.diffusion!r})"
        )

    def _repr_html_(self) -> str:
        rows = [{"parameter": name, "range": one} for name, one in self.parameters]
        head = f"{self.name}: states {', '.join(self.states)}; diffusion {self.diffusion}"
        try:
            return as_html(head, rows, equations=printing.mathml(self))
        except ValueError:  # a formula that nests too deep
            return as_html(head, rows, str(self).split("\n"))

    def latex(self) -> str:
        """The equations as LaTeX, for math mode."""
        return printing.latex(self)

    @property
    def params(self) -> dict[str, Parameter]:
        """Parameter names to their ranges, in order."""
        return dict(self.parameters)

    @property
    def free(self) -> tuple[str, ...]:
        """The names of the parameters that are estimated, in the order of the vector θ."""
        return tuple(name for name, p in self.parameters if not p.fixed)

    @property
    def bounds(self) -> Bounds:
        """The bounds of the vector θ."""
        return Bounds.of([p for _, p in self.parameters if not p.fixed])

    @property
    def starts(self) -> tuple[float, ...]:
        """The user's start value of each entry of θ; NaN where none was given."""
        return tuple(float("nan") if p.start is None else p.start for _, p in self.parameters if not p.fixed)

    def named(self, theta: Theta) -> dict[str, Any]:
        """The vector θ as a mapping of names, fixed parameters included."""
        free = dict(zip(self.free, theta, strict=True))
        return {name: free[name] if p.value is None else p.value for name, p in self.parameters}

    def f(self, t: Scalar | TimeWithInputs, x: Float[Array, "state"], theta: Theta) -> Float[Array, "state"]:
        """The drift at one point, in the user's units, as an array of one number per state.

        A model with inputs needs a `TimeWithInputs`, a time that knows them.
        """
        names = self.named(theta)
        if isinstance(t, TimeWithInputs):
            t, names = t.time, names | t.inputs(self.inputs, self.hold)
        elif self.inputs:
            raise ModelError(f"the drift needs the inputs {', '.join(self.inputs)}, but only a time came")
        return self.f_named(t, x, names)

    def f_named(self, t: Scalar, x: Float[Array, "state"], names: Mapping[str, Any]) -> Float[Array, "state"]:
        """The drift at one point, from a mapping of all parameters and inputs by name."""
        value = self.drift(t, x, names)
        if isinstance(value, list | tuple):
            value = jnp.stack([jnp.asarray(v, x.dtype) for v in value])
        value = jnp.asarray(value, x.dtype)
        if value.shape != x.shape:
            raise ModelError(
                f"drift must return {len(self.states)} number(s), one per state, but returned shape {value.shape}"
            )
        return value


def _check_drift(drift: Drift) -> None:
    if not callable(drift):
        raise ModelError(f"drift must be a callable f(t, x, p), not {type(drift).__name__}")
    try:
        hash(drift)
    except TypeError:
        # A model is the key of its compiled programs, so every part of it must be a value.
        kind = type(drift).__name__
        raise ModelError(f"drift must be a function or hashable object, but a {kind} that holds arrays came") from None


def _check_inputs(inputs: Sequence[str], hold: Hold, taken: Sequence[str]) -> None:
    if isinstance(inputs, str) or inputs:
        _check_names("inputs", inputs)
    if shared := [one for one in inputs if one in taken]:
        raise ModelError(f"input {shared[0]!r} must not have the name of a state or parameter; rename one of them")
    if hold not in get_args(Hold):
        raise ModelError(f"hold must be one of {', '.join(get_args(Hold))}, not {hold!r}")


def _check_names(word: str, names: Sequence[str]) -> None:
    if isinstance(names, str):
        raise ModelError(f"{word} must be a list of names, not the string {names!r}; write [{names!r}]")
    if not isinstance(names, Sequence):
        raise ModelError(f"{word} must be a list of names, not {type(names).__name__}")
    if not names or any(not isinstance(one, str) or not one.strip() or not one.isprintable() for one in names):
        raise ModelError(f"{word} must be one or more names, each a line of text, not {list(names)!r}")
    if len(set(names)) != len(names):
        raise ModelError(f"{word} must be different names, not {list(names)}")
