"""Why the network answered as it did: which slot it read, and whose name was written there."""

from typing import Any

import numpy as np
from jaxtyping import Float

from mann.memory import MemoryTrace
from mann.online.sight import Sight, see_one

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
        for slot in see_one(trace).written:
            self._slots[slot] = (step, self._name)
        self._name, self._reads = label, np.asarray(trace.read_weights)

    def explain(
        self, step: int, sight: Sight, similarity: Float[np.ndarray, "heads slots"] | None = None
    ) -> dict[str, Any]:
        """The slot that a step read most, its share of all reading, and the step and name that wrote it.

        Call it before `add`. The slot is None if the reading was spread over all of them; `heads` has every head by
        itself.
        """
        attentive = sight.share >= ATTENTION
        writer, name = None, None
        if attentive:
            now = sight.slot in sight.written
            writer, name = (step, self._name) if now else self._slots.get(sight.slot, (None, None))
        return {
            "slot": sight.slot + 1 if attentive else None,
            "share": sight.share,
            "step": writer,
            "name": name,
            "heads": self._heads(sight, similarity),
        }

    def _heads(
        self, sight: Sight, similarity: Float[np.ndarray, "heads slots"] | None
    ) -> list[dict[str, Any]]:
        """Of every head: the slot it read and how alike that was, the slot it wrote to, and the write gate."""
        gates = None if sight.writes is None else write_gates(sight.writes, self._reads)
        return [
            {
                "slot": slot + 1,
                "share": share,
                "similarity": None if similarity is None else float(similarity[head, slot]),
                "wrote": wrote + 1,
                "gate": None if gates is None else float(gates[head]),
            }
            for head, (slot, share, wrote) in enumerate(sight.heads)
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
