"""Standard errors of every quantity from a method's own `ParameterCovariance`, in the user's units."""

from typing import Any

import equinox as eqx
import numpy as np

from sdefit.data import Pool
from sdefit.dynamics.sde import SDE
from sdefit.methods.interface import Method, ParameterCovariance
from sdefit.programs import PROGRAMS, Run
from sdefit.result import Estimate
from sdefit.uncertainty.bootstrap import Values
from sdefit.uncertainty.quantities import Quantities


def covariance(model: SDE, method: Method, pool: Pool, estimate: Estimate) -> Run | None:
    """The covariance of (θ, G Gᵀ row by row, σ²) in the user's units; None where the method knows nothing."""
    if not method.knows_covariance:
        return None
    run = PROGRAMS.run(_information, model, method, *_inputs(pool, estimate))
    return run._replace(value=in_users_units(model, run.value, pool.scale, pool.time_scale))


def precompile(model: SDE, method: Method, pool: Pool, estimate: Estimate) -> None:
    """Have the program of `covariance` compiled before there is an estimate, from the shapes of one."""
    if method.knows_covariance:
        PROGRAMS.start(_information, model, method, *_inputs(pool, estimate))


def in_users_units(model: SDE, covariance: Any, scale: Any, time_scale: Any) -> np.ndarray:
    """A covariance of (θ, G Gᵀ row by row, σ²) whose last two are standardised, in the user's units."""
    scale, time = np.asarray(scale), float(np.asarray(time_scale))
    units = np.concatenate([np.ones(len(model.free)), np.outer(scale, scale).ravel() / time, scale**2])
    return units[:, None] * np.asarray(covariance) * units[None, :]


def _inputs(pool: Pool, estimate: Estimate) -> tuple[Pool, Estimate]:
    """Both, without what was only kept to be shown."""
    return pool, eqx.tree_at(lambda e: e.trace, estimate, {})


def _information(model: SDE, method: Method, pool: Pool, estimate: Estimate):
    found = method.covariance(model, pool, estimate)
    assert isinstance(found, ParameterCovariance)
    return found.covariance


def standard_errors(quantities: Quantities, covariance: np.ndarray, values: Values) -> np.ndarray:
    """The standard error of each quantity; NaN where the covariance has none."""
    P, K = len(quantities.model.free), len(quantities.model.states)
    G, noise = np.asarray(values.G), np.asarray(values.noise)
    rows, columns = np.array(quantities.entries, int).reshape(-1, 2).T
    GGt = np.zeros((len(rows), len(covariance)))
    GGt[np.arange(len(rows)), P + K * rows + columns] = 1.0
    theta, sigma = np.eye(P, len(covariance)), np.zeros((K, len(covariance)))
    sigma[np.arange(K), P + K * K + np.arange(K)] = 1.0
    slopes = np.concatenate([theta, _slopes_of_G(G, rows, columns, P, len(covariance)), GGt])
    known = np.array([_spread(slope, covariance) for slope in slopes])
    variance = np.array([_spread(slope, covariance) for slope in sigma])
    # A variance of 0 whose standard error is s may be as large as s, and so σ as √s.
    return np.concatenate(
        [known, np.where(noise > 0, variance / np.where(noise > 0, 2 * noise, 1.0), np.sqrt(variance))]
    )


def _spread(slope: np.ndarray, covariance: np.ndarray) -> float:
    """The standard error of one combination, from the part of the covariance that it needs."""
    used = np.flatnonzero(slope)
    variance = slope[used] @ covariance[np.ix_(used, used)] @ slope[used]
    return float(np.sqrt(variance)) if variance >= 0 else np.nan


def _slopes_of_G(G: np.ndarray, rows: np.ndarray, columns: np.ndarray, skip: int, size: int) -> np.ndarray:
    """How the entries of the Cholesky factor G move with the entries of G Gᵀ: dG = G Φ(G⁻¹ dQ G⁻ᵀ)."""
    K = len(G)
    slopes = np.zeros((len(rows), size))
    inverse = np.linalg.pinv(G)
    for i in range(K):
        for j in range(K):
            change = np.zeros((K, K))
            change[i, j] += 0.5
            change[j, i] += 0.5
            inner = inverse @ change @ inverse.T
            half = np.tril(inner, -1) + 0.5 * np.diag(np.diagonal(inner))
            slopes[:, skip + K * i + j] = (G @ half)[rows, columns]
    return slopes
