"""Functions drawn from a Gaussian process prior, for the regression task."""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from mann.errors import MannError


@dataclasses.dataclass(frozen=True)
class GaussianProcess:
    """Fixed hyperparameters: squared-exponential kernel and independent noise on every sample.

    Raises:
        MannError: unless all are positive, and the noise large enough for float32.
    """

    length_scale: float = 0.5
    """How far apart two points are alike."""
    variance: float = 1.0
    """Of the function at any point."""
    noise: float = 0.1
    """Standard deviation of the observation noise. It also keeps the Cholesky factor safe in float32."""

    def __post_init__(self) -> None:
        for field in ("length_scale", "variance", "noise"):
            value = getattr(self, field)
            if not (math.isfinite(value) and value > 0):
                raise MannError(
                    f"The {field.replace('_', ' ')} of the process must be positive, not {value}."
                )
        if self.noise < 1e-2 * math.sqrt(self.variance):
            raise MannError(
                f"A noise of {self.noise} is too small for float32: use at least a hundredth of the standard "
                "deviation of the function."
            )

    def covariance(
        self, a: Float[Array, "n dimensions"], b: Float[Array, "m dimensions"]
    ) -> Float[Array, "n m"]:
        """Covariance of the noiseless function at `a` and `b`."""
        squares = jnp.sum((a[:, None] - b[None]) ** 2, axis=-1)
        return self.variance * jnp.exp(-squares / (2 * self.length_scale**2))


class FunctionDraw(NamedTuple):
    """Noisy values of one function, with what the exact GP would have said of each before seeing it."""

    values: Float[Array, "n"]
    log_density: Float[Array, "n"]  # log p(y_t | x_t, D_{1:t−1}) under the true process, in nats


def cholesky(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The lower triangular L with L Lᵀ = matrix, column by column.

    `jnp.linalg.cholesky` calls LAPACK, and two CPU devices of one process that do so at the same time wait for
    each other forever (seen with jax 0.10.2, 2 cores, 50×50).
    """
    index = jnp.arange(len(matrix))

    def column(j: Int[Array, ""], factor: Float[Array, "n n"]) -> Float[Array, "n n"]:
        rest = matrix[j] - factor @ factor[j]  # what the columns before j leave of the j-th
        return factor.at[:, j].set(jnp.where(index >= j, rest / jnp.sqrt(rest[j]), 0.0))

    return jax.lax.fori_loop(0, len(matrix), column, jnp.zeros_like(matrix))


def draw_function(
    key: PRNGKeyArray, x: Float[Array, "n dimensions"], process: GaussianProcess
) -> FunctionDraw:
    """Draw y ~ N(0, K + noise²) at the points x.

    With y = L z the exact sequential density at step t is −z_t²/2 − log L_tt − log(2π)/2: the Cholesky factor
    that draws the function is also its oracle.
    """
    covariance = process.covariance(x, x) + process.noise**2 * jnp.eye(len(x))
    factor = cholesky(covariance)
    z = jax.random.normal(key, (len(x),))
    log_density = -0.5 * z**2 - jnp.log(jnp.diagonal(factor)) - 0.5 * math.log(2 * math.pi)
    return FunctionDraw(factor @ z, log_density)


def draw_smooth(
    key: PRNGKeyArray, x: Float[Array, "n dimensions"], process: GaussianProcess
) -> Float[Array, "n"]:
    """Draw the function itself at the points x, without noise.

    Without noise the covariance of many close points is singular in float32, and has no Cholesky factor: its
    square root is taken by eigenvectors instead, which costs more and is right to about 0.003 deviations.
    """
    values, vectors = jnp.linalg.eigh(process.covariance(x, x))
    roots = jnp.sqrt(jnp.maximum(values, 0.0))
    return vectors @ (roots * jax.random.normal(key, (len(x),)))
