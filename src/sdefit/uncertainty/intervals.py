"""`Intervals`: what the data leave possible for every quantity, by bootstrap or from standard errors."""

import dataclasses
import math
from statistics import NormalDist
from typing import Any

import equinox as eqx
import jax
import numpy as np

from sdefit._types import Key
from sdefit.data import Pool
from sdefit.dynamics.sde import SDE
from sdefit.errors import InputError
from sdefit.methods._base import Method
from sdefit.result import Estimate
from sdefit.uncertainty import errors, verdict
from sdefit.uncertainty.bootstrap import Replicas, finite, replicas, source_of
from sdefit.uncertainty.quantities import Quantities
from sdefit.uncertainty.verdict import Evidence, judge, natural_scales, starts_sentence

_REGROWN = 2.0  # the most by which θ's distances grow where refits find a smaller G
BATCH = 32  # refits in one run of a program: on a GPU the slowest search of a batch holds up the others


@dataclasses.dataclass(frozen=True, eq=False)
class Intervals:
    """An interval for every free parameter, entry of G and G Gᵀ, and noise, in the user's units.

    - `names`, `estimate`, `lower`, `upper`: one of each for each quantity.
    - `std`: standard errors from the method's information; NaN where it has none.
    - `kind`: "bootstrap" or "information". `level`, `draws`: what was asked for.
    - `identifiability`: whether the data identify each quantity, and `sentences`, the same for people.
    - `failed`: how many refits ended in no number and were left out.
    - `seconds`, `compile_seconds`: the bootstrap's cost; `std_seconds`: that of the standard errors, all included.
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

    def notes(self) -> list[str]:
        """How the intervals came about, in sentences."""
        level = f"{100 * self.level:g} % intervals"
        if self.kind == "information":
            cost = f"{self.std_seconds:.2g} s"
            return [f"{level} from standard errors ({cost}); fit.intervals(key=key) gives calibrated ones."]
        lost = f" {self.failed} refits failed and were left out." if self.failed else ""
        return [f"{level} from {self.draws} simulated and refitted data sets ({self.seconds:.2g} s).{lost}"]

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
    key: Key | None,
    batch: int = BATCH,
) -> Intervals:
    """Intervals of one fit: by bootstrap, or from standard errors alone where `draws` is 0."""
    _check(level, draws)
    quantities = Quantities(model)
    here = jax.tree.map(lambda a: a[0], source_of(*_one_of_many(pool, estimate)))
    values, known = quantities.values(here), errors.covariance(model, method, pool, estimate)
    std = np.full(len(values), np.nan) if known is None else errors.standard_errors(quantities, known.value, here)
    ends = from_errors(quantities, values, std, level)
    failed, cost = 0, {"seconds": 0.0, "compile_seconds": 0.0}
    if draws and key is not None:
        made = replicas(model, method, *_one_of_many(pool, estimate), draws, key, batch).of(0)
        ends = from_draws(quantities, values, made, level)
        failed = int(np.sum(~finite(made.found)))
        cost = {"seconds": made.seconds, "compile_seconds": made.compile_seconds}
    sizes = natural_scales(model, method, pool, estimate)
    judged = judge(quantities, Evidence(values, *ends, level, sizes, None if known is None else known.value))
    return Intervals(
        names=tuple(quantities.names),
        estimate=values,
        lower=ends[0],
        upper=ends[1],
        std=std,
        kind="bootstrap" if draws else "information",
        level=level,
        draws=draws,
        failed=failed,
        identifiability=judged.words,
        sentences=(*judged.sentences, *starts_sentence(estimate)),
        std_seconds=0.0 if known is None else known.seconds + known.compile_seconds,
        **cost,
    )


def ahead(model: SDE, method: Method, pool: Pool, estimate: Estimate) -> None:
    """Have the programs of `intervals` without draws compiled before there is an estimate, from the shapes of one."""
    errors.ahead(model, method, pool, estimate)
    verdict.ahead(model, method, pool, estimate)


def from_errors(
    quantities: Quantities, values: np.ndarray, std: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of intervals from standard errors, straight in each quantity's coordinate."""
    half = NormalDist().inv_cdf(0.5 + level / 2) * std * np.abs(quantities.slopes(values))
    at = quantities.coordinates(values)
    ends = quantities.back(at - half), quantities.back(at + half)
    return np.minimum(*ends), np.maximum(*ends)  # a coordinate may fall where its quantity grows


def from_draws(
    quantities: Quantities, values: np.ndarray, made: Replicas, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of intervals from how far one fit's replicas fell from their sources, in each quantity's coordinate."""
    kept = finite(made.found)
    if kept.sum() < 10:
        unknown = np.full(len(values), np.nan)
        return unknown, unknown
    pair = [quantities.coordinates(quantities.values(one))[kept] for one in (made.found, made.sources)]
    missed, at = pair[0] - pair[1], quantities.coordinates(values)
    # Ends as far below as above err less than quantiles of either side do (Hall 1988), and are not moved by the bias of
    # a quantity that is hardly identified, which depends on where the truth is. Only for a spread well off 0 is it taken off.
    share = np.where(quantities.scales, 1 - 2 * _reach(missed, level) / np.maximum(at, 1e-300), 0.0)
    bias = np.maximum(share, 0.0) * np.median(missed, axis=0)
    half = _reach(missed - bias, level)
    low, high = at - bias - half, at - bias + half
    if made.averaged:
        # Averaged over all that may be true, what θ misses by is what it missed by here: its quantiles are the ends.
        size = len(quantities.model.free)
        missed = _regrown(quantities, pair[0], at) * missed[:, :size]
        tails = np.quantile(missed, [0.5 + level / 2, 0.5 - level / 2], axis=0, method="weibull")
        low[:size], high[:size] = at[:size] - tails
    ends = quantities.back(low), quantities.back(high)
    return np.minimum(*ends), np.maximum(*ends)


def _regrown(quantities: Quantities, found: np.ndarray, at: np.ndarray) -> float:
    """By which factor G of the typical refit lies below the fit's own; 1 where it does not.

    Where σ takes up some of the process noise, as it must where there is none of its own, G comes out too small; and
    smaller still from data of that fit, on which θ then misses by less than it did here.
    """
    spreads = quantities.squared
    if not spreads.any():
        return 1.0
    logs = (np.mean(np.log(np.maximum(a[..., spreads], 1e-300)), axis=-1) for a in (at, found))
    own, theirs = (float(np.median(a)) for a in logs)
    return math.exp(min(max(own - theirs, 0.0), math.log(_REGROWN)))


def _reach(missed: np.ndarray, level: float) -> np.ndarray:
    """Within which distance of 0 a share `level` of the draws lies, by the quantile that is right for few draws too."""
    return np.quantile(np.abs(missed), level, axis=0, method="weibull")


def _one_of_many(pool: Pool, estimate: Estimate) -> tuple[Pool, Estimate]:
    """One fit with a leading axis, without what refits do not need."""
    bare = eqx.tree_at(lambda e: e.trace, estimate, {})
    return jax.tree.map(lambda a: np.asarray(a)[None], (pool, bare))


def _check(level: Any, draws: Any) -> None:
    if not (isinstance(level, float) and 0 < level < 1):
        raise InputError(f"level must lie between 0 and 1, not {level!r}")
    if not (isinstance(draws, int) and (draws == 0 or draws >= 40)):
        raise InputError(f"draws must be 0 (standard errors alone) or a whole number of at least 40, not {draws!r}")
