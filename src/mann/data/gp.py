"""The oracle of the regression tasks: the exact Gaussian process with the true hyperparameters."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mann.data.functions import Process, cholesky


class Prediction(NamedTuple):
    """A normal distribution for every point; the scale includes the noise of a sample."""

    mean: Float[Array, "*points"]
    scale: Float[Array, "*points"]


def sequential_predictions(
    x: Float[Array, "time dimensions"], y: Float[Array, "time"], process: Process
) -> Prediction:
    """p(y_t | x_t, D_{1:t−1}) at every step, from one Cholesky factor.

    With K + noise² = L Lᵀ and y = L z, the prediction at step t has standard deviation L_tt and misses by
    L_tt z_t.
    """
    factor = _factor(x, process)
    scale = jnp.diagonal(factor)
    return Prediction(y - scale * jax.scipy.linalg.solve_triangular(factor, y, lower=True), scale)


def predict(
    seen: Float[Array, "time dimensions"],
    y: Float[Array, "time"],
    queries: Float[Array, "queries dimensions"],
    process: Process,
) -> Prediction:
    """p(y | x, D) for each query alone, given all samples seen."""
    factor = _factor(seen, process)
    whitened = jax.scipy.linalg.solve_triangular(factor, process.covariance(seen, queries), lower=True)
    mean = whitened.T @ jax.scipy.linalg.solve_triangular(factor, y, lower=True)
    variance = process.variance - jnp.sum(whitened**2, axis=0)
    return Prediction(mean, jnp.sqrt(jnp.maximum(variance, 0.0) + process.noise**2))


def _factor(x: Float[Array, "time dimensions"], process: Process) -> Float[Array, "time time"]:
    return cholesky(process.covariance(x, x) + process.noise**2 * jnp.eye(len(x)))
