"""How far estimates are from the truth over many realizations, and how good a forecast's draws are.

Everything here is NumPy. Realizations, and draws, are the first axis. A failed fit enters as NaN and shows as
NaN in the answer: leaving it out is the caller's decision, to be stated beside the number.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from sdefit.errors import InputError

# What NumPy reads as an array; and its answer, a bare number where no axis is left.
ArrayLike: TypeAlias = np.ndarray | Sequence | float
Numbers: TypeAlias = np.ndarray | np.float64


def rmse(estimates: ArrayLike, truth: ArrayLike) -> Numbers:
    """The root-mean-square error over realizations, one number per parameter."""
    return np.sqrt(np.mean(_errors(estimates, truth) ** 2, axis=0))


def bias(estimates: ArrayLike, truth: ArrayLike) -> Numbers:
    """The mean error over realizations, one number per parameter."""
    return np.mean(_errors(estimates, truth), axis=0)


def median(estimates: ArrayLike) -> Numbers:
    """The median over realizations, one number per parameter."""
    return np.median(_realizations(estimates), axis=0)


def std(estimates: ArrayLike) -> Numbers:
    """The standard deviation over realizations (divisor n), so that rmse² = bias² + std²."""
    return np.std(_realizations(estimates), axis=0)


def ggt(G: ArrayLike) -> np.ndarray:
    """G Gᵀ, which the data determine, of one matrix or of a stack of them."""
    G = np.asarray(G, dtype=float)
    return G @ np.swapaxes(G, -1, -2)


def h(G: ArrayLike) -> np.ndarray:
    """GᵀG, the paper's H, of one matrix or of a stack of them; not the same as G Gᵀ unless G is diagonal."""
    G = np.asarray(G, dtype=float)
    return np.swapaxes(G, -1, -2) @ G


def crps(draws: ArrayLike, observed: ArrayLike) -> Numbers:
    """The continuous ranked probability score E|X − y| − ½ E|X − X'| of draws (draws, ...) at `observed` (...).

    Lower is better, in the units of y. The second mean is over pairs of different draws, so the expected score
    does not depend on how many draws there are. Sorting gives it without forming the pairs.
    """
    draws, observed = _draws(draws, observed)
    n = len(draws)
    weights = (2.0 * np.arange(1, n + 1) - n - 1).reshape((n,) + (1,) * observed.ndim)
    spread = np.sum(weights * np.sort(draws, axis=0), axis=0) / (n * (n - 1))
    return np.mean(np.abs(draws - observed), axis=0) - spread


def energy_score(draws: ArrayLike, observed: ArrayLike) -> Numbers:
    """The energy score E‖X − y‖ − ½ E‖X − X'‖ of draws (draws, ..., state) at `observed` (..., state).

    The last axis is the vector that is scored as one; for a single state it is the CRPS. Lower is better.
    """
    draws, observed = _draws(draws, observed)
    if observed.ndim == 0:
        raise InputError("observed must have a last axis of states, but a single number was given; use crps")
    n = len(draws)
    # One draw at a time: all pairs at once would take n² copies of a forecast.
    pairs = sum(np.sum(np.linalg.norm(draws - one, axis=-1), axis=0) for one in draws)
    return np.mean(np.linalg.norm(draws - observed, axis=-1), axis=0) - pairs / (2 * n * (n - 1))


def _errors(estimates: ArrayLike, truth: ArrayLike) -> np.ndarray:
    estimates, truth = _realizations(estimates), np.asarray(truth, dtype=float)
    if truth.shape != estimates.shape[1:]:
        raise InputError(f"truth must have the shape of one estimate, {estimates.shape[1:]}, not {truth.shape}")
    return estimates - truth


def _realizations(estimates: ArrayLike) -> np.ndarray:
    estimates = np.asarray(estimates, dtype=float)
    if estimates.ndim == 0 or len(estimates) == 0:
        raise InputError("estimates must have at least one realization along their first axis, but there is none")
    return estimates


def _draws(draws: ArrayLike, observed: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    draws, observed = np.asarray(draws, dtype=float), np.asarray(observed, dtype=float)
    if draws.ndim == 0 or draws.shape[1:] != observed.shape:
        raise InputError(f"draws must be a stack of arrays of the shape {observed.shape} observed, not {draws.shape}")
    if len(draws) < 2:
        raise InputError(f"draws must be at least 2, not {len(draws)}")
    return draws, observed
