"""What there is to see of a memory at one step, in plain numbers: made for many learners at once."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, UInt8

from mann.memory import MemoryTrace

WRITTEN = 0.5  # the write weight, summed over the heads, from which a slot counts as written


class Head(NamedTuple):
    """What one head did at a step."""

    slot: int
    """That it read most."""
    share: float
    """How much of its reading that was."""
    wrote: int
    """The slot that it wrote to most."""


class Sight(NamedTuple):
    """A step of one learner's memory."""

    shares: Float[np.ndarray, "3 slots"]
    """Where it read (mean over heads) and wrote (sum over heads), and the usage relative to the largest; without
    usage, how much the slots hold."""
    levels: UInt8[np.ndarray, "3 slots"]
    """The same from 0 to 255."""
    slot: int
    """That was read most."""
    share: float
    """How much of all reading that was."""
    written: list[int]
    """Slots."""
    heads: list[Head]
    writes: Float[np.ndarray, "heads slots"] | None
    """By head; None for a memory that keeps no usage."""


def see(traces: MemoryTrace) -> list[Sight]:
    """Every step of traces with an axis of steps before the others."""
    reads, writes = np.asarray(traces.read_weights), np.asarray(traces.write_weights)
    used = np.abs(np.asarray(traces.memory)).max(axis=2) if traces.usage is None else np.asarray(traces.usage)
    used = used / np.maximum(used.max(axis=1, keepdims=True), 1e-9)
    read, write = reads.mean(axis=1), writes.sum(axis=1)
    shares = np.stack([read, write, used], axis=1)
    levels = np.clip(np.rint(255 * shares), 0, 255).astype(np.uint8)
    written: list[list[int]] = [[] for _ in reads]
    for place, slot in np.argwhere(write > WRITTEN).tolist():
        written[place].append(slot)
    # A memory may read with more heads than it writes with.
    wrote = writes.argmax(axis=2)[:, np.minimum(np.arange(reads.shape[1]), writes.shape[1] - 1)]
    heads = zip(reads.argmax(axis=2).tolist(), reads.max(axis=2).tolist(), wrote.tolist(), strict=True)
    most = zip(read.argmax(axis=1).tolist(), read.max(axis=1).tolist(), strict=True)
    return [
        Sight(
            shares[place],
            levels[place],
            slot,
            share,
            written[place],
            list(map(Head, *of_heads)),
            None if traces.usage is None else writes[place],
        )
        for place, ((slot, share), of_heads) in enumerate(zip(most, heads, strict=True))
    ]


def see_one(trace: MemoryTrace) -> Sight:
    """A single step."""
    (sight,) = see(jax.tree.map(lambda values: np.asarray(values)[None], trace))
    return sight
