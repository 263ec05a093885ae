"""Muon (Jordan et al. 2024): the momentum of a weight matrix with its singular values made equal.

A gradient of pixels has a few strong directions and many weak ones; here all move at about the same pace, and far
fewer updates are needed than with Adam (experiment `ablation`). Biases, narrow matrices and the output layer are
left to Adam.
"""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from mann import kernel
from mann.layers import Precision, product
from mann.native import orthogonal
from mann.training.distributed import AXIS

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the odd polynomial that pulls singular values towards 1
STEPS = 3  # enough for all but the weakest directions, which are mostly noise; 5 did worse
MOMENTUM = 0.95
ROOT_MEAN_SQUARE = 0.8  # of a change, in learning rates; so a rate that suits Adam suits both
NARROWEST = 8  # smallest side of a matrix that is worth it


class MuonState(NamedTuple):
    momentum: Any


def orthogonalise(
    matrices: Float[Array, "n rows columns"], precision: Precision = "float32"
) -> Float[Array, "n rows columns"]:
    """Newton–Schulz iterations: U S Vᵀ becomes about U Vᵀ, without a decomposition."""
    a, b, c = COEFFICIENTS
    multiply = jax.vmap(lambda left, right: product(left, right, precision))
    tall = matrices.shape[1] > matrices.shape[2]
    x = jnp.swapaxes(matrices, 1, 2) if tall else matrices
    x = x / (jnp.linalg.norm(x, axis=(1, 2), keepdims=True) + 1e-7)
    for _ in range(STEPS):
        square = multiply(x, jnp.swapaxes(x, 1, 2))
        x = a * x + multiply(b * square + c * multiply(square, square), x)
    return jnp.swapaxes(x, 1, 2) if tall else x


def muon(
    rate: optax.ScalarOrSchedule,
    weight_decay: float,
    blocks: Any,
    devices: int,
    others: optax.GradientTransformation,
    precision: Precision = "float32",
) -> optax.GradientTransformation:
    """Muon for the matrices, `others` for the rest.

    `blocks` is a tree like the weights, as the layers state it (`matrix_blocks`): how many matrices stand side by
    side in the columns of each array, such as one per gate of an LSTM, or 0 for an array that is none. On several
    devices (inside `shard_map`), each orthogonalises its share of the blocks. What `optax.contrib.muon` lacks,
    and why this is here: blocks of one shape in one stack or all of them in one native call, their sharing over
    devices, and their precision.
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
        matrices = [leaf for _, leaf in ahead]
        way = _in_one_call if matrices and kernel.available() else _in_stacks
        pieces = way(matrices, counts, devices, precision)
        changes = [
            ROOT_MEAN_SQUARE
            * max(leaf.shape[0], leaf.shape[1] // count) ** 0.5
            * jnp.concatenate(list(itertools.islice(pieces, count)), axis=1)
            for leaf, count in zip(matrices, counts, strict=True)
        ]
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


def _in_one_call(
    matrices: list[Array], counts: list[int], devices: int, precision: Precision
) -> Iterator[Array]:
    """All blocks orthogonalised in one native call, in order; each device computes those it owns."""
    shapes = [
        (len(matrix), matrix.shape[1] // count)
        for matrix, count in zip(matrices, counts, strict=True)
        for _ in range(count)
    ]
    owners = _owners(shapes, devices)
    starts, ends = [], [0] * devices
    for (rows, columns), owner in zip(shapes, owners, strict=True):
        starts.append(ends[owner])
        ends[owner] += rows * columns
    room = max(ends)
    device = jax.lax.axis_index(AXIS) if devices > 1 else jnp.zeros((), jnp.int32)
    flat = orthogonal.orthogonalise(
        matrices,
        counts,
        owners,
        device,
        room,
        steps=STEPS,
        coefficients=COEFFICIENTS,
        bfloat16=precision == "bfloat16",
    )
    if devices > 1:
        flat = jax.lax.all_gather(flat, AXIS, tiled=True)
    for (rows, columns), owner, start in zip(shapes, owners, starts, strict=True):
        first = owner * room + start
        yield flat[first : first + rows * columns].reshape(rows, columns)


def _owners(shapes: list[tuple[int, int]], devices: int) -> list[int]:
    """A device for every block, so that all have about as much to do: the dearest first, to the least busy."""
    costs = [min(shape) ** 2 * (max(shape) + 3 * min(shape)) for shape in shapes]
    busy, owners = [0] * devices, [0] * len(shapes)
    for i in sorted(range(len(shapes)), key=lambda i: -costs[i]):
        owners[i] = busy.index(min(busy))
        busy[owners[i]] += costs[i]
    return owners


def _in_stacks(
    matrices: list[Array], counts: list[int], devices: int, precision: Precision
) -> Iterator[Array]:
    """All blocks orthogonalised, in order: those of one shape in one stack."""
    pieces = [p for leaf, count in zip(matrices, counts, strict=True) for p in jnp.split(leaf, count, axis=1)]
    groups: dict[tuple[int, ...], list[int]] = {}
    for i, piece in enumerate(pieces):
        groups.setdefault(piece.shape, []).append(i)
    results: dict[int, Array] = {}
    for members in groups.values():
        stack = _share(jnp.stack([pieces[i] for i in members]), devices, precision)
        results |= dict(zip(members, stack, strict=True))
    return (results[i] for i in range(len(pieces)))


def _share(
    stack: Float[Array, "n rows columns"], devices: int, precision: Precision
) -> Float[Array, "n rows columns"]:
    """A stack orthogonalised; each device computes its share, if they can be shared evenly."""
    count = len(stack)
    if devices == 1 or count % devices:
        return orthogonalise(stack, precision)
    each = count // devices
    mine = jax.lax.dynamic_slice_in_dim(stack, jax.lax.axis_index(AXIS) * each, each)
    return jax.lax.all_gather(orthogonalise(mine, precision), AXIS, tiled=True)
