"""`SDE`: the model dx = f(t, x, θ) dt + g(t, x, θ) dw, what is observed of it, and the ranges of θ."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Float, Scalar, Theta
from sdefit.data.inputs import Hold, TimeWithInputs
from sdefit.display.notebook import as_html
from sdefit.dynamics import printing
from sdefit.dynamics.laws import Law, Normal
from sdefit.dynamics.parameters import Bounds, Parameter, as_parameters
from sdefit.dynamics.sde_arguments import (
    check_function,
    check_inputs,
    check_names,
    initial_of,
    laws_of,
    observed_columns,
)
from sdefit.errors import ModelError

Structure = Literal["full", "diagonal", "scalar", "none"]
Diffusion = Literal["full", "diagonal", "scalar", "none", "given"]
Drift = Callable[[Any, Any, Mapping[str, Any]], Any]
# Where the states begin: a state's number, or its mean and standard deviation; or one word for all of them.
Initial: TypeAlias = Mapping[str, float | tuple[float, float]] | Literal["rest", "stationary"] | None


@dataclasses.dataclass(frozen=True, init=False)
class SDE:
    """A stochastic differential equation dx = f(t, x, θ) dt + g(t, x, θ) dw (Itô), and what is observed of it.

    **Arguments**
    - `drift`: a callable `f(t, x, p)`; `x` is an array of the states, `p` a mapping of parameter
      names to numbers. It returns an array (or a list) of one derivative per state.
    - `states`: the names of the states, in order.
    - `params`: parameter names to `sf.real()`, `sf.positive()`, `sf.interval(a, b)` or `sf.fixed(v)`.
    - `diffusion`: what is estimated of a constant lower-triangular G: "full", "diagonal", "scalar" (G = g I)
      or "none" (an ODE). Or a callable `g(t, x, p)` that returns a matrix of one row for each state and one column for
      each independent noise; an array of one number per state stands for a diagonal matrix.
    - `name`: a short name for reports.
    - `inputs`: names of known inputs u(t), which the series must have; `p` holds their values at time t too.
    - `hold`: what an input is between two rows of the series: "linear", on the line from one to the next, or
      "previous", as at the row before.
    - `observe`: a callable `h(t, x, p)` that returns one number per observed column; without it the states themselves
      are observed.
    - `observations`: the names of the observed columns, which `observe` needs.
    - `hidden`: without `observe`, the states that are not observed.
    - `noise`: the observation law of some columns: `sf.normal()`, `sf.normal(sd=0.1)`, `sf.lognormal()`, or a name.
      Every other column is normal with a standard deviation that is estimated.
    - `initial`: where the states begin, if that is known: "rest" (at f = 0), "stationary" (the stationary distribution
      of the linearised equation), or some states' numbers, each a value or a pair of mean and standard deviation.

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
    g_function: Drift | None
    h_function: Drift | None
    observations: tuple[str, ...]
    laws: tuple[Law, ...]
    initial: tuple[tuple[str, float, float], ...] | str | None

    def __init__(
        self,
        drift: Drift,
        states: Sequence[str],
        params: Mapping[str, Parameter | float],
        diffusion: Structure | Drift = "full",
        name: str = "model",
        inputs: Sequence[str] = (),
        hold: Hold = "linear",
        *,
        observe: Drift | None = None,
        observations: Sequence[str] = (),
        hidden: Sequence[str] = (),
        noise: Mapping[str, Law | str] | None = None,
        initial: Initial = None,
    ) -> None:
        check_function("drift", drift)
        check_names("states", states)
        parameters = as_parameters(params)
        if parameters:
            check_names("params", list(parameters))
        if shared := [one for one in states if one in parameters]:
            raise ModelError(f"a name must be a state or a parameter, but {', '.join(map(repr, shared))} is both")
        if not callable(diffusion) and diffusion not in get_args(Structure):
            raise ModelError(
                f"diffusion must be one of {', '.join(get_args(Structure))}, or a callable (t, x, p), not {diffusion!r}"
            )
        if not isinstance(name, str):
            raise ModelError(f"a model's name must be text, not {name!r}")
        check_inputs(inputs, hold, [*states, *parameters])
        if callable(diffusion):
            check_function("diffusion", diffusion)
        observed = observed_columns(states, observe, observations, hidden)
        put = object.__setattr__
        put(self, "drift", drift)
        put(self, "states", tuple(states))
        put(self, "parameters", tuple(parameters.items()))
        put(self, "diffusion", "given" if callable(diffusion) else diffusion)
        put(self, "name", name)
        put(self, "inputs", tuple(inputs))
        put(self, "hold", hold)
        put(self, "g_function", diffusion if callable(diffusion) else None)
        put(self, "h_function", observe)
        put(self, "observations", observed)
        put(self, "laws", laws_of(observed, noise))
        put(self, "initial", initial_of(tuple(states), initial))

    def replace(self, **changes: Any) -> "SDE":
        """The model with other arguments: those of `SDE` by name."""
        hidden = [] if self.h_function else [one for one in self.states if one not in self.observations]
        initial = self.initial if isinstance(self.initial, str | None) else {k: (m, s) for k, m, s in self.initial}
        own: dict[str, Any] = {
            "drift": self.drift, "states": self.states, "params": self.params,
            "diffusion": self.g_function or self.diffusion, "name": self.name, "inputs": self.inputs, "hold": self.hold,
            "observe": self.h_function, "observations": self.observations if self.h_function else (), "hidden": hidden,
            "noise": dict(zip(self.observations, self.laws, strict=True)), "initial": initial,
        }  # fmt: skip
        return SDE(**(own | changes))

    def __str__(self) -> str:
        return printing.text(self)

    def __repr__(self) -> str:
        seen = "" if self.observations == self.states else f", observations={list(self.observations)}"
        return (
            f"SDE({self.name!r}, drift={printing.reference(self.drift)}, states={list(self.states)}, "
            f"params={list(self.params)}, diffusion={self.diffusion!r}{seen})"
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

    @property
    def general(self) -> bool:
        """Whether the model is outside the class that every method takes.

        That class has a constant G whose structure alone is given, every state observed as it is, normal noise whose
        standard deviation is estimated, and nothing known of where the states begin.
        """
        plain = all(type(law) is Normal and law.estimated for law in self.laws)
        return self.diffusion == "given" or self.observations != self.states or self.h_function is not None or (
            not plain or self.initial is not None
        )  # fmt: skip

    @functools.cached_property
    def direct(self) -> tuple[int | None, ...]:
        """For each observed column the index of the state that it measures as it is, None for any other formula."""
        if self.h_function is None:
            found: list[int | None] = [self.states.index(one) for one in self.observations]
        else:
            found = _identities(self)
        # A state that two columns measure is observed directly by the first of them.
        return tuple(one if type(law) is Normal and one not in found[:i] else None
                     for i, (one, law) in enumerate(zip(found, self.laws, strict=True)))  # fmt: skip

    @property
    def hidden(self) -> tuple[str, ...]:
        """The states that no column measures as they are."""
        return tuple(state for k, state in enumerate(self.states) if k not in self.direct)

    def f(self, t: Scalar | TimeWithInputs, x: Float[Array, "state"], theta: Theta) -> Float[Array, "state"]:
        """The drift at one point, in the user's units, as an array of one number per state.

        A model with inputs needs a `TimeWithInputs`, a time that knows them.
        """
        return self.f_named(*self.point(t, x, theta))

    def g(self, t: Scalar | TimeWithInputs, x: Float[Array, "state"], theta: Theta) -> Float[Array, "state noises"]:
        """The diffusion of a model that gives it, at one point, in the user's units."""
        return self.g_named(*self.point(t, x, theta))

    def h(self, t: Scalar | TimeWithInputs, x: Float[Array, "state"], theta: Theta) -> Float[Array, "columns"]:
        """What the columns measure, at one point, without noise and in the user's units."""
        return self.h_named(*self.point(t, x, theta))

    def noise_std(self, t: Scalar | TimeWithInputs, x: Float[Array, "state"], theta: Theta) -> Float[Array, "columns"]:
        """The standard deviation of each column's noise where the model gives it, on its law's scale; 0 elsewhere."""
        t, x, names = self.point(t, x, theta)
        given = (law.sd(t, x, names) if callable(law.sd) else law.sd or 0.0 for law in self.laws)
        return jnp.stack([jnp.asarray(one, x.dtype).reshape(()) for one in given])

    def f_named(self, t: Scalar, x: Float[Array, "state"], names: Mapping[str, Any]) -> Float[Array, "state"]:
        """The drift at one point, from a mapping of all parameters and inputs by name."""
        value = _stacked(self.drift(t, x, names), x)
        if value.shape != x.shape:
            raise ModelError(
                f"drift must return {len(self.states)} number(s), one per state, but returned shape {value.shape}"
            )
        return value

    def g_named(self, t: Scalar, x: Float[Array, "state"], names: Mapping[str, Any]) -> Float[Array, "state noises"]:
        """The same for the diffusion."""
        if self.g_function is None:
            raise ModelError(f"this model gives no diffusion: its G is estimated ({self.diffusion})")
        value = _stacked(self.g_function(t, x, names), x)
        value = jnp.diag(value) if value.shape == x.shape else value
        if value.ndim != 2 or value.shape[0] != x.size:
            raise ModelError(
                f"diffusion must return a matrix of {x.size} row(s), one per state, but returned shape {value.shape}"
            )
        return value

    def h_named(self, t: Scalar, x: Float[Array, "state"], names: Mapping[str, Any]) -> Float[Array, "columns"]:
        """The same for what is measured."""
        if self.h_function is None:
            return jnp.stack([x[self.states.index(one)] for one in self.observations])
        value = _stacked(self.h_function(t, x, names), x).reshape(-1)
        if value.size != len(self.observations):
            raise ModelError(
                f"observe must return {len(self.observations)} number(s), one per column, but returned {value.size}"
            )
        return value

    def point(self, t: Scalar | TimeWithInputs, x: Array, theta: Theta) -> tuple[Scalar, Array, dict[str, Any]]:
        """What the model's functions are given: the time, the states, and parameters and inputs by name."""
        names = self.named(theta)
        if isinstance(t, TimeWithInputs):
            return t.time, x, names | t.inputs(self.inputs, self.hold)
        if self.inputs:
            raise ModelError(f"the model needs the inputs {', '.join(self.inputs)}, but only a time came")
        return t, x, names


def _stacked(value: Any, x: Array) -> Array:
    """What a user's function returned, be it an array, a number or lists of numbers, as one array."""
    if isinstance(value, list | tuple):
        return jnp.stack([_stacked(one, x) for one in value])
    return jnp.asarray(value, x.dtype)


def _identities(model: SDE) -> list[int | None]:
    """For each column of an observation function the state that it returns unchanged, found by trying numbers."""
    rng = np.random.default_rng(0)
    names = {name: float(one.value or 0.7) for name, one in model.parameters} | dict.fromkeys(model.inputs, 0.6)
    found: list[set[int]] = [set(range(len(model.states))) for _ in model.observations]
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):
        for _ in range(3):
            x = np.exp(rng.normal(size=len(model.states)))
            y = np.asarray(model.h_named(jnp.asarray(0.3), jnp.asarray(x), names))
            found = [{k for k in one if x[k] == value} for one, value in zip(found, y, strict=True)]
            names = {name: value * 1.1 for name, value in names.items()}
    return [min(one) if one else None for one in found]
