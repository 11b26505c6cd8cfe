"""Ends of intervals: from standard errors, from draws of the posterior, and from a bootstrap's refits."""

import math
from statistics import NormalDist

import numpy as np
from scipy.special import stdtrit

from sdefit.uncertainty.bootstrap import Replicas, finite
from sdefit.uncertainty.quantities import Quantities

_REGROWN = 2.0  # the most by which θ's distances grow where refits find a smaller G


def student_quantile(level: float, freedom: float) -> float:
    """Where the band of `level` of Student's distribution ends; nowhere without a degree of freedom."""
    return float(stdtrit(freedom, 0.5 + level / 2)) if freedom >= 1 else math.inf


def from_errors(
    quantities: Quantities, values: np.ndarray, std: np.ndarray, level: float, freedom: float = math.inf
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of intervals from standard errors, straight in each quantity's coordinate."""
    width = quantities.coordinate_errors(values, std)
    half = np.where(width > 0, student_quantile(level, freedom), 0.0 * width) * np.where(width > 0, width, 1.0)
    at = quantities.coordinates(values)
    ends = quantities.back(at - half), quantities.back(at + half)
    return np.minimum(*ends), np.maximum(*ends)  # a coordinate may fall where its quantity grows


def from_posterior(
    quantities: Quantities, draws: np.ndarray, level: float, freedom: float
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of intervals from quantities drawn from their posterior.

    They are equal-tailed quantiles. Those of θ are moved away from the median in the ratio of Student's quantile to the
    normal one: the scales of its prior come from the same data, which is one more use of them for each parameter. For a
    standard deviation, whose prior never lets it be 0, the lower end is 0 where the draws' mean is within their spread
    of it.
    """
    at, count = quantities.coordinates(draws), len(quantities.model.free)
    low, middle, high = np.quantile(at, [0.5 - level / 2, 0.5, 0.5 + level / 2], axis=0)
    normal = NormalDist().inv_cdf(0.5 + level / 2)
    low = np.where(quantities.scales, np.minimum(low, at.mean(axis=0) - normal * at.std(axis=0)), low)
    wider = student_quantile(level, freedom) / normal
    for end, nowhere in ((low, -np.inf), (high, np.inf)):
        end[:count] = middle[:count] + wider * (end - middle)[:count] if math.isfinite(wider) else nowhere
    ends = quantities.back(low), quantities.back(high)
    return np.minimum(*ends), np.maximum(*ends)


def from_draws(
    quantities: Quantities, values: np.ndarray, made: Replicas, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of intervals from how far one fit's replicas fell from their sources, in each quantity's coordinate."""
    finite_draws = finite(made.found)
    if finite_draws.sum() < 10:
        unknown = np.full(len(values), np.nan)
        return unknown, unknown
    pair = [
        quantities.coordinates(quantities.values(one))[finite_draws] for one in (made.found, made.generating_params)
    ]
    missed, at = pair[0] - pair[1], quantities.coordinates(values)
    # Ends as far below as above err less than quantiles of either side do (Hall 1988), and are not moved by the bias
    # of a weakly identified quantity, which depends on the truth. Only for a spread well off 0 is it taken off.
    fraction = np.where(quantities.scales, 1 - 2 * _reach(missed, level) / np.maximum(at, 1e-300), 0.0)
    bias = np.maximum(fraction, 0.0) * np.median(missed, axis=0)
    half = _reach(missed - bias, level)
    low, high = at - bias - half, at - bias + half
    if made.averaged:
        # Averaged over all that may be true, what θ misses by is what it missed by here: its quantiles are the ends.
        size = len(quantities.model.free)
        missed = _inflation(quantities, pair[0], at) * missed[:, :size]
        tails = np.quantile(missed, [0.5 + level / 2, 0.5 - level / 2], axis=0, method="weibull")
        low[:size], high[:size] = at[:size] - tails
    ends = quantities.back(low), quantities.back(high)
    return np.minimum(*ends), np.maximum(*ends)


def _inflation(quantities: Quantities, found: np.ndarray, at: np.ndarray) -> float:
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
