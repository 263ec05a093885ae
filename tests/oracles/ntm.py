"""Access module of the Neural Turing Machine (Graves et al. 2014, eqs 2–9), one number at a time in float64."""

import math
from dataclasses import dataclass

import numpy as np

from tests.oracles.lrua import Matrix, Vector, linear, read, read_weights, rows, sigmoid, softmax, softplus


def interpolate(gate: float, content: Vector, previous: Vector) -> Vector:
    """NTM eq 7."""
    return [gate * c + (1 - gate) * p for c, p in zip(content, previous, strict=True)]


def shift(weights: Vector, distribution: Vector) -> Vector:
    """NTM eq 8: w̃(i) = Σ_j w(j) s(i − j), indices modulo the number of slots; s over −1, 0, +1."""
    n = len(weights)
    result = [0.0] * n
    for j in range(n):
        for move, probability in zip((-1, 0, 1), distribution, strict=True):
            result[(j + move) % n] += weights[j] * probability
    return result


def sharpen(weights: Vector, gamma: float) -> Vector:
    """NTM eq 9."""
    powers = [w**gamma for w in weights]
    total = sum(powers)
    return [p / total for p in powers]


def erase_and_add(memory: Matrix, weights: Vector, erased: Vector, added: Vector) -> Matrix:
    """NTM eqs 3 and 4."""
    return [
        [m * (1 - w * e) + w * a for m, e, a in zip(slot, erased, added, strict=True)]
        for slot, w in zip(memory, weights, strict=True)
    ]


def address(key: Vector, raw: Vector, memory: Matrix, previous: Vector, initial_strength: float) -> Vector:
    """The weights of one head; `raw` is its strength, gate, three moves and sharpening, before squashing."""
    content = read_weights(key, memory, softplus(raw[0] + initial_strength))
    gated = interpolate(sigmoid(raw[1]), content, previous)
    return sharpen(shift(gated, softmax(raw[2:5])), 1 + softplus(raw[5]))


@dataclass
class State:
    memory: Matrix
    read_weights: Matrix
    write_weights: Vector


def initial_state(slots: int, width: int, heads: int) -> State:
    first = [1.0] + [0.0] * (slots - 1)
    return State([[1e-6] * width for _ in range(slots)], [list(first) for _ in range(heads)], list(first))


def step(
    layers: dict[str, tuple[np.ndarray, np.ndarray]],
    query: Vector,
    state: State,
    *,
    heads: int,
    initial_strength: float,
) -> tuple[Vector, State]:
    """Write with the last head, then read what is there now with the others."""
    keys = rows([math.tanh(v) for v in linear(layers["keys"], query)], heads + 1)
    raw = rows(linear(layers["addressing"], query), heads + 1)
    erased = [sigmoid(v) for v in linear(layers["erase"], query)]
    added = [math.tanh(v) for v in linear(layers["add"], query)]

    writes = address(keys[heads], raw[heads], state.memory, state.write_weights, initial_strength)
    memory = erase_and_add(state.memory, writes, erased, added)
    reads = [address(keys[h], raw[h], memory, state.read_weights[h], initial_strength) for h in range(heads)]
    r = [value for h in range(heads) for value in read(reads[h], memory)]
    return r, State(memory, reads, writes)
