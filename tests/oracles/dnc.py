"""Memory of the Differentiable Neural Computer (Graves et al. 2016, Methods), one number at a time in float64."""

import math
from dataclasses import dataclass

import numpy as np

from tests.oracles.lrua import Matrix, Vector, linear, read, read_weights, rows, sigmoid, softmax, softplus
from tests.oracles.ntm import erase_and_add


@dataclass
class State:
    memory: Matrix
    usage: Vector
    precedence: Vector
    links: Matrix
    read_weights: Matrix
    write_weights: Vector


def usage(previous: Vector, writes: Vector, reads: Matrix, free: Vector) -> Vector:
    """u_t: what was used or written, unless a head read it and its free gate released it."""
    result = []
    for i, used in enumerate(previous):
        retained = 1.0
        for head, gate in zip(reads, free, strict=True):
            retained *= 1 - gate * head[i]
        result.append((used + writes[i] - used * writes[i]) * retained)
    return result


def allocation(used: Vector) -> Vector:
    """a_t: free slots first; a slot gets what those that are less used have left over."""
    left = list(range(len(used)))
    result = [0.0] * len(used)
    product = 1.0
    while left:
        least = left[0]
        for i in left:
            if used[i] < used[least]:
                least = i
        result[least] = (1 - used[least]) * product
        product *= used[least]
        left.remove(least)
    return result


def links(previous: Matrix, precedence: Vector, writes: Vector) -> Matrix:
    """L_t."""
    n = len(writes)
    result = [[0.0] * n for _ in range(n)]
    for i in range(n):
        for j in range(n):
            if i != j:
                result[i][j] = (1 - writes[i] - writes[j]) * previous[i][j] + writes[i] * precedence[j]
    return result


def precedence(previous: Vector, writes: Vector) -> Vector:
    """p_t."""
    total = sum(writes)
    return [(1 - total) * old + new for old, new in zip(previous, writes, strict=True)]


def forward(matrix: Matrix, weights: Vector) -> Vector:
    """L w."""
    return [sum(row[j] * weights[j] for j in range(len(weights))) for row in matrix]


def backward(matrix: Matrix, weights: Vector) -> Vector:
    """Lᵀ w."""
    n = len(weights)
    return [sum(matrix[i][j] * weights[i] for i in range(n)) for j in range(n)]


def step(
    layers: dict[str, tuple[np.ndarray, np.ndarray]], query: Vector, state: State, *, heads: int
) -> tuple[Vector, State]:
    keys = rows(linear(layers["keys"], query), heads + 1)
    strengths = [1 + softplus(value) for value in linear(layers["strengths"], query)]
    gates = [sigmoid(value) for value in linear(layers["gates"], query)]
    modes = [softmax(row) for row in rows(linear(layers["modes"], query), heads)]
    erased = [sigmoid(value) for value in linear(layers["erased"], query)]
    free, allocate, write = gates[:heads], gates[heads], gates[heads + 1]

    used = usage(state.usage, state.write_weights, state.read_weights, free)
    content = read_weights(keys[heads], state.memory, strengths[heads])
    writes = [
        write * (allocate * a + (1 - allocate) * c) for a, c in zip(allocation(used), content, strict=True)
    ]
    memory = erase_and_add(state.memory, writes, erased, linear(layers["written"], query))
    linked = links(state.links, state.precedence, writes)
    reads: Matrix = []
    for h in range(heads):
        back, forth = (way(linked, state.read_weights[h]) for way in (backward, forward))
        found = read_weights(keys[h], memory, strengths[h])
        reads.append(
            [
                modes[h][0] * b + modes[h][1] * c + modes[h][2] * f
                for b, c, f in zip(back, found, forth, strict=True)
            ]
        )
    told = [value for head in reads for value in read(head, memory)]
    assert all(math.isfinite(value) for value in told)
    return told, State(memory, used, precedence(state.precedence, writes), linked, reads, writes)
