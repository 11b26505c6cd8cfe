"""Models with hidden states, observation equations and noise that grows with the state: how exact, how well covered.

    python experiments/general_models.py --out general_models.csv.bz2  # 100 realizations of each
    python experiments/general_models.py --systems oscillator --realizations 20 --out /tmp/rows.csv
    python experiments/general_models.py --summarise general_models.csv.bz2

Each realization is simulated from the truth, fitted by the default method without start values, and has 90 % intervals
from the posterior (`draws=0`). `fit_each` fits all of a system. For the oscillator the exact maximum likelihood of the
same data stands beside it, by a Kalman filter that is written here.
"""

import argparse
import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.linalg import expm
from scipy.optimize import minimize

import sdefit as sf


@dataclasses.dataclass(frozen=True)
class System:
    """A model as text, the truth, and how it is observed."""

    text: str
    truth: Mapping[str, float]
    x0: Mapping[str, float]
    times: np.ndarray
    noise: float
    settings: Mapping[str, object] = dataclasses.field(default_factory=dict)

    def model(self, name: str) -> sf.SDE:
        return sf.equations(self.text, params={one: sf.positive() for one in self.truth}, name=name, **self.settings)


SYSTEMS: dict[str, System] = {
    "oscillator": System(
        "dx = v*dt\ndv = (-k*x - c*v)*dt + s*dw\nx = x",
        {"k": 4.0, "c": 0.4, "s": 1.0}, {"x": 0.5, "v": 0.0}, np.arange(301) * 0.1, 0.1,
    ),
    "fitzhugh_nagumo": System(
        "dv = (v - v**3/3 - u + 0.5)*dt + s*dw\ndu = eps*(v + a - b*u)*dt\nv = v",
        {"eps": 0.08, "a": 0.7, "b": 0.8, "s": 0.1}, {"v": -1.0, "u": -0.5}, np.arange(301) * 0.5, 0.1,
    ),
    "cir": System(
        "dx = k*(mu - x)*dt + s*sqrt(x)*dw",
        {"k": 2.0, "mu": 1.0, "s": 0.5}, {"x": 0.6}, np.arange(301) * 0.1, 0.05,
    ),
    "logistic": System(
        "dx = r*x*(1 - x/k)*dt + s*x*dw",
        {"r": 1.0, "k": 10.0, "s": 0.3}, {"x": 1.0}, np.arange(201) * 0.1, 0.2,
    ),
    "sir": System(
        "dS = -b*S*I/1000*dt - s*S*I/1000*dw1\ndI = (b*S*I/1000 - g*I)*dt + s*S*I/1000*dw1\nI = I",
        {"b": 0.5, "g": 0.2, "s": 0.2}, {"S": 990.0, "I": 10.0}, np.arange(61) * 1.0, 3.0,
    ),
}  # fmt: skip


def simulated(name: str, realizations: int, seed: int) -> tuple[sf.SDE, list[sf.Series]]:
    """The model and its data."""
    system = SYSTEMS[name]
    model = system.model(name)
    found = sf.simulate(model, system.truth, system.x0, system.times, noise=system.noise, key=seed, paths=realizations)
    return model, found


def rows_of(name: str, realizations: int, seed: int) -> pd.DataFrame:
    """One row for each realization and quantity."""
    model, series = simulated(name, realizations, seed)
    begin, cpu = time.perf_counter(), time.process_time()
    fits = sf.fit_each(model, series)
    took, cost = time.perf_counter() - begin, time.process_time() - cpu
    truth = dict(SYSTEMS[name].truth) | {f"noise[{column}]": SYSTEMS[name].noise for column in model.observations}
    reference = REFERENCES.get(name)
    rows = []
    for i, fit in enumerate(fits):
        known = {row["quantity"]: row for row in _table(fit)}
        exact = reference(series[i]) if reference else {}
        for quantity, value in truth.items():
            one = known[quantity]
            rows.append({
                "system": name, "realization": i, "quantity": quantity, "truth": value, "estimate": one["estimate"],
                "lower": one["lower"], "upper": one["upper"], "identifiability": one["identifiability"],
                "status": fit.status.name, "reference": exact.get(quantity, np.nan),
                "log_likelihood": fit.log_likelihood, "reference_log_likelihood": exact.get("log_likelihood", np.nan),
            })  # fmt: skip
    print(f"{name}: {took:.1f} s, {cost:.1f} CPU s for {realizations} fits", flush=True)
    return pd.DataFrame(rows)


def _table(fit: sf.Fit) -> list[dict[str, object]]:
    """The estimates with their intervals; without any where the fit is not a number."""
    if fit.status.name in ("not_finite", "drift_not_finite"):
        return [row | {"lower": np.nan, "upper": np.nan} for row in fit.table()]
    return fit.intervals(draws=0).table()


def exact_oscillator(series: sf.Series) -> dict[str, float]:
    """Maximum likelihood of the position-only oscillator by an exact Kalman filter, started at the truth."""
    y, h = series.values[:, 0], float(series.times[1] - series.times[0])

    def misfit(u: np.ndarray) -> float:
        (k, c, s, sigma), v = np.exp(u[:4]), u[4]
        F, Q = discretised(np.array([[0.0, 1.0], [-k, -c]]), np.diag([0.0, s**2]), h)
        mean, P, total = np.array([y[0], v]), np.diag([sigma**2, 0.0]), 0.0
        for value in y[1:]:
            mean, P = F @ mean, F @ P @ F.T + Q
            S, error = P[0, 0] + sigma**2, value - mean[0]
            total += 0.5 * (np.log(2 * np.pi * S) + error**2 / S)
            gain = P[:, 0] / S
            mean, P = mean + gain * error, P - np.outer(gain, P[0])
        return total

    found = minimize(misfit, [np.log(4.0), np.log(0.4), 0.0, np.log(0.1), 0.0], method="BFGS")
    k, c, s, sigma = np.exp(found.x[:4])
    return {"k": k, "c": c, "s": s, "noise[x]": sigma, "log_likelihood": -found.fun}


def discretised(A: np.ndarray, Q: np.ndarray, h: float) -> tuple[np.ndarray, np.ndarray]:
    """The transition and the covariance of the noise over a step, by Van Loan's matrix exponential."""
    K = len(A)
    block = np.block([[-A, Q], [np.zeros((K, K)), A.T]])
    whole = expm(block * h)
    F = whole[K:, K:].T
    return F, F @ whole[:K, K:]


REFERENCES: dict[str, Callable[[sf.Series], dict[str, float]]] = {"oscillator": exact_oscillator}


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """For each system and quantity: the median, the RMSE, what it is over that of the reference, and the coverage."""
    table = []
    for (system, quantity), part in rows.groupby(["system", "quantity"], sort=False):
        truth = part.truth.iloc[0]
        rmse = np.sqrt(np.mean((part.estimate - truth) ** 2))
        exact = np.sqrt(np.mean((part.reference - truth) ** 2))
        counts = part.identifiability.value_counts()
        verdicts = [int(counts.get(word, 0)) for word in ("identified", "weakly identified", "not identified")]
        bad = ~part.status.isin(OK)
        table.append({
            "system": system, "quantity": quantity, "truth": truth, "median": part.estimate.median(), "RMSE": rmse,
            "over exact": rmse / exact, "coverage": np.mean((part.lower <= truth) & (truth <= part.upper)),
            "identified, weakly, not": ", ".join(map(str, verdicts)), "fits": len(part), "failed": int(bad.sum()),
        })  # fmt: skip
    return pd.DataFrame(table)


OK = ("ok", "starts_disagree", "not_identified", "at_bound", "residuals_rejected", "long_gaps")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--realizations", type=int, default=100)
    parser.add_argument("--seed", type=int, default=2071)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--summarise", type=Path)
    asked = parser.parse_args(arguments)
    if asked.summarise:
        rows = pd.read_csv(asked.summarise)
    else:
        parts = []
        for name in asked.systems.split(","):
            parts.append(rows_of(name, asked.realizations, asked.seed))
            rows = pd.concat(parts)
            if asked.out:
                rows.to_csv(asked.out, index=False, float_format="%.6g")
    print(summary(rows).to_string(index=False, float_format=lambda x: f"{x:.4g}"))


if __name__ == "__main__":
    main()
