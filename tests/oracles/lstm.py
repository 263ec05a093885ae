"""The LSTM of the paper's supplement, one unit at a time in float64."""

import math

import numpy as np

from tests.oracles.lrua import Vector, linear, sigmoid

FORGET_OPEN = 1.0  # our b^h starts the forget gates open: its first quarter is this much larger


def step(
    input_layer: tuple[np.ndarray, np.ndarray],
    recurrent: np.ndarray,
    from_reads: np.ndarray | None,
    inputs: Vector,
    reads: Vector | None,
    hidden: Vector,
    cell: Vector,
) -> tuple[Vector, Vector]:
    """h_t and c_t from (x_t, y_{t−1}), r_{t−1}, h_{t−1} and c_{t−1}; gates in the order f, i, o, u."""
    units = len(hidden)
    nothing = np.zeros(4 * units)
    z = linear(input_layer, inputs)
    z = [a + b for a, b in zip(z, linear((recurrent, nothing), hidden), strict=True)]
    if from_reads is not None and reads is not None:
        z = [a + b for a, b in zip(z, linear((from_reads, nothing), reads), strict=True)]
    new_hidden, new_cell = [], []
    for i in range(units):
        forget = sigmoid(z[i] + FORGET_OPEN)
        take = sigmoid(z[units + i])
        give = sigmoid(z[2 * units + i])
        update = math.tanh(z[3 * units + i])
        c = forget * cell[i] + take * update
        new_cell.append(c)
        new_hidden.append(give * math.tanh(c))
    return new_hidden, new_cell
