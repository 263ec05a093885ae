"""Newton–Schulz iterations of many matrices as one native call on the CPU, for Muon (`mann.training.muon`)."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mann import kernel


def orthogonalise(
    matrices: Sequence[Float[Array, "_ _"]],
    blocks: Sequence[int],
    owners: Sequence[int],
    device: Int[Array, ""],
    room: int,
    *,
    steps: int,
    coefficients: tuple[float, float, float],
    bfloat16: bool,
) -> Float[Array, "room"]:
    """The blocks of columns that belong to a device, orthogonalised, one after the other, then zeros.

    Args:
        matrices: of any sizes.
        blocks: how many blocks of columns, all of one width, each matrix has.
        owners: the device of every block, those of the first matrix first.
        device: whose blocks are computed.
        room: numbers in the result, enough for the blocks of any device.
        steps: iterations.
        coefficients: of the odd polynomial.
        bfloat16: whether to multiply in bfloat16; sums are in float32 in either case.
    """
    columns = [matrix.shape[1] // count for matrix, count in zip(matrices, blocks, strict=True)]
    a, b, c = map(np.float32, coefficients)
    [result] = kernel.call(
        "mann_orthogonalise",
        [((room,), jnp.float32)],
        device,
        *matrices,
        steps=np.int64(steps),
        a=a,
        b=b,
        c=c,
        bfloat16=np.int64(bfloat16),
        room=np.int64(room),
        rows=np.array([len(matrix) for matrix in matrices], np.int64),
        columns=np.array(columns, np.int64),
        blocks=np.array(blocks, np.int64),
        owners=np.array(owners, np.int64),
    )
    return result
