"""The recurrent part of a network: a controller with a memory, one step at a time, and the scan over an episode."""

import math
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mann.controllers import Controller
from mann.memory import Memory, MemoryTrace


class State(NamedTuple):
    """Everything that is carried from one step to the next."""

    controller: Any
    """Of the controller: an `LSTMState`, or () for a feed-forward one."""
    reads: Float[Array, "*batch reads"]
    """r_t, of all heads together."""
    memory: Any
    """Of the memory: an `LRUAState`, an `NTMState`, or () without one."""


class Cell(eqx.Module):
    """o_t = (h_t, r_t) from the projected input and the state before. Unbatched: use `vmap`."""

    controller: Controller
    memory: Memory
    query: Literal["hidden", "cell"] = eqx.field(static=True)

    def initial_state(self) -> State:
        """Wiped memory, fresh controller, nothing read."""
        reads = jnp.zeros(self.memory.read_size)
        return State(self.controller.initial_state(), reads, self.memory.initial_state())

    def __call__(
        self, projected: Float[Array, "gates"], state: State
    ) -> tuple[Float[Array, "controller_and_reads"], State]:
        gates, direct = jnp.split(projected, [self.controller.gate_size])
        output, controller = self.controller(gates, state.reads, state.controller)
        query = output.hidden if self.query == "hidden" else output.cell
        reads, memory = self.memory(jnp.concatenate([query, direct]), state.memory)
        return jnp.concatenate([output.hidden, reads]), State(controller, reads, memory)

    def scan(
        self, projected: Float[Array, "time gates"], state: State, trace: bool = False
    ) -> tuple[Float[Array, "time controller_and_reads"], State, MemoryTrace | None]:
        """A whole episode: o_t of every step, the last state, and if asked for what happened in the memory."""

        def advance(state: State, projected: Float[Array, "gates"]) -> tuple[State, Any]:
            output, state = self(projected, state)
            return state, (output, self.memory.trace(state.memory) if trace else None)

        if not sum(leaf.size for leaf in jax.tree.leaves(state)):  # without a past: all steps at once
            outputs, memory = jax.vmap(lambda x: advance(state, x)[1])(projected)
            return outputs, state, memory
        last, (outputs, memory) = jax.lax.scan(advance, state, projected)
        return outputs, last, memory


class Scan:
    """The recurrence that runs every cell everywhere: one compiled loop over the steps (`Recurrence`)."""

    def supports(self, cell: Cell) -> bool:
        return True

    def __call__(
        self, cell: Cell, projected: Float[Array, "batch time gates"], state: State
    ) -> tuple[Float[Array, "batch time controller_and_reads"], State]:
        return jax.vmap(lambda projected, state: cell.scan(projected, state)[:2])(projected, state)

    def floats(self, cell: Cell, time: int) -> int:
        state = jax.eval_shape(cell.initial_state)
        return time * sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(state))
