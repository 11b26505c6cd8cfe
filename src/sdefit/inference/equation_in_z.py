"""A model at one θ in coordinates z in which its noise is constant: what a filter needs to know of it.

Beliefs are about z, standardised by z at the center of x and by how fast z moves there. See
`dynamics.change_of_variables` for the equation of z.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp

from sdefit._types import Array, Float, Scalar
from sdefit.dynamics.change_of_variables import ChangeOfVariables
from sdefit.dynamics.model_in_z import DiffusionInZ, DriftInZ, ObservationInZ, scales
from sdefit.inference.equation import Equation
from sdefit.linalg import dot
from sdefit.ssm.kalman import Gaussian, Observations
from sdefit.ssm.moments import Diffusivity, Drift, Measurement


@dataclasses.dataclass(frozen=True)
class EquationInZ:
    """The equation of z, made of that of x."""

    x: Equation
    change: ChangeOfVariables

    @property
    def names(self) -> dict[str, Any]:
        """The parameters by name, for constants of the change of variables."""
        return self.x.model.named(self.x.point.theta)

    @property
    def center(self) -> Float[Array, "state"]:
        """z where the standardised z is 0."""
        return self.change.to_z(jnp.asarray(self.x.pool.center), self.names)

    @property
    def scale(self) -> Float[Array, "state"]:
        """What 1 of a standardised z is."""
        return self.x.pool.scale / scales(self.change.shapes, self.center, self.names)

    def drift(self, origin: Any) -> Drift:
        """The drift of z, by Itô's formula."""
        pool, model = self.x.pool, self.x.model
        drift, center, scale = DriftInZ(model, self.change.shapes, pool.time_scale), self.center, self.scale
        return lambda t, z: pool.time_scale / scale * drift(*self._point(t, center + scale * z, origin))

    def diffusivity(self, origin: Any) -> Diffusivity:
        """The constant diffusion of z, which may depend on time."""
        g, center = DiffusionInZ(self.x.model, self.change.shapes), self.center
        unit = jnp.sqrt(self.x.pool.time_scale) / self.scale[:, None]

        def of(t, z):
            scaled = unit * g(*self._point(t, center + self.scale * z, origin))
            return dot(scaled, scaled.T) + self.x.point.Q

        return of

    def measurement(self, origin: Any) -> Measurement:
        """What columns measure of z; a state measured without noise is z itself."""
        model, pool, center, scale = self.x.model, self.x.pool, self.center, self.scale
        h, exact = ObservationInZ(model, self.change.shapes, self.change.exact), self.change.exact
        known = pool.along(lambda t, x: model.noise_std(t, x, self.x.point.theta))

        def of(t, z):
            measured = h(*self._point(t, center + scale * z, origin))
            scaled = jnp.stack([law.gaussian_scale(measured[d]) for d, law in enumerate(model.laws)])
            value = (scaled - pool.column_center) / pool.column_scale
            value = jnp.stack([value[d] if k is None else z[k] for d, k in enumerate(exact)])
            noise = self.x.point.variance + (known(t, self.states(z), origin) / pool.column_scale) ** 2
            return value, noise

        return of

    def belief(self, x: Gaussian) -> Gaussian:
        """A belief about x as one about z, by the delta method."""
        z = self.change.to_z(self.x.pool.center + self.x.pool.scale * x.mean, self.names)
        slope = self.x.pool.scale / scales(self.change.shapes, z, self.names) / self.scale
        return Gaussian((z - self.center) / self.scale, slope[:, None] * x.covariance * slope[None, :])

    def data(self, left: Observations) -> tuple[Observations, Scalar]:
        """The observations of z, and the log of dz/dx at those that a likelihood predicts."""
        pool, values, total = self.x.pool, left.values, jnp.zeros(())
        for d, k in enumerate(self.change.exact):
            shape = None if k is None else self.change.shapes[k]
            if shape is None:
                continue
            seen = left.observed[:, d]
            x = jnp.where(seen, pool.column_center[d] + pool.column_scale[d] * values[:, d], pool.column_center[d])
            z = shape.to_z(x)
            values = values.at[:, d].set((z - self.center[k]) / self.scale[k])
            slope = pool.column_scale[d] / shape.g0(z) / self.scale[k]
            total = total + jnp.sum(jnp.where(seen, jnp.log(slope), 0.0))
        return Observations(left.times, values, left.observed), total

    def states(self, z: Float[Array, "*times state"]) -> Float[Array, "*times state"]:
        """Standardised states of standardised z."""

        def beside(vector: Array) -> Array:
            return jnp.asarray(vector).reshape((1,) * (z.ndim - 1) + (-1,))

        x = self.change.to_x(beside(self.center) + beside(self.scale) * z, self.names)
        return (x - beside(self.x.pool.center)) / beside(self.x.pool.scale)

    def states_and_std(self, z: Gaussian) -> tuple[Float[Array, "times state"], Float[Array, "times state"]]:
        """Medians of the states, and half of what one standard deviation of z on both sides makes of them."""
        std = jnp.sqrt(jnp.maximum(jnp.diagonal(z.covariance, axis1=-2, axis2=-1), 0.0))
        return self.states(z.mean), 0.5 * (self.states(z.mean + std) - self.states(z.mean - std))

    def _point(self, t: Scalar, z: Float[Array, "state"], origin: Any) -> tuple[Any, Array, dict[str, Any]]:
        return self.x.model.point(self.x.pool.moment(t, origin), z, self.x.point.theta)
