"""What a memory module is. A new one is one new file with a class like this, and a line in `__init__.py`."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
from jaxtyping import Array, Float

EMPTY = 1e-6  # what every slot holds at the start of an episode


class MemoryTrace(NamedTuple):
    """What happened in the memory at one step, for plots."""

    read_weights: Float[Array, "*time heads slots"]  # w^r_t
    write_weights: Float[Array, "*time write_heads slots"]  # w^w_t
    usage: Float[Array, "*time slots"] | None  # w^u_t; None for a memory that keeps no usage
    memory: Float[Array, "*time slots width"]  # M_t


class Memory(eqx.Module):
    """External memory with heads, driven by a query from the controller. Unbatched: use `vmap`."""

    slots: eqx.AbstractVar[int]
    width: eqx.AbstractVar[int]
    heads: eqx.AbstractVar[int]

    @property
    def read_size(self) -> int:
        """Length of the concatenated reads, r."""
        return self.heads * self.width

    @abc.abstractmethod
    def initial_state(self) -> Any:
        """A named tuple of arrays: the wiped memory at the start of an episode."""

    @abc.abstractmethod
    def __call__(self, query: Float[Array, "query"], state: Any) -> tuple[Float[Array, "reads"], Any]:
        """One step: write, address, read. Returns r_t and the new state."""

    @abc.abstractmethod
    def trace(self, state: Any) -> MemoryTrace:
        """The trace of the step that led to `state`."""
