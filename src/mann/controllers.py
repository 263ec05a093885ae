"""Controllers: what turns the input and the last reads into the query for the memory."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from mann.layers import Linear


class ControllerOutput(NamedTuple):
    hidden: Float[Array, "hidden"]  # h_t: goes to the output layer
    cell: Float[Array, "hidden"]  # c_t, or h_t again where there is no cell state


class Controller(eqx.Module):
    """`project` is the part that does not depend on the past, so that a whole episode is one product."""

    hidden_size: eqx.AbstractVar[int]

    @abc.abstractmethod
    def initial_state(self) -> Any:
        """The state at the start of an episode."""

    @abc.abstractmethod
    def project(self, inputs: Float[Array, "*time inputs"]) -> Float[Array, "*time gates"]:
        """W_x (x_t, y_{t−1}) + b."""

    @abc.abstractmethod
    def __call__(
        self, projected: Float[Array, "gates"], reads: Float[Array, "reads"] | None, state: Any
    ) -> tuple[ControllerOutput, Any]:
        """One step: the projected input and r_{t−1} (if there is a memory) to h_t and the new state."""


class LSTMState(NamedTuple):
    hidden: Float[Array, "hidden"]  # h
    cell: Float[Array, "hidden"]  # c


class LSTM(Controller):
    """The LSTM of the supplement (eqs 9–16 there), with the reads as a further input."""

    inputs: Linear
    recurrent: Float[Array, "hidden gates"]
    from_reads: Float[Array, "reads gates"] | None
    hidden_size: int = eqx.field(static=True)

    def __init__(self, inputs: int | tuple[int, ...], hidden: int, reads: int, *, key: PRNGKeyArray) -> None:
        input_key, hidden_key, read_key = jax.random.split(key, 3)
        self.inputs = Linear(inputs, 4 * hidden, key=input_key)
        self.recurrent = Linear(hidden, 4 * hidden, key=hidden_key).weight
        self.from_reads = Linear(reads, 4 * hidden, key=read_key).weight if reads else None
        self.hidden_size = hidden

    def initial_state(self) -> LSTMState:
        return LSTMState(jnp.zeros(self.hidden_size), jnp.zeros(self.hidden_size))

    def project(self, inputs: Float[Array, "*time inputs"]) -> Float[Array, "*time gates"]:
        return self.inputs(inputs)

    def __call__(
        self, projected: Float[Array, "gates"], reads: Float[Array, "reads"] | None, state: LSTMState
    ) -> tuple[ControllerOutput, LSTMState]:
        z = projected + state.hidden @ self.recurrent
        if self.from_reads is not None and reads is not None:
            z = z + reads @ self.from_reads
        forget, take, give, update = jnp.split(z, 4)  # ĝ^f, ĝ^i, ĝ^o, û
        # The forget gate starts open (+1), so that gradients reach back through the episode from the start.
        cell = jax.nn.sigmoid(forget + 1) * state.cell + jax.nn.sigmoid(take) * jnp.tanh(update)
        hidden = jax.nn.sigmoid(give) * jnp.tanh(cell)
        return ControllerOutput(hidden, cell), LSTMState(hidden, cell)


class FeedForward(Controller):
    """One hidden layer of tanh units. Without a memory it has no past at all."""

    inputs: Linear
    from_reads: Float[Array, "reads hidden"] | None
    hidden_size: int = eqx.field(static=True)

    def __init__(self, inputs: int | tuple[int, ...], hidden: int, reads: int, *, key: PRNGKeyArray) -> None:
        input_key, read_key = jax.random.split(key)
        self.inputs = Linear(inputs, hidden, key=input_key)
        self.from_reads = Linear(reads, hidden, key=read_key).weight if reads else None
        self.hidden_size = hidden

    def initial_state(self) -> tuple[()]:
        return ()

    def project(self, inputs: Float[Array, "*time inputs"]) -> Float[Array, "*time hidden"]:
        return self.inputs(inputs)

    def __call__(
        self, projected: Float[Array, "hidden"], reads: Float[Array, "reads"] | None, state: tuple[()]
    ) -> tuple[ControllerOutput, tuple[()]]:
        if self.from_reads is not None and reads is not None:
            projected = projected + reads @ self.from_reads
        hidden = jnp.tanh(projected)
        return ControllerOutput(hidden, hidden), state


CONTROLLERS: dict[str, type[LSTM] | type[FeedForward]] = {"lstm": LSTM, "feedforward": FeedForward}
