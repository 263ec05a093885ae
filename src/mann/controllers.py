"""Controllers: what turns the input and the last reads into the query for the memory."""

import abc
import dataclasses
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from mann.errors import check_range
from mann.layers import Layer, Linear, product
from mann.parts import Part

MOST = 2**24  # units; whether they fit into memory is asked before anything is compiled


class ControllerOutput(NamedTuple):
    hidden: Float[Array, "hidden"]  # h_t: goes to the output layer
    cell: Float[Array, "hidden"]  # c_t, or h_t again where there is no cell state


class ControllerKernel(NamedTuple):
    """What the native kernel needs of a controller that it can run."""

    name: str  # the first half of the network's name in kernel.cpp
    fed: tuple[Float[Array, "_ gates"], ...]  # weights of h_{t−1} and of r_{t−1}, as far as it is fed
    gates: int  # pre-activations per step
    recurrent: bool  # h_{t−1} and c_{t−1} are part of the state


class Controller(Layer):
    """From the input and the last reads to h_t, which queries the memory. The base of one's own.

    `project` is the part that does not depend on the past, so that a whole episode is one product. Unbatched but
    for `project`: use `vmap`. A subclass sets `hidden_size`, the length of h_t, and `gate_size`, the length of a
    projected input.
    """

    hidden_size: eqx.AbstractVar[int]
    gate_size: eqx.AbstractVar[int]

    @property
    def takes_reads(self) -> bool:
        """Whether it is fed r_{t−1}."""
        return True

    @abc.abstractmethod
    def initial_state(self) -> Any:
        """The state at the start of an episode: any tree of arrays."""

    @abc.abstractmethod
    def project(self, inputs: Float[Array, "*time inputs"]) -> Float[Array, "*time gates"]:
        """W_x (x_t, y_{t−1}) + b, for one step or for all steps of an episode.

        Args:
            inputs: features of x_t, then y_{t−1}.
        """

    @abc.abstractmethod
    def __call__(
        self, projected: Float[Array, "gates"], reads: Float[Array, "reads"], state: Any
    ) -> tuple[ControllerOutput, Any]:
        """One step.

        Args:
            projected: what `project` made of the input.
            reads: r_{t−1}, zeros at the first step.
            state: before the step.

        Returns:
            h_t and c_t, and the state after the step.
        """

    def last_output(self, state: Any) -> ControllerOutput | None:
        """h_t and c_t of the step that led to a state; None (the default) if the state does not hold them."""
        return None

    def kernel(self) -> ControllerKernel | None:
        """How the native kernel runs it; None (the default) if it does not know this controller."""
        return None


@dataclasses.dataclass(frozen=True)
class ControllerConfig(Part):
    """The family of controllers. The base of a configuration of one's own.

    Raises:
        MannError: for sizes that no controller can have.

    Examples:
        >>> import jax
        >>> controller = LSTMConfig(hidden=8).build((400, 5), reads=12, key=jax.random.key(0))
        >>> output, state = controller(
        ...     controller.project(jax.numpy.zeros(405)), jax.numpy.zeros(12), controller.initial_state()
        ... )
        >>> output.hidden.shape
        (8,)
    """

    has_cell: ClassVar[bool] = False  # whether `query: cell` can be chosen
    hidden: int = 200
    """Units (H): the length of h_t."""

    def __post_init__(self) -> None:
        check_range("The controller's hidden units", self.hidden, 1, MOST)

    @abc.abstractmethod
    def build(self, inputs: tuple[int, ...], reads: int, *, key: PRNGKeyArray) -> Controller:
        """A newly initialised controller.

        Args:
            inputs: lengths of the parts that its input is concatenated from: features of x_t, y_{t−1}.
            reads: length of r_{t−1}; 0 if it is not fed any.
            key: random key of its weights.
        """

    def smallest(self) -> "ControllerConfig":
        """The same controller, as small as it gets: for trials that only show that all of it runs."""
        return dataclasses.replace(self, hidden=8)


@dataclasses.dataclass(frozen=True)
class LSTMConfig(ControllerConfig, kind="lstm"):
    """The paper's controller."""

    has_cell: ClassVar[bool] = True

    def build(self, inputs: tuple[int, ...], reads: int, *, key: PRNGKeyArray) -> "LSTM":
        return LSTM(inputs, self.hidden, reads, key=key)


@dataclasses.dataclass(frozen=True)
class FeedForwardConfig(ControllerConfig, kind="feedforward"):
    """One hidden layer of tanh units."""

    def build(self, inputs: tuple[int, ...], reads: int, *, key: PRNGKeyArray) -> "FeedForward":
        return FeedForward(inputs, self.hidden, reads, key=key)


@dataclasses.dataclass(frozen=True)
class NoControllerConfig(ControllerConfig, kind="none"):
    """No controller: a memory that takes all from the input answers alone."""

    hidden: int = 0
    """There are none: always 0, also where it is exchanged for a controller that has some."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", 0)

    def build(self, inputs: tuple[int, ...], reads: int, *, key: PRNGKeyArray) -> "NoController":
        return NoController()

    def smallest(self) -> "NoControllerConfig":
        return self


class LSTMState(NamedTuple):
    hidden: Float[Array, "hidden"]  # h
    cell: Float[Array, "hidden"]  # c


class LSTM(Controller):
    """The LSTM of the supplement (eqs 9–16 there), with the reads as a further input."""

    column_blocks: ClassVar[dict[str, int]] = {"recurrent": 4, "from_reads": 4}  # one per gate
    inputs: Linear
    recurrent: Float[Array, "hidden gates"]
    from_reads: Float[Array, "reads gates"] | None
    hidden_size: int = eqx.field(static=True)
    gate_size: int = eqx.field(static=True)

    def __init__(self, inputs: int | tuple[int, ...], hidden: int, reads: int, *, key: PRNGKeyArray) -> None:
        input_key, hidden_key, read_key = jax.random.split(key, 3)
        self.inputs = Linear(inputs, 4 * hidden, key=input_key, blocks=4)
        self.recurrent = Linear(hidden, 4 * hidden, key=hidden_key).weight
        self.from_reads = Linear(reads, 4 * hidden, key=read_key).weight if reads else None
        self.hidden_size, self.gate_size = hidden, 4 * hidden

    @property
    def takes_reads(self) -> bool:
        return self.from_reads is not None

    def initial_state(self) -> LSTMState:
        return LSTMState(jnp.zeros(self.hidden_size), jnp.zeros(self.hidden_size))

    def project(self, inputs: Float[Array, "*time inputs"]) -> Float[Array, "*time gates"]:
        return self.inputs(inputs)

    def __call__(
        self, projected: Float[Array, "gates"], reads: Float[Array, "reads"], state: LSTMState
    ) -> tuple[ControllerOutput, LSTMState]:
        z = projected + product(state.hidden, self.recurrent, self.precision)
        if self.from_reads is not None:
            z = z + product(reads, self.from_reads, self.precision)
        forget, take, give, update = jnp.split(z, 4)  # ĝ^f, ĝ^i, ĝ^o, û
        # The forget gate starts open (+1), so that gradients reach back through the episode from the start.
        cell = jax.nn.sigmoid(forget + 1) * state.cell + jax.nn.sigmoid(take) * jnp.tanh(update)
        hidden = jax.nn.sigmoid(give) * jnp.tanh(cell)
        return ControllerOutput(hidden, cell), LSTMState(hidden, cell)

    def last_output(self, state: LSTMState) -> ControllerOutput:
        return ControllerOutput(*state)

    def kernel(self) -> ControllerKernel:
        fed = (self.recurrent,) if self.from_reads is None else (self.recurrent, self.from_reads)
        return ControllerKernel("lstm", fed, self.gate_size, recurrent=True)


class FeedForward(Controller):
    """One hidden layer of tanh units. Without a memory it has no past at all."""

    inputs: Linear
    from_reads: Float[Array, "reads hidden"] | None
    hidden_size: int = eqx.field(static=True)
    gate_size: int = eqx.field(static=True)

    def __init__(self, inputs: int | tuple[int, ...], hidden: int, reads: int, *, key: PRNGKeyArray) -> None:
        input_key, read_key = jax.random.split(key)
        self.inputs = Linear(inputs, hidden, key=input_key)
        self.from_reads = Linear(reads, hidden, key=read_key).weight if reads else None
        self.hidden_size, self.gate_size = hidden, hidden

    @property
    def takes_reads(self) -> bool:
        return self.from_reads is not None

    def initial_state(self) -> tuple[()]:
        return ()

    def project(self, inputs: Float[Array, "*time inputs"]) -> Float[Array, "*time hidden"]:
        return self.inputs(inputs)

    def __call__(
        self, projected: Float[Array, "hidden"], reads: Float[Array, "reads"], state: tuple[()]
    ) -> tuple[ControllerOutput, tuple[()]]:
        if self.from_reads is not None:
            projected = projected + product(reads, self.from_reads, self.precision)
        hidden = jnp.tanh(projected)
        return ControllerOutput(hidden, hidden), state

    def kernel(self) -> ControllerKernel:
        fed = () if self.from_reads is None else (self.from_reads,)
        return ControllerKernel("feedforward", fed, self.gate_size, recurrent=False)


class NoController(Controller):
    """Nothing is asked, nothing is kept."""

    hidden_size: int = eqx.field(static=True, default=0)
    gate_size: int = eqx.field(static=True, default=0)

    @property
    def takes_reads(self) -> bool:
        return False

    def initial_state(self) -> tuple[()]:
        return ()

    def project(self, inputs: Float[Array, "*time inputs"]) -> Float[Array, "*time 0"]:
        return jnp.zeros((*inputs.shape[:-1], 0), inputs.dtype)

    def __call__(
        self, projected: Float[Array, "0"], reads: Float[Array, "reads"], state: tuple[()]
    ) -> tuple[ControllerOutput, tuple[()]]:
        return ControllerOutput(projected, projected), state
