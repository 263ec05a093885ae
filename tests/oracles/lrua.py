"""Least Recently Used Access (paper section 3.2, eqs 2–8), one number at a time in float64.

Vectors are lists of floats, matrices lists of rows. The readings that the paper leaves open are the arguments
of `step`, with the names of the design notes.
"""

import math
from dataclasses import dataclass

import numpy as np

# The paper's cosine divides by zero for an empty slot. Squared lengths get this much, so that slots which hold
# 1e-6 or nothing have similarity 0; for slots of ordinary length it changes nothing visible.
EPSILON = 1e-6

Vector = list[float]
Matrix = list[Vector]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > 0 else math.exp(x) / (1 + math.exp(x))


def softplus(x: float) -> float:
    return x + math.log1p(math.exp(-x)) if x > 0 else math.log1p(math.exp(x))


def linear(layer: tuple[np.ndarray, np.ndarray], x: Vector) -> Vector:
    """b_j + Σ_i x_i W_ij."""
    weight, bias = layer
    result = []
    for j in range(weight.shape[1]):
        total = float(bias[j])
        for i in range(weight.shape[0]):
            total += float(x[i]) * float(weight[i, j])
        result.append(total)
    return result


def rows(flat: Vector, count: int) -> Matrix:
    """Cut a vector into `count` equal parts."""
    width = len(flat) // count
    return [flat[i * width : (i + 1) * width] for i in range(count)]


def softmax(scores: Vector) -> Vector:
    largest = max(scores)
    exponentials = [math.exp(s - largest) for s in scores]
    total = sum(exponentials)
    return [e / total for e in exponentials]


def cosine(k: Vector, slot: Vector) -> float:
    """K(k, M(i)), eq 2."""
    product = key_square = slot_square = 0.0
    for a, b in zip(k, slot, strict=True):
        product += a * b
        key_square += a * a
        slot_square += b * b
    return product / (math.sqrt(key_square + EPSILON) * math.sqrt(slot_square + EPSILON))


def read_weights(k: Vector, memory: Matrix, beta: float) -> Vector:
    """w^r, eq 3; the paper's own has β = 1."""
    return softmax([beta * cosine(k, slot) for slot in memory])


def read(weights: Vector, memory: Matrix) -> Vector:
    """r, eq 4."""
    result = [0.0] * len(memory[0])
    for weight, slot in zip(weights, memory, strict=True):
        for j, value in enumerate(slot):
            result[j] += weight * value
    return result


def usage(previous: Vector, reads: Matrix, writes: Matrix, gamma: float) -> Vector:
    """w^u, eq 5, with the weights of all heads added."""
    result = []
    for i, old in enumerate(previous):
        total = gamma * old
        for head in [*reads, *writes]:
            total += head[i]
        result.append(total)
    return result


def least_used_slots(used: Vector, n: int) -> list[int]:
    """The n least used slots, the least first; of equally used slots the one with the lower index (eq 6)."""
    left = list(range(len(used)))
    found = []
    for _ in range(n):
        best = left[0]
        for i in left:
            if used[i] < used[best]:
                best = i
        found.append(best)
        left.remove(best)
    return found


def write_weights(gate: float, previous_read: Vector, target: int) -> Vector:
    """w^w of one head, eq 7; `gate` is σ(α)."""
    return [gate * w + (1 - gate) * (1.0 if i == target else 0.0) for i, w in enumerate(previous_read)]


def write(memory: Matrix, weights: Matrix, vectors: Matrix) -> Matrix:
    """M + Σ_heads w^w ⊗ k, eq 8."""
    result = [list(slot) for slot in memory]
    for head_weights, vector in zip(weights, vectors, strict=True):
        for i, weight in enumerate(head_weights):
            for j, value in enumerate(vector):
                result[i][j] += weight * value
    return result


@dataclass
class State:
    memory: Matrix
    read_weights: Matrix
    write_weights: Matrix
    usage: Vector


def initial_state(slots: int, width: int, heads: int) -> State:
    first = [1.0] + [0.0] * (slots - 1)
    return State(
        memory=[[1e-6] * width for _ in range(slots)],
        read_weights=[list(first) for _ in range(heads)],
        write_weights=[[0.0] * slots for _ in range(heads)],
        usage=list(first),
    )


def step(
    layers: dict[str, tuple[np.ndarray, np.ndarray]],
    query: Vector,
    state: State,
    *,
    heads: int,
    key_strength: str,
    written: str,
    order: str,
    least_used: str,
    erased: str,
    gamma: float,
) -> tuple[Vector, State]:
    """One step of the module. `layers` holds (weight, bias) of keys, gates, vectors and strengths."""
    keys = rows([math.tanh(v) for v in linear(layers["keys"], query)], heads)
    gates = [sigmoid(a) for a in linear(layers["gates"], query)]
    vectors = keys
    if written == "separate":
        vectors = rows([math.tanh(v) for v in linear(layers["vectors"], query)], heads)
    betas = [1.0] * heads
    if key_strength == "learned":
        betas = [1 + softplus(b) for b in linear(layers["strengths"], query)]

    if least_used == "shared":
        targets = least_used_slots(state.usage, 1) * heads
    else:
        targets = least_used_slots(state.usage, heads)
    writes = [write_weights(gates[h], state.read_weights[h], targets[h]) for h in range(heads)]

    zeroed = {"one": targets[:1], "all": targets, "none": []}[erased]
    kept = [[0.0] * len(slot) if i in zeroed else list(slot) for i, slot in enumerate(state.memory)]
    memory = write(kept, writes, vectors)

    seen = memory if order == "write_first" else state.memory
    reads = [read_weights(keys[h], seen, betas[h]) for h in range(heads)]
    r = [value for h in range(heads) for value in read(reads[h], seen)]
    return r, State(memory, reads, writes, usage(state.usage, reads, writes, gamma))
