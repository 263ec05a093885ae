"""Why the network answered as it did: which slot it read, and whose name was written there."""

from typing import Any

import numpy as np
from jaxtyping import Float

from mann.memory import MemoryTrace

WRITTEN = 0.5  # the write weight, summed over the heads, from which a slot counts as written
ATTENTION = 0.025  # the share of all reading from which a slot counts as read; 128 equal shares are 0.008


class Writings:
    """What was written where, followed step by step.

    As in training, the name of an example comes in with the *next* picture: what is written at a step is the
    example before it, with its name. So a slot goes under the name of the step before the one that wrote it.
    """

    def __init__(self) -> None:
        self._name: str | None = None  # of the last example, which is written with the next
        self._slots: dict[int, tuple[int, str | None]] = {}  # step that wrote, name that came in
        self._reads: np.ndarray | None = None  # w^r_{t−1}, by head

    def add(self, step: int, label: str, trace: MemoryTrace) -> None:
        """An example was shown at this step, under this label."""
        for slot in _written(trace):
            self._slots[slot] = (step, self._name)
        self._name, self._reads = label, np.asarray(trace.read_weights)

    def explain(
        self, step: int, trace: MemoryTrace, similarity: Float[np.ndarray, "heads slots"] | None = None
    ) -> dict[str, Any]:
        """The slot that a step read most, its share of all reading, and the step and name that wrote it.

        Call it before `add`. The slot is None if the reading was spread over all of them; `heads` has every head by
        itself.
        """
        read = np.asarray(trace.read_weights).mean(axis=0)
        slot = int(read.argmax())
        now = dict.fromkeys(_written(trace), (step, self._name))
        attentive = bool(read[slot] >= ATTENTION)
        writer, name = (self._slots | now).get(slot, (None, None)) if attentive else (None, None)
        return {
            "slot": slot + 1 if attentive else None,
            "share": float(read[slot]),
            "step": writer,
            "name": name,
            "heads": self._heads(trace, similarity),
        }

    def _heads(
        self, trace: MemoryTrace, similarity: Float[np.ndarray, "heads slots"] | None
    ) -> list[dict[str, Any]]:
        """Of every head: the slot it read and how alike that was, the slot it wrote to, and the write gate."""
        reads, writes = np.asarray(trace.read_weights), np.asarray(trace.write_weights)
        gates = None if trace.usage is None else write_gates(writes, self._reads)
        return [
            {
                "slot": int(read.argmax()) + 1,
                "share": float(read.max()),
                "similarity": None if similarity is None else float(similarity[head, read.argmax()]),
                "wrote": int(writes[min(head, len(writes) - 1)].argmax()) + 1,
                "gate": None if gates is None else float(gates[head]),
            }
            for head, read in enumerate(reads)
        ]


def write_gates(
    writes: Float[np.ndarray, "heads slots"], previous_reads: Float[np.ndarray, "heads slots"] | None
) -> Float[np.ndarray, "heads"]:
    """σ(α) of every head, from the weights that it led to: w^w = σ(α) w^r_{t−1} + (1 − σ(α)) w^lu (eq 7).

    Only at the least used slot can w^w exceed w^r_{t−1}. Before the first step all heads read the first slot.
    """
    if previous_reads is None:
        previous_reads = np.eye(1, writes.shape[1], dtype=writes.dtype).repeat(len(writes), axis=0)
    least_used = (writes - previous_reads).argmax(axis=1)
    heads = np.arange(len(writes))
    written, read = writes[heads, least_used], previous_reads[heads, least_used]
    return np.clip(1 - (written - read) / np.maximum(1 - read, 1e-6), 0, 1)


def _written(trace: MemoryTrace) -> list[int]:
    return np.flatnonzero(np.asarray(trace.write_weights).sum(axis=0) > WRITTEN).tolist()
