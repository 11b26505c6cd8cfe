"""A vector field with a Gaussian-process prior on inducing points, and what it does to ensembles of paths.

f_k(x) = φ(x)·v_k with φ(x) = L⁻¹ k(Z, x), L Lᵀ = k(Z, Z): the inducing values are whitened, v_k ~ N(0, s_k²)
independently. Paths are simulated with noise that is drawn once, and their first derivatives with respect to the
field, the start and G travel with them: all of these share the kernel functions, which no general differentiation
would see.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from sdefit._types import Array, Bool, Float, Key, Scalar

_JITTER = 1e-8  # of the kernel matrix, whose diagonal is 1


class Field(eqx.Module):
    """The features of a field: inducing points, a lengthscale, and the Cholesky factor of their covariance."""

    points: Float[Array, "points state"]
    length: Scalar
    chol: Float[Array, "points points"]

    def features(self, x: Float[Array, "n state"]) -> Float[Array, "n points"]:
        """φ(x) at each row: |φ(x)| is at most 1, and near 1 where the inducing points determine the field."""
        return jax.scipy.linalg.solve_triangular(self.chol, _kernel(self.points, x, self.length), lower=True).T

    def weights(self, v: Float[Array, "points state"]) -> Float[Array, "points state"]:
        """What the kernel functions are multiplied with: f(x) = k(x, Z) weights(v)."""
        return jax.scipy.linalg.solve_triangular(self.chol.T, v, lower=False)

    def value_slope_kernel(self, weights: Float[Array, "points state"], x: Float[Array, "n state"]):
        """f, ∂f/∂x and k(x, Z) at each row of x."""
        k = _kernel(x, self.points, self.length)
        value = k @ weights
        # ∂k(x, z)/∂x = −k (x − z)/ℓ², so that ∂f_i/∂x_j = (Σ_m k_m z_mj w_mi − x_j f_i)/ℓ².
        moved = jnp.einsum("mj,mi->mij", self.points, weights).reshape(self.points.shape[0], -1)
        slope = (k @ moved).reshape(*value.shape, x.shape[1]) - value[:, :, None] * x[:, None, :]
        return value, slope / self.length**2, k


def field_on(points: Float[Array, "points state"], length: Scalar) -> Field:
    """The features of the squared-exponential kernel on these inducing points."""
    gram = _kernel(points, points, length)
    return Field(points, length, jnp.linalg.cholesky(gram + _JITTER * jnp.eye(points.shape[0])))


def spread_points(x: Float[Array, "rows state"], use: Bool[Array, "rows"], count: int) -> Float[Array, "count state"]:
    """Rows of x that cover the visited region: each one the farthest from those before it, the first in the middle."""

    def one(carry, _):
        distance, i = carry
        distance = jnp.minimum(distance, jnp.where(use, jnp.sum((x - x[i][None, :]) ** 2, axis=1), -1.0))
        return (distance, jnp.argmax(distance)), x[i]

    first = jnp.argmin(jnp.where(use, jnp.sum(x**2, axis=1), jnp.inf))
    return jax.lax.scan(one, (jnp.full(x.shape[0], jnp.inf), first), None, length=count)[1]


def matched_normals(key: Key, paths: int, draws: int, states: int) -> Float[Array, "draws paths state"]:
    """Standard normal numbers in mirrored pairs with their first two moments made exact.

    Over the paths, every number has mean 0 and variance 1 and no two are correlated: means and covariances of a
    linear equation then come out exactly, and only what is not linear is left to chance. Needs paths/2 ≥ draws·states.
    """
    raw = jax.random.normal(key, (paths // 2, draws * states))
    half = jnp.linalg.qr(raw)[0] * (paths // 2) ** 0.5
    return jnp.concatenate([half, -half]).reshape(paths, draws, states).transpose(1, 0, 2)


class Cloudlet(eqx.Module):
    """Mean and covariance of paths at the end of a window, and the covariance of that end with the start's noise."""

    mean: Float[Array, "state"]
    covariance: Float[Array, "state state"]
    cross: Float[Array, "state state"]


def simulate_window(
    field: Field,
    weights: Float[Array, "points state"],
    mean: Float[Array, "state"],
    chol: Float[Array, "state state"],
    G: Float[Array, "state state"],
    h: Scalar,
    noise: Float[Array, "draws paths state"],
) -> Cloudlet:
    """The ensemble of paths of dx = f(x) dt + G dw after a window, differentiable once in weights, mean, root and G.

    Paths start at mean + root ξ, take a step of length h for each further draw (Euler-Maruyama, with Heun's
    correction of the drift: of second weak order since G is constant), and are summed up by their moments.
    """
    inputs = jnp.concatenate([mean, chol.ravel(), G.ravel(), weights.T.ravel()])
    held = jax.lax.stop_gradient((weights, mean, chol, G))
    end, dm, dP = _window(field, *held, h, noise)
    move = inputs - jax.lax.stop_gradient(inputs)
    return Cloudlet(end.mean + dm @ move, end.covariance + dP @ move, end.cross)


def _window(field: Field, weights, mean, chol, G, h, noise):
    """The end of a window with the derivatives of its mean and covariance by (mean, root, G, weights)."""
    paths, K = noise.shape[1:]
    eye, sizes = jnp.eye(K), (K, K * K, K * K, weights.size)

    def along(x, dx):
        f, slope, k = field.value_slope_kernel(weights, x)
        own = jnp.einsum("ij,sm->sijm", eye, k).reshape(paths, K, -1)
        own = jnp.concatenate([jnp.zeros((paths, K, dx.shape[2] - weights.size)), own], axis=2)
        # Outer products: a batched product of small matrices would be one library call for each path.
        return f, own + sum(slope[:, :, j, None] * dx[:, None, j] for j in range(K))

    def columns(draw, place):
        """∂(A ξ)/∂A for a matrix A, in its place among all columns."""
        block = jnp.einsum("ia,sb->siab", eye, draw).reshape(paths, K, K * K)
        parts = [jnp.zeros((paths, K, size)) for size in sizes]
        parts[place] = block
        return parts

    def step(carry, draw):
        x, dx = carry
        kick, dkick = h**0.5 * draw @ G.T, h**0.5 * jnp.concatenate(columns(draw, 2), axis=2)
        f, df = along(x, dx)
        moved, dmoved = along(x + h * f + kick, dx + h * df + dkick)
        return (x + 0.5 * h * (f + moved) + kick, dx + 0.5 * h * (df + dmoved) + dkick), None

    begin = columns(noise[0], 1)
    begin[0] = jnp.broadcast_to(eye[None], (paths, K, K))
    start = mean[None, :] + noise[0] @ chol.T, jnp.concatenate(begin, axis=2)
    (x, dx), _ = jax.lax.scan(step, start, noise[1:])
    center = jnp.mean(x, axis=0)
    off = x - center[None, :]
    half = jnp.einsum("si,sjc->ijc", off, dx) / paths
    end = Cloudlet(center, off.T @ off / paths, off.T @ noise[0] / paths)
    return end, jnp.mean(dx, axis=0), half + half.transpose(1, 0, 2)


def _kernel(a: Float[Array, "m state"], b: Float[Array, "n state"], length: Scalar) -> Float[Array, "m n"]:
    square = jnp.sum(a**2, axis=1)[:, None] + jnp.sum(b**2, axis=1)[None, :] - 2 * a @ b.T
    return jnp.exp(-0.5 * jnp.maximum(square, 0.0) / length**2)
