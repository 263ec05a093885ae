"""Sparse access, as a dense memory whose reads leave all but the K best slots out; one number at a time in float64.

Every weight vector has an entry for every slot, and every slot knows the step at which it was last used. With K =
all slots nothing is left out: the dense memory.
"""

import math
from dataclasses import dataclass

import numpy as np

from tests.oracles.lrua import Matrix, Vector, cosine, linear, read, rows, sigmoid, softmax, softplus, write


@dataclass
class State:
    memory: Matrix
    read_weights: Matrix
    write_weights: Matrix
    used: list[int]  # the step of the last use
    now: int


def initial_state(slots: int, width: int, heads: int) -> State:
    return State(
        memory=[[0.0] * width for _ in range(slots)],
        read_weights=[[1.0] + [0.0] * (slots - 1) for _ in range(heads)],
        write_weights=[[0.0] * slots for _ in range(heads)],
        used=[0] + [-1] * (slots - 1),
        now=0,
    )


def oldest(used: list[int], count: int) -> list[int]:
    """The slots whose last use is the longest ago; of equals, the lower ones."""
    left, found = list(range(len(used))), []
    for _ in range(count):
        best = left[0]
        for i in left:
            if used[i] < used[best]:
                best = i
        found.append(best)
        left.remove(best)
    return found


def read_weights(k: Vector, memory: Matrix, beta: float, neighbours: int) -> Vector:
    """Softmax over the K most similar slots, 0 for all others; of equally similar slots the lower ones."""
    similar = [cosine(k, slot) for slot in memory]
    best: list[int] = []
    for _ in range(neighbours):
        winner = -1
        for i, value in enumerate(similar):
            if i not in best and (winner < 0 or value > similar[winner]):
                winner = i
        best.append(winner)
    weights = [0.0] * len(memory)
    for i, weight in zip(best, softmax([beta * similar[i] for i in best]), strict=True):
        weights[i] = weight
    return weights


def step(
    layers: dict[str, tuple[np.ndarray, np.ndarray]],
    query: Vector,
    state: State,
    *,
    heads: int,
    neighbours: int,
    threshold: float,
    least_used: str,
) -> tuple[Vector, State]:
    """One step. `layers` holds (weight, bias) of keys, gates, vectors and strengths."""
    keys = rows([math.tanh(v) for v in linear(layers["keys"], query)], heads)
    vectors = rows([math.tanh(v) for v in linear(layers["vectors"], query)], heads)
    gates = [sigmoid(a) for a in linear(layers["gates"], query)]
    betas = [1 + softplus(b) for b in linear(layers["strengths"], query)]

    targets = oldest(state.used, 1) * heads if least_used == "shared" else oldest(state.used, heads)
    kept = [[0.0] * len(slot) if i in targets else list(slot) for i, slot in enumerate(state.memory)]
    writes = []
    for h in range(heads):
        writes.append([gates[h] * weight for weight in state.read_weights[h]])
        writes[h][targets[h]] += 1 - gates[h]
    memory = write(kept, writes, vectors)

    reads = [read_weights(keys[h], memory, betas[h], neighbours) for h in range(heads)]
    told = [value for h in range(heads) for value in read(reads[h], memory)]
    now, used = state.now + 1, list(state.used)
    for i in range(len(memory)):
        if any(reads[h][i] > threshold or writes[h][i] > threshold for h in range(heads)):
            used[i] = now
    return told, State(memory, reads, writes, used, now)
