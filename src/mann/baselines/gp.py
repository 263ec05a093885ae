"""The oracle of the regression task: the exact Gaussian process with the true hyperparameters."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mann.data.functions import GaussianProcess


def sequential_nll(
    x: Float[Array, "time dimensions"], y: Float[Array, "time"], process: GaussianProcess
) -> Float[Array, "time"]:
    """−log p(y_t | x_t, D_{1:t−1}) at every step, from one Cholesky factor.

    With K + noise² = L Lᵀ and y = L z, the prediction at step t has standard deviation L_tt and misses by
    L_tt z_t.
    """
    factor = jnp.linalg.cholesky(process.covariance(x, x) + process.noise**2 * jnp.eye(len(x)))
    z = jax.scipy.linalg.solve_triangular(factor, y, lower=True)
    return 0.5 * z**2 + jnp.log(jnp.diagonal(factor)) + 0.5 * math.log(2 * math.pi)
