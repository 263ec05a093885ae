"""The selective memory, one slot at a time in float64.

`step` returns what it looked at and chose (`Seen`). Given one of an earlier run, it takes what was looked at from
there, and writes as chosen there plus the change of the softmax since: finite differences of this are the gradients
of a choice that is straight through.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from tests.oracles.lrua import sigmoid, softmax


@dataclass
class State:
    keys: list[np.ndarray]
    values: list[np.ndarray]
    pairs: list[float]
    left: list[float]
    age: list[float]
    use: list[float]
    surprise: list[float]
    pending: np.ndarray
    similarity: list[float]
    told: np.ndarray
    read_weights: list[float]


@dataclass
class Seen:
    described: list[list[float]]
    surprise: float
    chosen: int  # as many as there are slots: nowhere
    soft: list[float]
    full: bool  # no slot was empty
    state: State | None = None


def initial_state(slots: int, width: int, labels: int) -> State:
    nothing = [0.0] * slots
    return State(
        [np.zeros(width)] * slots,
        [np.zeros(labels)] * slots,
        *(nothing, nothing, nothing, nothing, nothing),
        np.zeros(width),
        nothing,
        np.zeros(labels),
        nothing,
    )


def describe(state: State, label: np.ndarray, sees_null: bool) -> tuple[list[list[float]], float]:
    size = float(label @ label)
    surprise = 1 - float(state.told @ label) / size if size else 0.0
    rows = []
    for i, pairs in enumerate(state.pairs):
        held = state.left[i]
        same = held * (float(state.values[i] @ label) / size) ** 4 if size else 0.0
        similar = state.similarity[i] * held if size else 0.0
        read = state.read_weights[i] if size else 0.0
        rows.append(
            [
                *(held, similar, same, similar * same, similar * (1 - same)),
                *(
                    held * math.log1p(state.age[i]) / 5,
                    held * math.log1p(pairs),
                    held * state.use[i],
                    held * state.surprise[i],
                ),
                *(read, read * (1 - same), surprise, 1.0 if sees_null and not size else 0.0, 1.0),
            ]
        )
    return rows, surprise


def step(
    weights: dict[str, np.ndarray],
    now: np.ndarray,
    label: np.ndarray,
    state: State,
    *,
    sees_null: bool = True,
    before: Seen | None = None,
) -> tuple[list[float], State, Seen]:
    slots, present = len(state.pairs), bool(label.any())
    if before is None:
        described, surprise = describe(state, label, sees_null)
    else:
        described, surprise = before.described, before.surprise
    scores, forget, keep = [], [], []
    for row in described:
        hidden = [max(0.0, float(np.dot(row, column))) for column in weights["first"].T]
        numbers = 10 * (np.asarray(row) @ weights["straight"] + np.asarray(hidden) @ weights["second"])
        for numbers_of, number in zip((scores, forget, keep), numbers, strict=True):
            numbers_of.append(float(number))
    likeness = max(row[3] for row in described)
    nowhere = 10 * float(weights["nowhere"] @ [1.0, surprise, likeness])
    left = [old * (1 - sigmoid(number)) for old, number in zip(state.left, forget, strict=True)]
    full = min(left) >= 0.05 if before is None else before.full
    scores.append(nowhere if full else -np.inf)  # while there is room, nothing is dropped
    soft = softmax(scores)
    chosen = int(np.argmax(scores)) if before is None else before.chosen
    seen = Seen(described, surprise, chosen, soft, full)

    keys, values, pairs, lefts, ages, surprises = [], [], [], [], [], []
    for i in range(slots):
        write = float(i == chosen and present)
        if before is not None and present:
            write += soft[i] - before.soft[i]
        same = described[i][2] * (1 - sigmoid(forget[i]))  # of what is left: as far as the label is the same
        stays = sigmoid(keep[i]) * same * state.pairs[i]
        rate = write / (stays + 1)
        keys.append((1 - rate) * state.keys[i] + rate * state.pending)
        values.append((1 - rate) * state.values[i] + rate * label)
        pairs.append((1 - write) * state.pairs[i] + write * (stays + 1))
        lefts.append(1.0 if i == chosen and present else left[i])
        ages.append(0.0 if i == chosen and present else state.age[i] + present)
        surprises.append(surprise if i == chosen and present else state.surprise[i])

    beta = math.exp(weights["strength"])
    odds, similarity = [math.exp(beta * weights["threshold"])], []
    for i in range(slots):
        cosine = float(now @ keys[i]) / math.sqrt(float(keys[i] @ keys[i]) + 1e-6)
        similarity.append(cosine)
        held_then = pairs if before is None or before.state is None else before.state.pairs
        if held_then[i] <= 0:
            odds.append(0.0)
            continue
        count = [math.log(lefts[i] + 1e-6), math.log(max(pairs[i], 1.0))]
        bias = 10 * float(weights["reading"] @ [*count, math.log1p(ages[i]) / 5, surprises[i]])
        odds.append(math.exp(beta * cosine + bias))
    shares = [one / sum(odds) for one in odds]
    told = sum((share * value for share, value in zip(shares[1:], values, strict=True)), np.zeros(len(label)))
    use = [0.95 * old + share for old, share in zip(state.use, shares[1:], strict=True)]
    reads = [math.log(letter + 1e-4) for letter in told]
    reads.append(math.log(shares[0] + 1e-4) - math.log(1 - shares[0] + 1e-4))
    after = State(keys, values, pairs, lefts, ages, use, surprises, now, similarity, told, shares[1:])
    return reads, after, replace(seen, state=after)
