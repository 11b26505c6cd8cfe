"""Exact log-likelihoods of diffusions that are observed without noise, in NumPy and SciPy alone: to check sdefit.

Each is log p(x_2, …, x_N | x_1), a sum over the transitions of one path.
"""

import numpy as np
from scipy import optimize, special

Array = np.ndarray


def gbm_log_likelihood(times: Array, x: Array, drift: float, s: float) -> float:
    """dx = a x dt + s x dw: log x has independent normal increments."""
    h, increments = np.diff(times), np.diff(np.log(x))
    residuals = increments - (drift - s**2 / 2) * h
    return float(np.sum(-0.5 * residuals**2 / (s**2 * h) - 0.5 * np.log(2 * np.pi * s**2 * h) - np.log(x[1:])))


def gbm_maximum_likelihood(times: Array, x: Array) -> tuple[float, float]:
    """a and s in closed form."""
    h, increments = np.diff(times), np.diff(np.log(x))
    rate = np.sum(increments) / np.sum(h)
    s = np.sqrt(np.mean((increments - rate * h) ** 2 / h))
    return float(rate + s**2 / 2), float(s)


def cir_log_likelihood(times: Array, x: Array, kappa: float, mu: float, s: float) -> float:
    """dx = κ(μ − x) dt + s √x dw: 2 c x has a noncentral chi-squared law."""
    h = np.diff(times)
    c = 2 * kappa / (s**2 * -np.expm1(-kappa * h))
    u, v = c * x[:-1] * np.exp(-kappa * h), c * x[1:]
    order = 2 * kappa * mu / s**2 - 1
    # ive(q, w) is the Bessel function I_q(w) times exp(-w), which the exponent takes back.
    w = 2 * np.sqrt(u * v)
    log_bessel = np.log(special.ive(order, w))
    return float(np.sum(np.log(c) - (np.sqrt(u) - np.sqrt(v)) ** 2 + order / 2 * np.log(v / u) + log_bessel))


def cir_mean(t: Array, x0: float, kappa: float, mu: float) -> Array:
    """E x(t)."""
    return mu + (x0 - mu) * np.exp(-kappa * t)


def jacobi_log_likelihood(times: Array, x: Array, kappa: float, mu: float, s: float, terms: int = 400) -> float:
    """dx = κ(μ − x) dt + s √(x(1 − x)) dw, by the spectral expansion of its transition density."""
    transitions = zip(np.diff(times), x[:-1], x[1:], strict=True)
    return float(sum(np.log(jacobi_density(h, a, b, kappa, mu, s, terms)) for h, a, b in transitions))


def jacobi_density(h: float, start: float, end: float, kappa: float, mu: float, s: float, terms: int = 400) -> float:
    """p(x(h) = end | x(0) = start) = π(end) Σ_n exp(−λ_n h) φ_n(start) φ_n(end).

    π is Beta(2κμ/s², 2κ(1 − μ)/s²), φ_n are its orthonormal (Jacobi) polynomials, λ_n = n κ + n(n − 1) s²/2.
    """
    a, b = 2 * kappa * mu / s**2, 2 * kappa * (1 - mu) / s**2
    n = np.arange(terms)
    rates = n * kappa + n * (n - 1) * s**2 / 2
    stationary = np.exp((a - 1) * np.log(end) + (b - 1) * np.log1p(-end) - special.betaln(a, b))
    ends = orthonormal_jacobi(np.array([start, end]), a, b, terms)
    return float(stationary * np.sum(np.exp(-rates * h) * ends[:, 0] * ends[:, 1]))


def orthonormal_jacobi(x: Array, a: float, b: float, terms: int) -> Array:
    """The polynomials orthonormal under Beta(a, b) at x, by their three-term recurrence: (terms, x)."""
    p, q = b - 1, a - 1  # the weight (1 − y)^p (1 + y)^q of y = 2x − 1
    y, rows = 2 * x - 1, [np.ones_like(x)]
    before, beta_before = np.zeros_like(x), 0.0
    for n in range(terms - 1):
        c = 2 * n + p + q
        centre = (q - p) / (p + q + 2) if n == 0 else (q**2 - p**2) / (c * (c + 2))
        m = n + 1
        d = 2 * m + p + q
        beta = 4 * m * (m + p) * (m + q) * (m + p + q) / (d**2 * (d + 1) * (d - 1)) if m > 1 else (
            4 * (1 + p) * (1 + q) / ((2 + p + q) ** 2 * (3 + p + q))
        )  # fmt: skip
        new = ((y - centre) * rows[-1] - np.sqrt(beta_before) * before) / np.sqrt(beta)
        before, beta_before = rows[-1], beta
        rows.append(new)
    return np.stack(rows)


def maximise(log_likelihood, start: Array) -> tuple[Array, float]:
    """The positive parameters at which a log-likelihood is largest, and its value there."""
    options = {"xatol": 1e-9, "fatol": 1e-9, "maxiter": 4000, "maxfev": 4000}
    found = optimize.minimize(
        lambda v: -log_likelihood(*np.exp(v)), np.log(start), method="Nelder-Mead", options=options
    )
    return np.exp(found.x), -float(found.fun)
