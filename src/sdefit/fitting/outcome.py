"""`Fit`: what was estimated, and the few things one asks of it. Each of them delegates."""

import contextlib
import dataclasses
import datetime
import functools
import importlib.metadata
import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from sdefit import store, uncertainty
from sdefit._types import Key, Seed
from sdefit.data import Pool, Series, stack, standardise, with_times
from sdefit.data.checks import as_numbers
from sdefit.diagnosis import Diagnosis, diagnose
from sdefit.display.notebook import as_html
from sdefit.dynamics.arguments import as_key
from sdefit.dynamics.sde import SDE
from sdefit.errors import DataError, InputError
from sdefit.fitting.packing import matrix_entries, pack, point_estimate, posterior_draws, to_arviz
from sdefit.fitting.states import States, band
from sdefit.inference.likelihood import filter_state
from sdefit.methods import execution
from sdefit.methods.interface import Method
from sdefit.result import Estimate, Status
from sdefit.uncertainty import Forecast, Intervals, Profile

# Of draws from the posterior where nobody gave a key: the same fit has the same intervals.
_POSTERIOR_KEY = np.array([0, 0], np.uint32)


class LearnedDrift(NamedTuple):
    """A drift that was learned without a formula: mean and standard deviation, one row for each point."""

    mean: np.ndarray
    std: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Fit:
    """What was estimated, in the user's units, with all it takes to go on from there.

    A fit is a value: nothing that is asked of it changes it. Hand on what `intervals`, `profile` and `diagnose` return
    to what shows or stores it: `summary`, `table`, `plot`, `report`, `save` and `record`.

    - `params`: every parameter by name, fixed ones included.
    - `G`, `GGt`, `H`: the lower-triangular diffusion, G Gᵀ (what the data can see) and GᵀG.
    - `noise`: the standard deviation of the observation noise of each state.
    - `status`: how it went, the worst of its `checks`; `status.ok`, and what to do if not.
    - `checks`: every check that objects to the fit, worst first; empty where none does.
    - `seconds`, `compile_seconds`: run time and compile time; in `fit_each` an equal share of the batch's.
    - `log_likelihood`, `log_evidence`, `bound` or `loss`: what the method optimised, one of them each.
    - `trace`: what it kept of its way there.
    - `mean`, `std`: the smoothed states of each series at its own times; see `states`.
    - `estimate`: the method's own answer, in standardised units.
    - `notes`: what happened to the data, in sentences. `provenance`: versions, device and time.

    >>> fit.params
    {'rate': 0.789..., 'level': 1.99...}
    >>> fit.G.round(2)
    array([[0.16]])
    >>> fit.summary().loc["level", ["lower", "upper"]].round(1).tolist()
    [1.8, 2.2]
    """

    model: SDE
    series: tuple[Series, ...]
    method: Method
    key: Key
    status: Status
    params: dict[str, float]
    G: np.ndarray
    noise: np.ndarray
    mean: tuple[np.ndarray, ...]
    std: tuple[np.ndarray, ...]
    trace: dict[str, np.ndarray]
    estimate: Estimate
    seconds: float
    compile_seconds: float
    notes: tuple[str, ...]
    provenance: dict[str, Any]
    checks: tuple[Status, ...] = ()

    @property
    def GGt(self) -> np.ndarray:
        """The covariance that noise adds to the states per unit of time."""
        return self.G @ self.G.T

    @property
    def H(self) -> np.ndarray:
        """GᵀG, the matrix the literature on gradient matching reports."""
        return self.G.T @ self.G

    @property
    def log_likelihood(self) -> float:
        """The log-likelihood at the estimate by a Gaussian filter, without priors (ESGF, Auto).

        It is the log density of the observations in the user's units, all constants included: of all rows given the
        first one, or of every row for an ODE.
        """
        return self._objective("log_likelihood")

    @property
    def log_evidence(self) -> float:
        """The highest log marginal likelihood of a Gaussian process, with weak priors (MaRS, AReS, NPSDE)."""
        return self._objective("log_evidence")

    @property
    def bound(self) -> float:
        """The maximum of the variational bound on the log-likelihood, without priors (VGPA)."""
        return self._objective("bound")

    @property
    def loss(self) -> float:
        """The minimum of the sum of squared residuals (Moments)."""
        return self._objective("loss")

    @property
    def aic(self) -> float:
        """Akaike's information criterion 2k − 2 log L of a method with a likelihood (ESGF, Auto); lower is better.

        k counts all that is estimated: free parameters, entries of G, noises, and of an ODE each series' x(t_1). L is
        the likelihood without priors. `sf.ESGF()` maximises it but for its `boundary`. The default's estimate has weak
        priors, so that its L may lie below the maximum: compare models by the same method.
        """
        return 2 * self._coordinates - 2 * self.log_likelihood

    @property
    def bic(self) -> float:
        """The Bayesian information criterion k log n − 2 log L of n observed values; k, L and limits as for `aic`."""
        observed = sum(int(one.observed.sum()) for one in self.series)
        return self._coordinates * float(np.log(observed)) - 2 * self.log_likelihood

    @property
    def _coordinates(self) -> int:
        """How many numbers a method with a likelihood estimates."""
        self._objective("log_likelihood")  # says so where there is none
        return filter_state(self.estimate).coordinates.size

    def _objective(self, name: str) -> float:
        known = self.method.objective_name
        if name != known:
            raise AttributeError(f"a fit by {self.method.name} has no {name}; it has {known}: write fit.{known}")
        return float(self.estimate.criterion) - (0.0 if name == "loss" else self._log_volume())

    def _log_volume(self) -> float:
        """log of the volume, in the user's units, of a unit cube of the standardised observations that were predicted.

        A density is per volume. A filter predicts no first row, which x(t_1) comes from; all others predict every row.
        """
        given = self.method.objective_name == "log_likelihood" and self.model.diffusion != "none"
        count = sum(one.observed[int(given) :].sum(axis=0) for one in self.series)
        return float(np.sum(count * np.log(self._pool().scale)))

    def states(self, times: Any = None, *, series: int = 0, level: float = 0.9) -> States:
        """The smoothed states of one series at its own times, or at any others, with a band.

        **Arguments**
        - `times`: numbers, or dates where the series has dates; inside its span or not.
        - `series`: which of several pooled series.
        - `level`: the share of the band, for each time and state by itself.
        """
        if not 0 <= series < len(self.series):
            raise DataError(f"series must be a number from 0 to {len(self.series) - 1}, not {series!r}")
        one = self.series[series]
        if times is None:
            return band(one.times, self.mean[series], self.std[series], one.states, level)
        asked = np.atleast_1d(one.clock(times))
        pool, places = _pool_with(self.series, self.model.inputs, series, asked)
        mean, std = execution.smooth(self.model, self.method, pool, self.estimate).value
        return band(asked, mean[series][places], std[series][places], one.states, level)

    def drift(self, x: Any) -> LearnedDrift:
        """The learned drift at states x: its mean and standard deviation, (n, K), in units of state per time.

        Only a method that learns the drift itself has one, such as `sf.NPSDE()`. The standard deviation grows where
        the data have not been.

        **Arguments**
        - `x`: one row for each point and one number for each state; for a single state also plain numbers.
        """
        if not hasattr(self.method, "field"):
            raise InputError(f"drift needs a method that learns one, such as sf.NPSDE(), not {self.method.name}")
        at = _points(x, len(self.model.states))
        return LearnedDrift(*execution.field(self.model, self.method, self._pool(), self.estimate, at).value)

    def intervals(self, level: float = 0.9, draws: int = 200, *, key: Seed | None = None) -> Intervals:
        """An interval for every quantity, and whether the data identify it.

        Data are simulated from the fit at the series' own times and gaps and fitted again, all in one batched
        program.

        **Arguments**
        - `level`: the share of intervals that should hold the truth, each by itself.
        - `draws`: how many times to simulate and fit again; 0 fits nothing again: intervals are quantiles of the
          posterior where the method has a likelihood and the series are not long, else from standard errors.
        - `key`: an int or a JAX random key; by default one made from the fit's own.
        """
        key = self._key(key, 1)
        self._check_finite("intervals")
        own = _POSTERIOR_KEY if key is None else key
        pool, asked = self._pool(), {"level": level, "draws": draws, "key": own}
        return uncertainty.intervals(self.model, self.method, pool, self.estimate, **asked)

    def profile(self, name: str, *, points: int = 15, level: float = 0.9) -> Profile:
        """How the likelihood falls as one parameter is held elsewhere; `fit.plot("profile", profiles=[...])` draws it.

        The likelihood is a Gaussian filter's, whatever the method; all else is fitted again at each value.
        """
        self._check_finite("a profile")
        return uncertainty.profile(self.model, self.method, self._pool(), self.estimate, name, points, level)

    def diagnose(self) -> Diagnosis:
        """What in the data the fit does not explain: checks of one-step residuals, each with a hint in words.

        `fit.plot("residuals")`, `fit.plot("quantiles")` and `fit.plot("drift")` draw them.
        """
        self._check_finite("a diagnosis")
        lengths = [len(one) for one in self.series]
        return diagnose(self.model, self.method, self._pool(), self.estimate, lengths)

    def forecast(
        self, times: Any, draws: int = 500, *, key: Seed | None = None, series: int = 0, level: float = 0.9
    ) -> Forecast:
        """Simulated paths from the last smoothed state on, with their mean and band.

        **Arguments**
        - `times`: increasing, after the series' last; numbers, or dates where the series has dates.
        - `draws`: how many paths. `level`: the share of the band. `series`: which of several pooled ones.
        - `key`: an int or a JAX random key; by default one made from the fit's own.
        """
        key = self._key(key, 2)
        self._check_finite("a forecast")
        if not 0 <= series < len(self.series):
            raise DataError(f"series must be a number from 0 to {len(self.series) - 1}, not {series!r}")
        asked, spread = np.atleast_1d(self.series[series].clock(times)), self.std[series][-1]
        inputs = (self.model, self.method, self._pool(), self.estimate, series, asked, spread)
        return uncertainty.forecast(*inputs, draws=draws, level=level, key=key)

    def posterior(self, draws: int = 1000, *, key: Seed | None = None, warmup: int = 500, chains: int = 4) -> Any:
        """Draws from the posterior of θ, G and σ by NUTS, as ArviZ data; for methods with a likelihood.

        The prior is that of the estimate (see "The prior" in docs/uncertainty.md): the user's on θ, else the method's.
        Chains that disagree (split-R̂ above 1.05) give a warning: raise `warmup` and `draws`. `key` is an int or a JAX
        random key; by default one made from the fit's own.
        """
        from sdefit.uncertainty.posterior import sample  # here, not above: what it needs is slow to import

        key = self._key(key, 3)
        self._check_finite("a posterior")
        how_many = {"draws": draws, "warmup": warmup, "chains": chains}
        found = sample(self.model, self.method, self._pool(), self.estimate, **how_many, key=key)
        params = dict(zip(self.model.free, np.moveaxis(found.theta, -1, 0), strict=True))
        return to_arviz(self, "posterior", posterior_draws(params, found.G, found.noise), found.diverging)

    def _key(self, given: Seed | None, purpose: int) -> Key:
        """The given key; by default one of the fit's own for each purpose, so that no two share their numbers."""
        return jax.random.fold_in(self.key, purpose) if given is None else as_key(given)

    def _pool(self) -> Pool:
        """The data in the shape they were fitted in: in `fit_each` a series is as long as the longest."""
        return standardise(self.series, self.model.inputs, rows=self.estimate.mean.shape[1])

    def _check_finite(self, what: str) -> None:
        if self.status.name in ("not_finite", "drift_not_finite"):
            raise InputError(f"{what} must come from a fit of finite numbers, but this one is {self.status.name}")

    @functools.cached_property  # a summary and a report of the same fit compute them once
    def _quick_intervals(self) -> Intervals | None:
        """`intervals(draws=0)`, where the method has them."""
        # A fit read from a file may lack its drift: its table is then shown without intervals.
        with contextlib.suppress(InputError):
            return self.intervals(draws=0) if self.method.knows_covariance else None

    def table(self, intervals: Intervals | None = None) -> list[dict[str, Any]]:
        """Every quantity as a plain mapping, with the ends of its interval where intervals are given."""
        known = {} if intervals is None else {row["quantity"]: row for row in intervals.table()}
        ends = ("lower", "upper", "identifiability")
        return [row | {end: known[row["quantity"]][end] for end in ends if row["quantity"] in known}
                for row in self._estimates()]  # fmt: skip

    def _estimates(self) -> list[dict[str, Any]]:
        kinds = {name: "fixed" if p.fixed else "parameter" for name, p in self.model.parameters}
        time = self.series[0].time_unit or "time"
        rows = [_row(name, value, kinds[name], "") for name, value in self.params.items()]
        rows += [_row(name, v, "diffusion", f"state/√{time}") for name, v in matrix_entries(self.model, self.G)]
        noise = zip(self.model.states, self.noise, strict=True)
        return rows + [_row(f"noise[{state}]", value, "noise", "state") for state, value in noise]

    def summary(self, intervals: Intervals | None = None) -> Any:
        """A pandas data frame of every quantity: its estimate, interval, unit, kind, and whether the data identify it.

        Without `intervals` it has those of `fit.intervals(draws=0)`, where the method has them (a second or so).
        """
        import pandas as pd  # here, not above: half a second that most uses do not need

        return pd.DataFrame(self.table(intervals or self._quick_intervals)).set_index("quantity")

    def record(
        self,
        truth: Mapping[str, Any] | None = None,
        *,
        intervals: Intervals | None = None,
        diagnosis: Diagnosis | None = None,
        profiles: Sequence[Profile] = (),
    ) -> store.Record:
        """Everything about the fit as plain arrays and facts: what is saved, and what a report shows.

        **Arguments**
        - `truth`: the true "params", "G" and "noise" of simulated data, to stand beside the estimates.
        - `intervals`, `diagnosis`, `profiles`: what `fit.intervals`, `fit.diagnose` and `fit.profile` found, if it is
          to be in the record.
        """
        return pack(self, truth, intervals, diagnosis, profiles)

    def plot(
        self,
        kind: str = "states",
        *,
        intervals: Intervals | None = None,
        diagnosis: Diagnosis | None = None,
        profiles: Sequence[Profile] = (),
    ) -> Any:
        """A matplotlib figure of the fit.

        **Arguments**
        - `kind`: states, phase, derivatives, field, increments, trace, estimates, profile, residuals, quantiles or
          drift.
        - `intervals`, `diagnosis`, `profiles`: what to draw; computed where the figure needs what is not given:
          intervals as `summary` has them, and the profiles of all parameters.
        """
        from sdefit import report  # here, not above: matplotlib is slow to import

        match report.needs(kind):
            case "intervals":
                intervals = intervals or self._quick_intervals
            case "diagnosis":
                diagnosis = diagnosis or self.diagnose()
            case "profiles":
                profiles = profiles or [self.profile(name) for name in self.model.free]
        record = self.record(intervals=intervals, diagnosis=diagnosis, profiles=profiles)
        return report.plot_fit(record, kind)

    def report(
        self,
        path: str | os.PathLike[str],
        truth: Mapping[str, Any] | None = None,
        *,
        intervals: Intervals | None = None,
        diagnosis: Diagnosis | None = None,
        profiles: Sequence[Profile] = (),
    ) -> None:
        """Write one self-contained HTML page about the fit: arguments as for `record`, intervals as for `summary`."""
        from sdefit import report

        intervals = intervals or self._quick_intervals
        report.write_fit(self.record(truth, intervals=intervals, diagnosis=diagnosis, profiles=profiles), path)

    def save(
        self,
        path: str | os.PathLike[str],
        truth: Mapping[str, Any] | None = None,
        *,
        intervals: Intervals | None = None,
        diagnosis: Diagnosis | None = None,
        profiles: Sequence[Profile] = (),
    ) -> None:
        """Write the fit as NetCDF, for `sf.load`, xarray and ArviZ; arguments as for `record`.

        `sf.Intervals.load(path)`, `sf.Diagnosis.load(path)` and `sf.Profile.load(path, name)` read what was stored with
        it.
        """
        record = self.record(truth, intervals=intervals, diagnosis=diagnosis, profiles=profiles)
        store.write(record, path, {"point_estimate": point_estimate(self)})

    def to_arviz(self) -> Any:
        """The estimate as ArviZ data: the group "point_estimate" beside the observations.

        Only `posterior` gives a group of that name: an estimate is no draw from it.
        """
        return to_arviz(self, "point_estimate", point_estimate(self))

    def assumed(self) -> list[str]:
        """What the fit took for granted, in sentences."""
        held = [f"{name} = {p.value:g}" for name, p in self.model.parameters if p.value is not None]
        kind = self.model.diffusion
        shape = "no process noise (an ODE)" if kind == "none" else f"a constant {kind} G"
        return [
            f"Itô equation with {shape}; independent Gaussian observation noise, one variance per state.",
            f"Estimated: {', '.join(self.model.free) or 'no parameter'}. Fixed: {', '.join(held) or 'none'}.",
        ]

    def _repr_html_(self) -> str:
        rows = [{key: row[key] for key in ("quantity", "estimate", "unit", "kind")} for row in self._estimates()]
        return as_html(
            f"{self.model.name} by {self.method.title}", rows, [str(one) for one in self.checks or [self.status]]
        )

    def __repr__(self) -> str:
        params = ", ".join(f"{name}={value:.4g}" for name, value in self.params.items())
        return f"Fit({self.model.name} by {self.method.name}: {params}; {self.status.name})"

    def __str__(self) -> str:
        rows = [(row["quantity"], f"{row['estimate']:.5g}", row["kind"]) for row in self.table()]
        wide = [max(len(row[i]) for row in rows) for i in range(2)]
        lines = [f"  {name:<{wide[0]}}  {value:>{wide[1]}}  {kind}" for name, value, kind in rows]
        head = f"Fit of {self.model.name} by {self.method.title}, {self.seconds:.3g} s"
        more = [str(check) for check in self.checks[1:]]
        return "\n".join([str(self.status), *more, head, *lines, *self.assumed(), *self.notes])


def provenance() -> dict[str, Any]:
    """Versions, device and time: what it takes to get the same numbers again."""
    versions = {name: _version(name) for name in ("sdefit", "jax", "jaxlib", "equinox", "numpy")}
    device = jax.devices()[0]
    return {
        **versions,
        "python": platform.python_version(),
        "device": f"{device.platform} ({device.device_kind})",
        "dtype": "float64",
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


@functools.cache  # reading a package's metadata takes a millisecond, as long as a small fit
def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"  # run from a source tree that was never installed


def _row(quantity: str, value: float, kind: str, unit: str) -> dict[str, Any]:
    interval = {"lower": np.nan, "upper": np.nan}  # until intervals are asked for
    return {
        "quantity": quantity,
        "estimate": float(value),
        **interval,
        "unit": unit,
        "kind": kind,
        "identifiability": "",
    }


def _points(x: Any, states: int) -> np.ndarray:
    """The states asked for, one row each."""
    at = as_numbers(x, "x")
    at = np.atleast_1d(at)[:, None] if states == 1 and at.ndim < 2 else at
    if at.ndim != 2 or at.shape[1] != states or not np.isfinite(at).all():
        raise InputError(f"x must be rows of {states} finite number(s), one per state, not an array of {at.shape}")
    return at


def _pool_with(
    series: tuple[Series, ...], inputs: tuple[str, ...], which: int, times: np.ndarray
) -> tuple[Pool, np.ndarray]:
    """The pool of all series, one of them with rows at more times, and the index of each of those."""
    pool = standardise(series, inputs)
    alone = [_only(pool, i, len(one)) for i, one in enumerate(series)]
    alone[which], places = with_times(alone[which], times)
    fits = stack(alone)
    rows = {name: getattr(fits, name)[:, 0] for name in ("times", "values", "observed", "time_origin")}
    common = {name: getattr(pool, name) for name in ("center", "scale", "time_scale", "inputs")}
    return Pool(**rows, **common), places


def _only(pool: Pool, i: int, rows: int) -> Pool:
    """One series of a pool, in the units of them all."""
    parts = {name: getattr(pool, name)[i : i + 1, :rows] for name in ("times", "values", "observed")}
    origin = pool.time_origin[i : i + 1]
    return Pool(**parts, center=pool.center, scale=pool.scale, time_origin=origin, time_scale=pool.time_scale)
