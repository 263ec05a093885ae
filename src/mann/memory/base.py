"""What a memory is: a module with a step, and a configuration that builds it.

A new memory is one file, inside the package or outside: examples/my_memory.py shows all of it.
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, PRNGKeyArray

from mann.errors import MannError, check_range
from mann.layers import Layer, Linear
from mann.parts import Part

MOST = 2**24  # slots and so on; whether they fit into memory is asked before anything is compiled
EMPTY = 1e-6  # what every slot holds at the start of an episode


class MemoryTrace(NamedTuple):
    """What happened in the memory at one step, for plots; of an episode, with an axis of time before the others."""

    read_weights: Float[Array, "*time heads slots"]
    """w^r_t: where each head read."""
    write_weights: Float[Array, "*time write_heads slots"]
    """w^w_t: where each head wrote."""
    usage: Float[Array, "*time slots"] | None
    """w^u_t; None for a memory that keeps no usage."""
    memory: Float[Array, "*time slots width"]
    """M_t, after writing."""


class MemoryKernel(NamedTuple):
    """What the native kernel needs of a memory that it can run (`mann.native`)."""

    name: str  # the second half of the network's name in kernel.cpp
    linears: tuple[Linear, ...]  # from the query to the heads' parameters, in the kernel's order
    weighted: int  # heads whose weights are kept from step to step
    targets: int  # least used slots that are recorded at every step
    extra: tuple[int, int]  # shape of what else is recorded at every step
    interval: int  # steps between copies of the memory for the backward pass
    attributes: Mapping[str, int | float]  # further named attributes of the call
    start: Callable[[Any], tuple[Array, Array, Array]]  # a batch of states to M_0, w_0, w^u_0
    finish: Callable[[Array, Array, Array, Array], Any]  # M_T, w_T, w^w_T, w^u_T to a batch of states


class HostKernel(NamedTuple):
    """What a native step on arrays of the host needs of a memory that it can run (`mann.native.host`)."""

    name: str  # of the file in native/, and in it of the function mann_…_step
    sizes: tuple[int, ...]  # in the order of that file, which the length of the outputs follows
    weights: tuple[Float32[np.ndarray, "..."], ...]  # likewise, followed by those of the output layer


@runtime_checkable
class Recurrence(Protocol):
    """A way to run a cell, which is a controller with a memory, over a batch of whole episodes."""

    def supports(self, cell: Any) -> bool:
        """Whether it can run this cell on this machine."""

    def __call__(
        self, cell: Any, projected: Float[Array, "batch time gates"], state: Any
    ) -> tuple[Float[Array, "batch time controller_and_reads"], Any]:
        """(h_t, r_t) of every step and the last state, differentiable in all three arguments."""

    def floats(self, cell: Any, time: int) -> int:
        """Numbers that it keeps per episode of that many steps for the backward pass, at the least."""


class Memory(Layer):
    """External memory with heads, driven by a query from the controller. Unbatched: use `vmap`.

    The base of one's own. A subclass sets `slots`, `width` and `heads`, and has a named tuple of arrays as its
    state.

    Examples:
        >>> import jax, mann
        >>> memory = mann.LRUAConfig(slots=8, width=4, heads=2).build(16, (400, 5), key=jax.random.key(0))
        >>> reads, state = memory(jax.numpy.ones(16), memory.initial_state())
        >>> reads.shape, memory.trace(state).memory.shape
        ((8,), (8, 4))
    """

    slots: eqx.AbstractVar[int]
    width: eqx.AbstractVar[int]
    heads: eqx.AbstractVar[int]

    @property
    def read_size(self) -> int:
        """Length of the concatenated reads, r."""
        return self.heads * self.width

    @property
    def direct_size(self) -> int:
        """Numbers that the memory takes from the input itself, past the controller; they follow the query."""
        return 0

    def project(
        self, features: Float[Array, "*time features"], previous_label: Float[Array, "*time label"]
    ) -> Float[Array, "*time direct"]:
        """The direct path from x_t and y_{t−1}, for all steps at once, since it does not depend on the past."""
        return jnp.zeros((*features.shape[:-1], 0), features.dtype)

    def embed(self, features: Float[Array, "*time features"]) -> Float[Array, "*time embedding"]:
        """Where the network's notion of likeness lies: the features themselves, or what they are compared by."""
        return features

    @abc.abstractmethod
    def initial_state(self) -> Any:
        """A named tuple of arrays: the wiped memory at the start of an episode."""

    @abc.abstractmethod
    def __call__(self, query: Float[Array, "query"], state: Any) -> tuple[Float[Array, "reads"], Any]:
        """One step: write, address, read.

        Args:
            query: h_t of the controller, or c_t.
            state: before the step.

        Returns:
            r_t, what all heads read, of length `read_size`; and the state after the step.
        """

    def needed(self, state: Any) -> int:
        """How many slots, the first ones, the next step depends on: all of them, unless a memory knows better."""
        return self.slots

    def crop(self, state: Any, slots: int) -> Any:
        """The state of a memory of the first slots alone, at least as many as are `needed`."""
        raise MannError("Every step of this memory depends on all of its slots.")

    def first_readout(self, readout: Linear, hidden: int) -> Linear:
        """The output layer that training starts from: as it comes, or one that passes on what this memory tells.

        Args:
            readout: newly initialised, from (h_t, r_t) to the parameters of p(y_t).
            hidden: length of h_t.
        """
        return readout

    @property
    def stands_alone(self) -> bool:
        """Whether it takes nothing from the controller, so that a whole episode can be done at once (`unroll`)."""
        return False

    def unroll(
        self, direct: Float[Array, "time direct"], state: Any
    ) -> tuple[Float[Array, "time reads"], Any]:
        """The reads of every step of an episode, and the last state, for a memory that `stands_alone`."""
        raise MannError("This memory runs step by step only.")

    @abc.abstractmethod
    def trace(self, state: Any) -> MemoryTrace:
        """The trace of the step that led to `state`."""

    def similarity(self, query: Float[Array, "query"], state: Any) -> Float[Array, "heads slots"] | None:
        """How alike key and slot were at the step that led to `state`; None (the default) for unknown.

        Args:
            query: the one of that step.
            state: after it.
        """
        return None

    def familiarity(self, state: Any) -> Float[Array, ""] | None:
        """How alike the input of the last step is to the most similar of what is held; None if it cannot say.

        Args:
            state: after that step.
        """
        return None

    def kernel(self) -> MemoryKernel | None:
        """How the native kernel runs it; None (the default) if it does not know this memory."""
        return None

    def sparse_kernel(self) -> Any | None:
        """How the native kernel for sparse access runs it, a `SparseKernel`; None (the default) if it cannot."""
        return None

    def host_kernel(self) -> HostKernel | None:
        """How one step runs natively without JAX, for a network that is this memory alone, whose weights do not
        change; None (the default) if it cannot."""
        return None

    def recurrence(self) -> Recurrence | None:
        """Its own way to run whole episodes forward and in reverse, if it has one; None for the usual ones."""
        return None


@dataclasses.dataclass(frozen=True)
class MemoryConfig(Part):
    """The family of memories. The base of a configuration of one's own: examples/my_memory.py."""

    persists: ClassVar[bool] = True
    """Whether there is anything to keep from one episode to the next."""
    takes_query: ClassVar[bool] = True
    """Whether it is driven by a controller's query; if not, it works without a controller."""

    @abc.abstractmethod
    def build(self, query: int, inputs: tuple[int, int], *, key: PRNGKeyArray) -> Memory:
        """A newly initialised memory.

        Args:
            query: length of the queries that drive it.
            inputs: lengths of the encoded x_t and of y_{t−1}, for a memory with a direct path from them.
            key: random key of its weights.
        """

    def with_slots(self, slots: int) -> "MemoryConfig":
        """The same memory with another number of slots, for a memory whose weights do not depend on it."""
        raise MannError("This memory has no slots whose number could be changed.")

    def with_neighbours(self, neighbours: int) -> "MemoryConfig":
        """A memory with the same weights that reads only from so many most similar slots (K), if there is one."""
        raise MannError("This memory cannot read from its most similar slots alone.")

    def smallest(self) -> "MemoryConfig":
        """The same memory, as small as it gets: for trials that only show that all of it runs."""
        return self


@dataclasses.dataclass(frozen=True)
class SlotConfig(MemoryConfig, abstract=True):
    """The sizes of a memory with slots; the base of those in the package, and of one's own.

    Raises:
        MannError: for sizes that no memory can have.
    """

    slots: int = 128
    """Slots (M)."""
    width: int = 40
    """Width of a slot (W)."""
    heads: int = 4
    """Read heads (R)."""

    def __post_init__(self) -> None:
        for field in ("slots", "width", "heads"):
            check_range(f"The memory's {field}", getattr(self, field), 1, MOST)

    def with_slots(self, slots: int) -> "SlotConfig":
        return dataclasses.replace(self, slots=slots)

    def smallest(self) -> "SlotConfig":
        return dataclasses.replace(self, slots=8, width=4, heads=min(self.heads, 2))


@dataclasses.dataclass(frozen=True)
class KeyConfig(SlotConfig, abstract=True):
    """A memory whose keys come straight from the features, with or without a layer in between."""

    projected: bool = True
    """Make keys of the features by a layer of the memory's own; else the features, R · W of them, are the keys."""

    def smallest(self) -> SlotConfig:
        return SlotConfig.smallest(dataclasses.replace(self, projected=True))


def key_layer(features: int, config: KeyConfig, *, key: PRNGKeyArray) -> Linear | None:
    """What makes keys of features; None where these are the keys.

    Raises:
        MannError: if they are to be the keys, and are not as many.
    """
    numbers = config.heads * config.width
    if config.projected:
        return Linear(features, numbers, key=key)
    if features != numbers:
        raise MannError(
            f"{features} features cannot be keys of {numbers} numbers: make model.memory.width fit, or set "
            "model.memory.projected to true."
        )
    return None


@dataclasses.dataclass(frozen=True)
class NoMemoryConfig(MemoryConfig, kind="none"):
    """No memory: the baselines."""

    persists: ClassVar[bool] = False

    def build(self, query: int, inputs: tuple[int, int], *, key: PRNGKeyArray) -> "NoMemory":
        return NoMemory()


class NoMemory(Memory):
    """Nothing is written, nothing is read."""

    slots: int = eqx.field(static=True, default=0)
    width: int = eqx.field(static=True, default=0)
    heads: int = eqx.field(static=True, default=0)

    def initial_state(self) -> tuple[()]:
        return ()

    def __call__(
        self, query: Float[Array, "query"], state: tuple[()]
    ) -> tuple[Float[Array, "reads"], tuple[()]]:
        return jnp.zeros(0), state

    def trace(self, state: tuple[()]) -> MemoryTrace:
        raise MannError("This model has no memory to trace.")

    def kernel(self) -> MemoryKernel:
        return MemoryKernel(
            "none",
            linears=(),
            weighted=0,
            targets=0,
            extra=(0, 0),
            interval=1,
            attributes={},
            start=lambda _: (jnp.zeros(0), jnp.zeros(0), jnp.zeros(0)),
            finish=lambda *_: (),
        )


def pass_on(readout: Linear, hidden: int) -> Linear:
    """An output layer that starts by passing on what a memory tells, number by number, and ignores h_t.

    Args:
        readout: newly initialised, from (h_t, r_t) to the parameters of p(y_t).
        hidden: length of h_t.
    """
    inputs, outputs = readout.weight.shape
    weight = jnp.concatenate([jnp.zeros((hidden, outputs)), jnp.eye(inputs - hidden, outputs)])
    return eqx.tree_at(lambda layer: layer.weight, readout, weight)
