"""Muon (Jordan et al. 2024): the momentum of a weight matrix with its singular values made equal.

A gradient of pixels has a few strong directions and many weak ones; here all move at about the same pace, and far
fewer updates are needed than with Adam (experiment `ablation`). Biases, narrow matrices and the output layer are
left to Adam.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from mann.training.distributed import AXIS

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the odd polynomial that pulls singular values towards 1
STEPS = 3  # enough for all but the weakest directions, which are mostly noise; 5 did worse
MOMENTUM = 0.95
ROOT_MEAN_SQUARE = 0.8  # of a change, in learning rates; so a rate that suits Adam suits both
NARROWEST = 8  # smallest side of a matrix that is worth it


class MuonState(NamedTuple):
    momentum: Any


def orthogonalise(matrices: Float[Array, "n rows columns"]) -> Float[Array, "n rows columns"]:
    """Newton–Schulz iterations: U S Vᵀ becomes about U Vᵀ, without a decomposition."""
    a, b, c = COEFFICIENTS
    tall = matrices.shape[1] > matrices.shape[2]
    x = jnp.swapaxes(matrices, 1, 2) if tall else matrices
    x = x / (jnp.linalg.norm(x, axis=(1, 2), keepdims=True) + 1e-7)
    for _ in range(STEPS):
        square = x @ jnp.swapaxes(x, 1, 2)
        x = a * x + (b * square + c * square @ square) @ x
    return jnp.swapaxes(x, 1, 2) if tall else x


def muon(
    rate: optax.ScalarOrSchedule,
    weight_decay: float,
    blocks: Any,
    devices: int,
    others: optax.GradientTransformation,
) -> optax.GradientTransformation:
    """Muon for the matrices, `others` for the rest.

    `blocks` is a tree like the weights, as the layers state it (`matrix_blocks`): how many matrices stand side by
    side in the columns of each array, such as one per gate of an LSTM, or 0 for an array that is none. On several
    devices (inside `shard_map`), each orthogonalises its share of the blocks. What `optax.contrib.muon` lacks,
    and why this is here: blocks of one shape in one stack, and their sharing over devices.
    """
    split = {jax.tree_util.keystr(path): count for path, count in jax.tree_util.tree_leaves_with_path(blocks)}

    def update(gradient: Any, state: MuonState, _: Any = None) -> tuple[Any, MuonState]:
        def follow(momentum: Array, slope: Array) -> Array:
            return MOMENTUM * momentum + (1 - MOMENTUM) * slope

        momentum = jax.tree.map(follow, state.momentum, gradient)
        ahead, shape = jax.tree_util.tree_flatten_with_path(  # Nesterov's look ahead
            jax.tree.map(follow, momentum, gradient)
        )
        counts = [split[jax.tree_util.keystr(path)] for path, _ in ahead]
        pieces = [
            p for (_, leaf), count in zip(ahead, counts, strict=True) for p in jnp.split(leaf, count, axis=1)
        ]
        orthogonal = iter(_in_groups(pieces, lambda stack: _share(stack, devices)))
        changes = [jnp.concatenate(list(itertools.islice(orthogonal, count)), axis=1) for count in counts]
        return jax.tree.unflatten(shape, changes), MuonState(momentum)

    matrices = optax.chain(
        optax.GradientTransformation(
            lambda weights: MuonState(jax.tree.map(jnp.zeros_like, weights)), update
        ),
        optax.add_decayed_weights(weight_decay),
        optax.scale_by_learning_rate(rate),
    )

    def label(path: tuple[Any, ...], leaf: Array) -> str:
        wide = leaf.ndim == 2 and min(leaf.shape) >= NARROWEST
        return "muon" if wide and split[jax.tree_util.keystr(path)] else "others"

    return optax.multi_transform(
        {"muon": matrices, "others": others},
        lambda weights: jax.tree_util.tree_map_with_path(label, weights),
    )


def _in_groups(pieces: list[Array], function: Callable[[Array], Array]) -> Iterator[Array]:
    """Apply a function to stacks of pieces of the same shape; yields them in the old order."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for i, piece in enumerate(pieces):
        groups.setdefault(piece.shape, []).append(i)
    results: dict[int, Array] = {}
    for members in groups.values():
        results |= dict(zip(members, function(jnp.stack([pieces[i] for i in members])), strict=True))
    return (results[i] for i in range(len(pieces)))


def _share(stack: Float[Array, "n rows columns"], devices: int) -> Float[Array, "n rows columns"]:
    """The changes for a stack of blocks; each device computes its share, if they can be shared evenly."""
    count = len(stack)
    if devices > 1 and count % devices == 0:
        each = count // devices
        mine = jax.lax.dynamic_slice_in_dim(stack, jax.lax.axis_index(AXIS) * each, each)
        orthogonal = jax.lax.all_gather(orthogonalise(mine), AXIS, tiled=True)
    else:
        orthogonal = orthogonalise(stack)
    return ROOT_MEAN_SQUARE * max(stack.shape[1:]) ** 0.5 * orthogonal
