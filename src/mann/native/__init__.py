"""The recurrent part of a network as one native call on the CPU, forward and backward.

It computes what `Cell.scan` does, for a batch of whole episodes. Weight gradients are hoisted out of the
recurrence: the kernel returns the gradient of every pre-activation, and each weight gradient is one large
product.

The kernel knows nothing of this package's classes: a controller and a memory say in `kernel()` what it needs of
them.
"""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mann import kernel
from mann.cell import Cell, State
from mann.controllers import ControllerKernel
from mann.errors import MannError
from mann.layers import Precision, outer_product
from mann.memory.base import MemoryKernel

PREFIX = "mann"  # of the names under which the kernel is registered


class Native:
    """The native kernel as a `Recurrence`."""

    def supports(self, cell: Cell) -> bool:
        """Whether it can run this cell on this machine; MANN_NATIVE=0 turns it off."""
        controller, memory = cell.controller.kernel(), cell.memory.kernel()
        return (
            controller is not None
            and memory is not None
            and cell.controller.precision == cell.memory.precision
            and f"{controller.name}_{memory.name}" in kernel.NETWORKS
            and all(array.dtype == jnp.float32 for array in jax.tree.leaves(eqx.filter(cell, eqx.is_array)))
            and kernel.available()
        )

    def __call__(
        self, cell: Cell, projected: Float[Array, "batch time gates"], state: State
    ) -> tuple[Float[Array, "batch time controller_and_reads"], State]:
        if not self.supports(cell):
            raise MannError("The native kernel cannot run this model here: use Model.unroll_batch.")
        batch, time, gates = projected.shape
        wiped = jax.eval_shape(cell.initial_state)
        expected = jax.tree.map(lambda leaf: ((batch, *leaf.shape), jnp.dtype(jnp.float32)), wiped)
        actual = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), state)
        if actual != expected or gates != cell.controller.gate_size or projected.dtype != jnp.float32:
            raise MannError(
                f"This model takes float32 inputs of {cell.controller.gate_size} gates and a state for each "
                f"of the {batch} episodes, but got {projected.shape} and {actual}."
            )
        if time == 0:
            width = cell.controller.hidden_size + cell.memory.read_size
            return jnp.zeros((batch, 0, width)), state
        network = _describe(cell, batch, time)
        arrays = [projected, *_weights(cell), *_start(cell, state)]
        arrays = kernel.varying(arrays)
        return _last_state(cell, state, *_unroll(network, *arrays))

    def floats(self, cell: Cell, time: int) -> int:
        network = _describe(cell, 1, time)
        biases = sum(linear.bias.size for linear in _kernels(cell)[1].linears)
        return sum(int(np.prod(shape)) for shape in network.record(biases))


def _kernels(cell: Cell) -> tuple[ControllerKernel, MemoryKernel]:
    controller, memory = cell.controller.kernel(), cell.memory.kernel()
    assert controller is not None and memory is not None  # `supports` was asked
    return controller, memory


class _Network(NamedTuple):
    """Names and sizes of a call; `attributes` go to the kernel by name, and config.h says what each is."""

    name: str
    batch: int
    time: int
    hidden: int
    slots: int
    width: int
    heads: int
    weighted: int
    fed_from: int
    fed: int
    cell_query: int
    interval: int
    targets: int
    steps: int  # that the record has room for: all of them, or 1 without a backward pass
    checkpoints: int
    bfloat16: int  # whether the products with the weights are
    cells: int  # length of c_t: 0 for a controller without one
    extra: tuple[int, int]
    of_memory: tuple[tuple[str, int | float], ...]  # attributes of the memory

    def attributes(self) -> dict[str, Any]:
        own = {name: np.int64(getattr(self, name)) for name in ATTRIBUTES}
        of_memory = {
            name: np.float32(value) if isinstance(value, float) else np.int64(value)
            for name, value in self.of_memory
        }
        return own | of_memory

    def record(self, parameters: int) -> list[tuple[int, ...]]:
        """Shapes of what is recorded for the backward pass, but for the targets; `parameters` of all heads."""
        padded = (-(-self.width // 4) * 4, -(-self.slots // 16) * 16)
        per_step = [(4 * self.cells,), (self.cells,), (parameters,), (self.weighted, padded[1]), self.extra]
        shapes = [(self.batch, self.steps, *shape) for shape in per_step]
        return [*shapes, (self.batch, self.checkpoints, *padded)]


ATTRIBUTES = (
    *("batch", "time", "hidden", "slots", "width", "heads", "weighted", "fed_from", "fed", "cell_query"),
    *("interval", "targets", "steps", "checkpoints", "bfloat16"),
)


def _describe(cell: Cell, batch: int, time: int) -> _Network:
    controller, memory = _kernels(cell)
    hidden = cell.controller.hidden_size
    return _Network(
        f"{controller.name}_{memory.name}",
        batch,
        time,
        hidden,
        slots=cell.memory.slots,
        width=cell.memory.width,
        heads=cell.memory.heads,
        weighted=memory.weighted,
        fed_from=0 if controller.recurrent else hidden,
        fed=sum(len(weights) for weights in controller.fed),
        cell_query=int(cell.query == "cell"),
        interval=memory.interval,
        targets=memory.targets,
        steps=time,
        checkpoints=-(-time // memory.interval) if memory.weighted else 0,
        bfloat16=int(cell.controller.precision == "bfloat16"),
        cells=hidden if controller.recurrent else 0,
        extra=memory.extra,
        of_memory=tuple(sorted(memory.attributes.items())),
    )


def _weights(cell: Cell) -> tuple[Array, Array, Array]:
    """From what the controller is fed to its gates; from the query to the heads' parameters; their bias."""
    controller, memory = _kernels(cell)
    return (
        jnp.concatenate([jnp.zeros((0, controller.gates)), *controller.fed]),
        jnp.concatenate(
            [jnp.zeros((cell.controller.hidden_size, 0)), *(linear.weight for linear in memory.linears)],
            axis=1,
        ),
        jnp.concatenate([jnp.zeros(0), *(linear.bias for linear in memory.linears)]),
    )


def _start(cell: Cell, state: State) -> tuple[Array, ...]:
    """(h_0, r_0), c_0, M_0, w_0 and w^u_0; what a network does not have is zero or has no entries."""
    controller, memory = _kernels(cell)
    batch = len(state.reads)
    hidden, entries = jnp.zeros((batch, cell.controller.hidden_size)), jnp.zeros((batch, 0))
    if controller.recurrent:
        hidden, entries = state.controller
    slots, weights, usage = memory.start(state.memory)
    return (
        jnp.concatenate([hidden, state.reads], axis=1),
        entries,
        slots.reshape(batch, cell.memory.slots, cell.memory.width),
        weights.reshape(batch, memory.weighted, cell.memory.slots),
        usage.reshape(batch, usage.size // batch),
    )


def _last_state(
    cell: Cell,
    first: State,
    hidden: Array,
    cells: Array,
    slots: Array,
    weights: Array,
    written: Array,
    usage: Array,
) -> tuple[Array, State]:
    """The results of `_unroll` as those of a recurrence."""
    controller, memory = _kernels(cell)
    last, reads = jnp.split(hidden[:, -1], [cell.controller.hidden_size], axis=1)
    after = type(first.controller)(last, cells) if controller.recurrent else first.controller
    return hidden, State(after, reads, memory.finish(slots, weights, written, usage))


def _call(way: str, network: _Network, shapes: list[tuple[int, ...]], *arrays: Array) -> list[Array]:
    """Arrays of these shapes, and for a forward call the indices of the least used slots."""
    results: list[tuple[tuple[int, ...], Any]] = [(shape, jnp.float32) for shape in shapes]
    if way == "forward":
        results.append(((network.batch, network.steps, network.targets), jnp.int32))
    return kernel.call(f"{PREFIX}_{network.name}_{way}", results, *arrays, **network.attributes())


def _forward(network: _Network, *arrays: Array) -> tuple[tuple[Array, ...], list[Array]]:
    """The results, and what was recorded for the backward pass."""
    bias, usage = arrays[3], arrays[8]
    B, T, M = network.batch, network.time, network.slots
    width = network.hidden + network.heads * network.width
    shapes = [(B, T, width), (B, M, network.width), (B, network.heads, M), usage.shape]
    shapes += network.record(bias.size)
    hidden, slots, written, usage, *record = _call("forward", network, shapes, *arrays)
    cells, weights = record[1], record[3]
    return (hidden, cells[:, -1], slots, weights[:, -1, :, :M], written, usage), record


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _unroll(network: _Network, *arrays: Array) -> tuple[Array, ...]:
    return _forward(network._replace(steps=1, checkpoints=0), *arrays)[0]


def _unroll_forward(network: _Network, *arrays: Array) -> tuple[tuple[Array, ...], Any]:
    results, record = _forward(network, *arrays)
    _, recurrent, to_heads, _, start, cell, _, weights, usage = arrays
    hidden, _, slots, *_ = results
    return results, (record, recurrent, to_heads, start, cell, weights, usage, hidden, slots)


def _unroll_backward(network: _Network, residuals: Any, gradients: tuple[Array, ...]) -> tuple[Array, ...]:
    record, recurrent, to_heads, start, cell, weights, usage, hidden, slots = residuals
    B, T, H = network.batch, network.time, network.hidden
    per_step = [(B, T, recurrent.shape[1]), (B, T, to_heads.shape[1])]
    shapes = per_step + [array.shape for array in (start, cell, slots, weights)]
    inputs = (recurrent, to_heads, cell, weights, hidden, slots, *gradients[:-1])  # usage has no gradient
    dz, dheads, *dstart = _call("backward", network, shapes, *record, *inputs)

    previous = jnp.concatenate([start[:, None], hidden[:, :-1]], axis=1)
    fed = previous[:, :, network.fed_from : network.fed_from + network.fed]
    query = record[1] if network.cell_query else hidden[:, :, :H]
    precision: Precision = "bfloat16" if network.bfloat16 else "float32"
    dweights = outer(fed, dz, precision), outer(query, dheads, precision)
    return dz, *dweights, jnp.sum(dheads, (0, 1)), *dstart, jnp.zeros_like(usage)


def outer(inputs: Array, gradients: Array, precision: Precision = "float32") -> Array:
    """The gradient of a weight matrix: the sum over episodes and steps of the outer products."""
    B, T = inputs.shape[:2]  # as matrices: XLA is slower at contracting two axes
    matrices = inputs.reshape(B * T, inputs.shape[2]), gradients.reshape(B * T, gradients.shape[2])
    return outer_product(*matrices, precision)


_unroll.defvjp(_unroll_forward, _unroll_backward)
