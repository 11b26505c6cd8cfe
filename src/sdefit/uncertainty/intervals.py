"""`Intervals`: what the data leave possible for every quantity: from the posterior, standard errors or a bootstrap."""

import dataclasses
import os
from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import numpy as np

from sdefit._types import Key
from sdefit.data import Pool
from sdefit.display.notebook import as_html
from sdefit.dynamics.sde import SDE
from sdefit.errors import InputError
from sdefit.methods.interface import LikelihoodMethod, Method
from sdefit.programs import PROGRAMS, Run
from sdefit.result import Estimate
from sdefit.store import read_finding
from sdefit.uncertainty import errors, verdict
from sdefit.uncertainty.bootstrap import Values, finite, generating_of, replicas, values_of
from sdefit.uncertainty.ends import from_draws, from_errors, from_posterior
from sdefit.uncertainty.importance import sample_posterior
from sdefit.uncertainty.quantities import Quantities
from sdefit.uncertainty.verdict import Evidence, judge, sizes_of

_DRAWS = 1000  # from the posterior
_DISTINCT = 50  # of them: with fewer the sampler has lost its way, and standard errors stand in
_LONG = 2000  # rows above which thousands of likelihoods cost more than a fit
BATCH = 32  # refits in one run of a program: on a GPU the slowest search of a batch holds up the others


@dataclasses.dataclass(frozen=True, eq=False)
class Intervals:
    """An interval for every free parameter, entry of G and G Gᵀ, and noise, in the user's units.

    - `names`, `estimate`, `lower`, `upper`: one of each for each quantity.
    - `std`: standard errors: the posterior's spread, or from the method's information; NaN where it has none.
    - `kind`: "posterior", "information" (standard errors) or "bootstrap". `level`, `draws`: what was asked for.
    - `identifiability`: whether the data identify each quantity, and `sentences`, the same for people.
    - `failed`: how many refits ended in no number and were left out.
    - `seconds`, `compile_seconds`: the bootstrap's cost; `std_seconds`: that of the standard errors, all included.

    >>> found = fit.intervals(draws=0)
    >>> lower, upper = found["level"]
    >>> round(lower, 1), round(upper, 1)
    (1.8, 2.2)
    """

    names: tuple[str, ...]
    estimate: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    std: np.ndarray
    kind: str
    level: float
    draws: int
    failed: int
    identifiability: tuple[str, ...]
    sentences: tuple[str, ...]
    seconds: float
    compile_seconds: float
    std_seconds: float

    def __getitem__(self, name: str) -> tuple[float, float]:
        """The ends of one quantity's interval."""
        if name not in self.names:
            raise InputError(f"an interval must be asked for by one of {', '.join(self.names)}, not {name!r}")
        i = self.names.index(name)
        return float(self.lower[i]), float(self.upper[i])

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Intervals":
        """The intervals that `fit.save(path, intervals=...)` stored."""
        return read_finding(path, cls, "intervals")

    def table(self) -> list[dict[str, Any]]:
        """One plain mapping for each quantity."""
        columns = (self.names, self.estimate, self.lower, self.upper, self.std, self.identifiability)
        keys = ("quantity", "estimate", "lower", "upper", "std", "identifiability")
        return [
            {k: v if isinstance(v, str) else float(v) for k, v in zip(keys, row, strict=True)}
            for row in zip(*columns, strict=True)
        ]

    def frame(self) -> Any:
        """The table as a pandas data frame."""
        import pandas as pd  # here, not above: half a second that most uses do not need

        return pd.DataFrame(self.table()).set_index("quantity")

    def plot(self, ax: Any = None) -> Any:
        """A forest plot: each interval as a share of its own estimate, as a matplotlib figure, or on the axes `ax`."""
        from sdefit.display.plot import on_axes  # here, not above: matplotlib takes half a second
        from sdefit.report.uncertainty import forest_charts

        columns = {name: np.asarray(getattr(self, name)) for name in ("estimate", "lower", "upper", "identifiability")}
        usable = np.all(np.isfinite([self.estimate, self.lower, self.upper]), axis=0) & (self.estimate != 0)
        columns |= {"quantity": np.array(self.names), "level": np.full(len(self.names), self.level)}
        return on_axes(forest_charts({name: one[usable] for name, one in columns.items()} if usable.any() else {}), ax)

    def notes(self) -> list[str]:
        """How the intervals came about, in sentences."""
        level = f"{100 * self.level:g} % intervals"
        if self.kind != "bootstrap":
            source = "draws from the posterior" if self.kind == "posterior" else "standard errors"
            cost = f"{self.std_seconds:.2g} s"
            return [f"{level} from {source} ({cost}); fit.intervals() refits simulated data instead."]
        failed_refits = f" {self.failed} refits failed and were left out." if self.failed else ""
        return [f"{level} from {self.draws} simulated and refitted data sets ({self.seconds:.2g} s).{failed_refits}"]

    def _repr_html_(self) -> str:
        return as_html("Intervals", self.table(), [*self.notes(), *self.sentences])

    def __str__(self) -> str:
        rows = [
            (r["quantity"], *(f"{r[k]:.4g}" for k in ("estimate", "lower", "upper")), r["identifiability"])
            for r in self.table()
        ]
        wide = [max(len(row[i]) for row in rows) for i in range(4)]
        lines = [
            f"  {r[0]:<{wide[0]}}  {r[1]:>{wide[1]}}  ({r[2]:>{wide[2]}}, {r[3]:>{wide[3]}})  {r[4]}" for r in rows
        ]
        return "\n".join([*self.notes(), *lines, *self.sentences])


def intervals(
    model: SDE,
    method: Method,
    pool: Pool,
    estimate: Estimate,
    *,
    level: float,
    draws: int,
    key: Any,
    batch: int = BATCH,
) -> Intervals:
    """Intervals of one fit: by bootstrap, or where `draws` is 0 without any refit."""
    _check(level, draws)
    quantities, freedom = Quantities(model), degrees_of_freedom(model, np.asarray(pool.observed))
    here = jax.tree.map(lambda a: a[0], generating_of(*_one_of_many(pool, estimate)))
    values = quantities.values(here)
    if draws:
        found = _by_bootstrap(quantities, method, pool, estimate, here, (level, draws, key, batch))
    elif posterior_is_cheap(method, pool):
        found = _by_posterior(quantities, method, pool, estimate, here, (level, freedom, key))
    else:
        found = _by_errors(quantities, method, pool, estimate, here, (level, freedom))
    natural_scales = sizes_of(model, method, pool, estimate)
    ends = found["lower"], found["upper"]
    verdict_of_all = judge(
        quantities, Evidence(values, *ends, level, *natural_scales, freedom, found.pop("covariance"))
    )
    return Intervals(
        names=tuple(quantities.names),
        estimate=values,
        level=level,
        draws=draws,
        identifiability=verdict_of_all.words,
        sentences=verdict_of_all.sentences,
        **found,
    )


def posterior_is_cheap(method: Method, pool: Pool) -> bool:
    """Whether draws from the posterior cost no more than a fit: there is a likelihood, and the series are not long.

    In long ones the posterior is as good as normal, and standard errors say the same.
    """
    return isinstance(method, LikelihoodMethod) and pool.values.shape[-2] * len(pool.values) <= _LONG


def degrees_of_freedom(model: SDE, observed: Iterable[Any]) -> int:
    """Observations that have a predecessor in their series, over all states, less the free parameters."""
    counts = (np.maximum(np.asarray(one).sum(axis=0) - 1, 0).sum() for one in observed)
    return int(sum(counts)) - len(model.free)


def _by_bootstrap(quantities, method, pool, estimate, here, asked) -> dict[str, Any]:
    level, draws, key, batch = asked
    known = errors.covariance(quantities.model, method, pool, estimate)
    values = quantities.values(here)
    std = np.full(len(values), np.nan) if known is None else errors.standard_errors(quantities, known.value, here)
    made = replicas(quantities.model, method, *_one_of_many(pool, estimate), draws, key, batch).of(0)
    lower, upper = from_draws(quantities, values, made, level)
    return {
        "kind": "bootstrap",
        "lower": lower,
        "upper": upper,
        "std": std,
        "covariance": None if known is None else known.value,
        "failed": int(np.sum(~finite(made.found))),
        "seconds": made.seconds,
        "compile_seconds": made.compile_seconds,
        "std_seconds": 0.0 if known is None else known.seconds + known.compile_seconds,
    }


def _by_posterior(quantities, method, pool, estimate, here, asked) -> dict[str, Any]:
    level, freedom, key = asked
    run = PROGRAMS.run(_posterior, quantities.model, method, *_inputs(pool, estimate), key)
    found = values_of(*run.value)
    finite_draws = quantities.values(jax.tree.map(lambda a: a[finite(found)], found))
    if len(np.unique(finite_draws, axis=0)) < _DISTINCT:
        return _by_errors(quantities, method, pool, estimate, here, (level, freedom))
    lower, upper = from_posterior(quantities, finite_draws, level, freedom)
    return _without_refits("posterior", lower, upper, finite_draws.std(axis=0), _covariance(quantities, found), run)


def _by_errors(quantities, method, pool, estimate, here, asked) -> dict[str, Any]:
    level, freedom = asked
    run, values = errors.covariance(quantities.model, method, pool, estimate), quantities.values(here)
    std, covariance = np.full(len(values), np.nan), None
    if run is not None:
        std, covariance = errors.standard_errors(quantities, run.value, here), run.value
    lower, upper = from_errors(quantities, values, std, level, freedom)
    return _without_refits("information", lower, upper, std, covariance, run)


def _without_refits(kind, lower, upper, std, covariance, run: Run | None) -> dict[str, Any]:
    spent = 0.0 if run is None else run.seconds + run.compile_seconds
    ends = {"kind": kind, "lower": lower, "upper": upper, "std": std, "covariance": covariance}
    return ends | {"failed": 0, "seconds": 0.0, "compile_seconds": 0.0, "std_seconds": spent}


def _covariance(quantities: Quantities, found: Values) -> np.ndarray:
    """The covariance of draws of (θ, G Gᵀ row by row, σ²), as a method's `ParameterCovariance` has it."""
    finite_draws = jax.tree.map(lambda a: a[finite(found)], found)
    GGt = finite_draws.G @ np.swapaxes(finite_draws.G, -1, -2)
    rows = np.concatenate([finite_draws.theta, GGt.reshape(len(GGt), -1), np.asarray(finite_draws.noise) ** 2], axis=1)
    return np.atleast_2d(np.cov(rows, rowvar=False))


def _posterior(model: SDE, method: Method, pool: Pool, estimate: Estimate, key: Key):
    theta, G, noise = sample_posterior(model, method, pool, estimate, _DRAWS, key)
    return theta, jax.vmap(pool.unstandardise_diffusion)(G), pool.unstandardise_std(noise)


def _inputs(pool: Pool, estimate: Estimate) -> tuple[Pool, Estimate]:
    return pool, eqx.tree_at(lambda e: e.trace, estimate, {})


def precompile(model: SDE, method: Method, pool: Pool, estimate: Estimate, key: Any) -> None:
    """Have the programs of `intervals` without draws compiled before there is an estimate, from the shapes of one."""
    if posterior_is_cheap(method, pool):
        PROGRAMS.start(_posterior, model, method, *_inputs(pool, estimate), key)
    else:
        errors.precompile(model, method, pool, estimate)
    verdict.precompile(model, method, pool, estimate)


def _one_of_many(pool: Pool, estimate: Estimate) -> tuple[Pool, Estimate]:
    """One fit with a leading axis, without what refits do not need."""
    bare = eqx.tree_at(lambda e: e.trace, estimate, {})
    return jax.tree.map(lambda a: np.asarray(a)[None], (pool, bare))


def _check(level: Any, draws: Any) -> None:
    if not (isinstance(level, float) and 0 < level < 1):
        raise InputError(f"level must lie between 0 and 1, not {level!r}")
    if not (isinstance(draws, int) and (draws == 0 or draws >= 40)):
        raise InputError(f"draws must be 0 (no refits) or a whole number of at least 40, not {draws!r}")
