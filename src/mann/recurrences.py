"""The ways to run a cell over whole episodes, and which is taken: the memory's own, the kernel, or the scan."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mann.cell import Cell, Scan, State
from mann.memory import NoMemory
from mann.memory.base import Recurrence
from mann.native import Native
from mann.native.sparse import NativeSparse

MOST_AT_ONCE = 2**25  # numbers of one kind that the memories of some episodes take; the others wait


class Apart:
    """Controller and memory one after the other, where neither waits for the other within an episode."""

    def supports(self, cell: Cell) -> bool:
        return cell.memory.stands_alone and not cell.controller.takes_reads

    def __call__(
        self, cell: Cell, projected: Float[Array, "batch time gates"], state: State
    ) -> tuple[Float[Array, "batch time controller_and_reads"], State]:
        gates, direct = jnp.split(projected, [cell.controller.gate_size], axis=2)
        alone, start = _without_memory(cell), State(state.controller, state.reads[:, :0], ())
        hidden, last = choose_recurrence(alone)(alone, gates, start)
        # Hundreds of classes make episodes of thousands of steps, each of which looks at as many places.
        batch, time, _ = projected.shape
        together = max(1, MOST_AT_ONCE // self._looks(cell, time))
        if together < batch:
            one = cell.memory.unroll
            reads, memory = jax.lax.map(lambda x: one(*x), (direct, state.memory), batch_size=together)
        else:
            reads, memory = jax.vmap(cell.memory.unroll)(direct, state.memory)
        return jnp.concatenate([hidden, reads], axis=2), State(last.controller, reads[:, -1], memory)

    def floats(self, cell: Cell, time: int) -> int:
        alone = _without_memory(cell)
        return choose_recurrence(alone).floats(alone, time) + 2 * self._looks(cell, time)

    def _looks(self, cell: Cell, time: int) -> int:
        """Numbers that say how all heads look at all places at every step of an episode."""
        return time * cell.memory.heads * (cell.memory.slots + time)


def _without_memory(cell: Cell) -> Cell:
    return Cell(cell.controller, NoMemory(), cell.query)


RECURRENCES: list[Recurrence] = [Native(), NativeSparse(), Apart(), Scan()]
"""The first that supports a cell is taken, after the memory's own."""


def choose_recurrence(cell: Cell) -> Recurrence:
    """The memory's own way to run a cell over whole episodes, or the first of `RECURRENCES` that supports it."""
    own = cell.memory.recurrence()
    candidates = RECURRENCES if own is None else [own, *RECURRENCES]
    return next(recurrence for recurrence in candidates if recurrence.supports(cell))
