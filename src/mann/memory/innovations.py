"""Sequential prediction from a covariance matrix: many small Cholesky factors at once, in blocks, with a gradient.

`jnp.linalg.cholesky` calls LAPACK for one matrix after the other (and see `mann.data.functions.cholesky`); here all
matrices of a batch take the same steps, a block of columns at a time, which is several times as fast.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

BLOCK = 12  # columns at a time, at most


class Innovations(NamedTuple):
    """What is new about every value, given those before it."""

    scale: Float[Array, "heads n"]
    """Its standard deviation, given those before: the diagonal of L."""
    errors: Float[Array, "heads n"]
    """By how many of these it was missed: z, where L z are the values."""
    inverse: Float[Array, "heads n n"]
    """L⁻¹; nothing flows back through it."""


@jax.custom_vjp
def innovations(matrix: Float[Array, "heads n n"], values: Float[Array, "heads n"]) -> Innovations:
    """Errors of the best linear prediction of every value from those before it, and their scales.

    Args:
        matrix: the covariance of the values, L Lᵀ.
        values: with mean zero.
    """
    return _forward(matrix, values)[0]


def _forward(
    matrix: Float[Array, "heads n n"], values: Float[Array, "heads n"]
) -> tuple[Innovations, tuple[Array, Array, Array]]:
    factor, inverse = factorise(matrix)
    errors = jnp.einsum("hij,hj->hi", inverse, values)
    result = Innovations(jnp.diagonal(factor, axis1=1, axis2=2), errors, inverse)
    return result, (factor, inverse, errors)


def _backward(
    kept: tuple[Array, Array, Array], gradient: Innovations
) -> tuple[Float[Array, "heads n n"], Float[Array, "heads n"]]:
    """Of z = L⁻¹ y and of L, then of the Cholesky factor (Murray 2016)."""
    factor, inverse, errors = kept
    eye = jnp.eye(factor.shape[1])[None]
    to_values = jnp.einsum("hij,hi->hj", inverse, gradient.errors)
    to_factor = gradient.scale[:, :, None] * eye - jnp.tril(to_values[:, :, None] * errors[:, None])
    half = jnp.tril(factor.swapaxes(1, 2) @ to_factor) * (1 - 0.5 * eye)
    whole = inverse.swapaxes(1, 2) @ half @ inverse
    return 0.5 * (whole + whole.swapaxes(1, 2)), to_values


innovations.defvjp(_forward, _backward)


def factorise(
    matrix: Float[Array, "heads n n"],
) -> tuple[Float[Array, "heads n n"], Float[Array, "heads n n"]]:
    """L and L⁻¹, where L Lᵀ is a positive definite matrix."""
    size = matrix.shape[1]
    blocks = -(-size // BLOCK)
    block = -(-size // blocks)
    filled = blocks * block
    fill = filled - size
    matrix = jnp.pad(matrix, ((0, 0), (0, fill), (0, fill)))
    index = jnp.arange(filled)
    matrix = matrix + jnp.diag((index >= size).astype(matrix.dtype))[None]  # filled up with the identity

    def columns(number: Int[Array, ""], carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        rest, inverse, factor = carry  # `rest` is symmetric: its rows are its columns; `factor` holds Lᵀ
        start = number * block

        def rows_of(array: Array) -> Array:
            return jax.lax.dynamic_slice_in_dim(array, start, block, axis=1)

        rows = rows_of(rest)
        corner, corner_inverse = _small(jax.lax.dynamic_slice_in_dim(rows, start, block, axis=2))
        below = jnp.where(index[None, None] >= start + block, corner_inverse @ rows, 0.0)
        done = corner_inverse @ rows_of(inverse)
        inverse = inverse - below.swapaxes(1, 2) @ done
        inverse = jax.lax.dynamic_update_slice_in_dim(inverse, done, start, axis=1)
        here = jax.lax.dynamic_update_slice_in_dim(below, corner.swapaxes(1, 2), start, axis=2)
        factor = jax.lax.dynamic_update_slice_in_dim(factor, here, start, axis=1)
        return rest - below.swapaxes(1, 2) @ below, inverse, factor

    eye = jnp.zeros_like(matrix) + jnp.eye(filled)[None]
    _, inverse, factor = jax.lax.fori_loop(0, blocks, columns, (matrix, eye, jnp.zeros_like(matrix)))
    return factor.swapaxes(1, 2)[:, :size, :size], inverse[:, :size, :size]


def _small(matrix: Float[Array, "heads b b"]) -> tuple[Float[Array, "heads b b"], Float[Array, "heads b b"]]:
    """The same for one block, column by column."""
    size = matrix.shape[1]
    index = jnp.arange(size)

    def column(j: Int[Array, ""], carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        rest, inverse, factor = carry
        row = jax.lax.dynamic_slice_in_dim(rest, j, 1, axis=1)[:, 0]
        root = jnp.sqrt(jax.lax.dynamic_slice_in_dim(row, j, 1, axis=1))
        entries = jnp.where(index[None] >= j, row / root, 0.0)
        done = jax.lax.dynamic_slice_in_dim(inverse, j, 1, axis=1) / root[:, :, None]
        after = inverse - jnp.where(index[None] > j, entries, 0.0)[:, :, None] * done
        inverse = jnp.where((index == j)[None, :, None], done, after)
        factor = jnp.where((index == j)[None, None], entries[:, :, None], factor)
        return rest - entries[:, :, None] * entries[:, None], inverse, factor

    eye = jnp.zeros_like(matrix) + jnp.eye(size)[None]
    _, inverse, factor = jax.lax.fori_loop(0, size, column, (matrix, eye, jnp.zeros_like(matrix)))
    return factor, inverse
