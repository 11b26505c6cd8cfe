"""What is estimated of the lower-triangular G: its entries as a vector of unconstrained numbers."""

import dataclasses

import jax.numpy as jnp
import numpy as np

from sdefit._types import Array, Float
from sdefit.dynamics.sde import Diffusion
from sdefit.linalg import placed


@dataclasses.dataclass(frozen=True)
class DiffusionShape:
    """The way between the free entries of G and the matrix: logarithms on the diagonal, numbers below."""

    kind: Diffusion
    states: int

    @property
    def size(self) -> int:
        """How many numbers G has to estimate."""
        K = self.states
        return {"full": K * (K + 1) // 2, "diagonal": K, "scalar": 1, "none": 0}[self.kind]

    def matrix(self, v: Float[Array, "entries"], even: Float[Array, "state"]) -> Float[Array, "state state"]:
        """G from its free entries. `even` is what the same number for every state is in these units."""
        if self.kind == "none":
            return jnp.zeros((self.states, self.states), even.dtype)
        if self.kind == "scalar":
            return jnp.exp(v[0]) * jnp.diag(even)
        diagonal = jnp.diag(jnp.exp(v[: self.states]))
        if self.kind == "diagonal":
            return diagonal
        return diagonal + placed(v[self.states :], np.tril_indices(self.states, -1), self.states)

    def entries(self, log_std: Float[Array, "state"], even: Float[Array, "state"]) -> Float[Array, "entries"]:
        """The free entries of a diagonal G with these logarithms on its diagonal."""
        if self.kind == "none":
            return jnp.zeros(0, log_std.dtype)
        if self.kind == "scalar":
            return jnp.mean(log_std - jnp.log(even), keepdims=True)
        return jnp.concatenate([log_std, jnp.zeros(self.size - self.states, log_std.dtype)])


def even_scale(scale: Float[Array, "state"]) -> Float[Array, "state"]:
    """The same number for every state of the user, in standardised units, with geometric mean 1."""
    return jnp.exp(jnp.mean(jnp.log(scale))) / scale
