"""`Profile`: how the likelihood falls as one parameter leaves its best value, all else fitted again."""

import dataclasses
import os
from statistics import NormalDist
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sdefit._types import Array
from sdefit.data import Pool
from sdefit.dynamics.sde import SDE
from sdefit.errors import InputError, ModelError
from sdefit.inference.increments import interpolated
from sdefit.inference.likelihood import filter_pool, step_counts
from sdefit.inference.parameterisation import Parameterisation
from sdefit.methods.esgf import ESGF
from sdefit.methods.interface import LikelihoodMethod, Method
from sdefit.optimise import ValueGradHessian, levenberg_marquardt
from sdefit.programs import PROGRAMS
from sdefit.result import Estimate
from sdefit.ssm.innovations import negative_log_likelihood
from sdefit.store import read_finding

_REACH = 3.5  # standard errors to either side
_WIDEST = 2.0  # of a standard error in an unconstrained coordinate that is a logarithm


@dataclasses.dataclass(frozen=True, eq=False)
class Profile:
    """The log-likelihood by a Gaussian filter with one parameter held at each of `values`, less its maximum.

    `lower` and `upper` are where it has fallen by half the chi-squared quantile of `level`; infinite where it does
    not within the values tried, which is to say that the data do not bound the parameter on that side.

    >>> found = fit.profile("rate", points=5)
    >>> round(found.lower, 1), round(found.upper, 1)
    (0.6, 1.1)
    """

    name: str
    values: np.ndarray
    log_likelihood: np.ndarray
    estimate: float
    level: float
    lower: float
    upper: float
    seconds: float

    def frame(self) -> Any:
        """The values of the parameter and the log-likelihood at each as a pandas data frame."""
        import pandas as pd  # here, not above: half a second that most uses do not need

        return pd.DataFrame({self.name: self.values, "log_likelihood": self.log_likelihood})

    def plot(self, ax: Any = None) -> Any:
        """The profile with the height that bounds the interval: a matplotlib figure, or on the axes `ax`."""
        from sdefit.display.plot import on_axes  # here, not above: matplotlib takes half a second
        from sdefit.report.uncertainty import profile_charts

        same = {"parameter": self.name, "estimate": self.estimate, "level": self.level}
        columns = {name: np.full(len(self.values), one) for name, one in same.items()}
        return on_axes(profile_charts(columns | {"values": self.values, "log_likelihood": self.log_likelihood}), ax)

    @classmethod
    def load(cls, path: str | os.PathLike[str], name: str) -> "Profile":
        """The profile of a parameter that `fit.save(path, profiles=[...])` stored."""
        return read_finding(path, cls, "profiles", name)


def profile(
    model: SDE, method: Method, pool: Pool, estimate: Estimate, name: str, points: int, level: float
) -> Profile:
    """The profile likelihood of one parameter, whatever method the estimate came from."""
    if name not in model.free:
        raise ModelError(f"name must be a free parameter ({', '.join(model.free) or 'none'}), not {name!r}")
    if not (isinstance(points, int) and points >= 5):
        raise InputError(f"points must be a whole number of at least 5, not {points!r}")
    if not (isinstance(level, float) and 0 < level < 1):
        raise InputError(f"level must lie between 0 and 1, not {level!r}")
    place = np.array(model.free.index(name), np.int32)
    shares = np.linspace(-_REACH, _REACH, points | 1)  # odd: the middle one is the best
    scales = getattr(estimate.state, "scales", None)
    inputs = (pool, estimate.theta, estimate.G, estimate.noise, estimate.mean[:, 0], scales, place, shares)
    run = PROGRAMS.run(_profile, model, method, *inputs)
    values, found = (np.asarray(one) for one in run.value)
    fall = found - np.nanmax(found)
    ends = _ends(values, fall, level)
    seconds = run.seconds + run.compile_seconds
    return Profile(name, values, fall, float(estimate.theta[int(place)]), level, *ends, seconds)


def _ends(values: np.ndarray, fall: np.ndarray, level: float) -> tuple[float, float]:
    """Where the fall crosses half the chi-squared quantile on either side of its top, by straight lines."""
    # Chi-squared with one degree of freedom is the square of a standard normal.
    depth = -0.5 * NormalDist().inv_cdf(0.5 + level / 2) ** 2
    top = int(np.nanargmax(fall))
    sides = (values[top::-1], fall[top::-1], -np.inf), (values[top:], fall[top:], np.inf)
    ends = []
    for at, height, none in sides:
        below = np.flatnonzero(height < depth)
        n = int(below[0]) if below.size else 0
        fraction = (height[n - 1] - depth) / (height[n - 1] - height[n]) if n else 0.0
        ends.append(float(at[n - 1] + fraction * (at[n] - at[n - 1])) if n else float(none))
    return ends[0], ends[1]


def _profile(
    model: SDE, method: Method, pool: Pool, theta, G, noise, first, scales, place, shares
) -> tuple[Array, Array]:
    """Values of one parameter, and the highest log-likelihood at each, with the method's own weak priors."""
    parameterisation = Parameterisation(model, pool, "each")
    prior = (method if isinstance(method, LikelihoodMethod) else ESGF(weak=True)).prior(parameterisation, scales)
    steps = 2 * step_counts(model, pool, interpolated(pool), theta[None])

    def fn(u, unit) -> ValueGradHessian:
        """The likelihood where `unit` holds a coordinate: no slope, and a curvature that leaves it where it is."""

        def new(variance_params):
            return filter_pool(model, pool, parameterisation.point(variance_params), steps, "cubature")[1].innovations

        at = negative_log_likelihood(new, parameterisation.variance_params(u)).reparameterise(
            parameterisation.variance_params, u
        ) + prior(u)
        other = ~unit[:, None] & ~unit[None, :]
        curvature = jnp.where(other, at.curvature, 0.0) + jnp.diag(jnp.where(unit, 1.0, 0.0))
        return ValueGradHessian(at.value, jnp.where(unit, 0.0, at.gradient), curvature)

    begin = parameterisation.at(theta, G, noise, first)
    own = jnp.arange(begin.size) == place

    def search(count, before):
        """All searches: in the first round nothing is held, in the second one coordinate, off its best value."""
        tries, _, _ = before
        unit = own & (count > 0)
        found = jax.vmap(
            lambda x: levenberg_marquardt(lambda u: fn(u, unit), x[None], max_step=parameterisation.max_step)
        )(tries)
        best: ValueGradHessian = jax.tree.map(lambda a: a[0, 0], found.at)
        spread = jnp.sqrt(jnp.maximum(jnp.linalg.pinv(best.curvature)[place, place], 0.0))
        spread = jnp.where(jnp.isinf(parameterisation.max_step[place]), spread, jnp.minimum(spread, _WIDEST))
        onwards = found.x[:, 0] + jnp.where(own[None, :], (spread * shares)[:, None], 0.0)
        return jnp.where(count > 0, tries, onwards), tries, -found.at.value[:, 0]

    tries = jnp.broadcast_to(begin[None, :], (shares.size, begin.size))
    # Two rounds of one loop, so that the filter is traced once.
    tries, _, ends = jax.lax.fori_loop(0, 2, search, (tries, tries, jnp.zeros(shares.size)))
    return jax.vmap(lambda x: parameterisation.bounds.constrain(x[: theta.size])[place])(tries), ends
