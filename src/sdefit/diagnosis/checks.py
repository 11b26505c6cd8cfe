"""Tests of residuals that should be independent standard normal numbers, in NumPy: moments, runs, bands, drift."""

import math
from statistics import NormalDist

import numpy as np
from scipy.special import gammaincc

from sdefit.inference.residuals import excess_kurtosis

_NORMAL = NormalDist()
BINS = 6


def jarque_bera(z: np.ndarray) -> tuple[float, float]:
    """The Jarque-Bera statistic of skewness and kurtosis, and its p-value (chi-squared, 2 degrees of freedom)."""
    d = z - z.mean()
    skew, excess = np.mean(d**3) / np.mean(d**2) ** 1.5, excess_kurtosis(z)
    statistic = len(z) / 6 * (skew**2 + excess**2 / 4)
    return float(statistic), math.exp(-statistic / 2)


def ljung_box(z: np.ndarray, lags: int) -> tuple[float, float]:
    """The Ljung-Box statistic of the first `lags` autocorrelations, and its p-value."""
    n, r = len(z), autocorrelation(z, lags)
    statistic = n * (n + 2) * float(np.sum(r**2 / (n - np.arange(1, lags + 1))))
    return statistic, chi_squared_tail(statistic, lags)


def autocorrelation(z: np.ndarray, lags: int) -> np.ndarray:
    """The autocorrelations at lags 1 to `lags`."""
    d = z - z.mean()
    return np.array([np.sum(d[k:] * d[:-k]) for k in range(1, lags + 1)]) / np.sum(d**2)


def variance_test(z: np.ndarray) -> tuple[float, float]:
    """The mean square, and the two-sided p-value of Σ z² against chi-squared."""
    upper = chi_squared_tail(float(np.sum(z**2)), len(z))
    return float(np.mean(z**2)), min(1.0, 2 * min(upper, 1 - upper))


def mean_test(z: np.ndarray) -> tuple[float, float]:
    """The mean, and the two-sided p-value of √n times it."""
    mean = float(np.mean(z))
    return mean, 2 * _NORMAL.cdf(-abs(mean) * math.sqrt(len(z)))


def coverage(z: np.ndarray, level: float) -> tuple[float, float]:
    """The share inside the band of `level`, and a two-sided p-value of that share (normal approximation)."""
    inside = float(np.mean(np.abs(z) <= _NORMAL.inv_cdf(0.5 + level / 2)))
    spread = math.sqrt(level * (1 - level) / len(z))
    return inside, 2 * _NORMAL.cdf(-abs(inside - level) / spread)


def quantiles(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Standard normal quantiles and the sorted residuals beside them."""
    shares = (np.arange(1, len(z) + 1) - 0.5) / len(z)
    return np.array([_NORMAL.inv_cdf(float(p)) for p in shares]), np.sort(z)


def chi_squared_tail(x: float, degrees: int) -> float:
    """The probability that chi-squared exceeds x."""
    return float(gammaincc(degrees / 2, x / 2))


def holm(p: np.ndarray) -> np.ndarray:
    """p-values adjusted for how many there are (Holm 1979): the least family-wise level at which each is rejected."""
    order = np.argsort(p)
    adjusted = np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order])
    result = np.empty(len(p))
    result[order] = np.minimum(adjusted, 1.0)
    return result


def binned_drift(
    state: np.ndarray, drift: np.ndarray, error: np.ndarray, spread: np.ndarray, gap: np.ndarray
) -> dict[str, np.ndarray]:
    """The drift that the data imply in each of a few bins of one state, beside the fitted one.

    What a prediction missed, over the gap, is what the drift lacked on the way: the fitted drift plus its mean in
    a bin is an estimate of the true one that knows no formula. `z` is how many standard errors it lies off.
    """
    edges = np.quantile(state, np.linspace(0, 1, BINS + 1))
    place = np.clip(np.searchsorted(edges, state, side="right") - 1, 0, BINS - 1)
    rows = []
    for b in range(BINS):
        here = place == b
        n = int(here.sum())
        if n < 4:
            continue
        missing, std = np.mean(error[here] / gap[here]), np.sqrt(np.sum((spread[here] / gap[here]) ** 2)) / n
        fitted = np.mean(drift[here])
        z = np.sum(error[here] / spread[here]) / math.sqrt(n)
        rows.append((np.mean(state[here]), fitted, fitted + missing, std, z, n))
    columns = np.array(rows).reshape(-1, 6).T
    return dict(zip(("state", "fitted", "found", "std", "z", "count"), columns, strict=True))


def normal_tail(x: float) -> float:
    """The probability that a standard normal number exceeds x."""
    return _NORMAL.cdf(-float(x))
