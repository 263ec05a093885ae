"""Sparse access as one native call on the CPU, forward and backward: what `Cell.scan` does, for whole episodes.

The memory is changed in place, and nothing of its size is recorded (sparse.h).
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
from mann.memory.sparse import SparseKernel
from mann.native import PREFIX, outer


class NativeSparse:
    """The native kernel for sparse access as a `Recurrence`."""

    def supports(self, cell: Cell) -> bool:
        """Whether it can run this cell on this machine; MANN_NATIVE=0 turns it off."""
        controller, memory = cell.controller.kernel(), cell.memory.sparse_kernel()
        return (
            controller is not None
            and memory is not None
            and controller.name in kernel.SPARSE
            and all(array.dtype == jnp.float32 for array in jax.tree.leaves(eqx.filter(cell, eqx.is_array)))
            and kernel.available()
        )

    def __call__(
        self, cell: Cell, projected: Float[Array, "batch time gates"], state: State
    ) -> tuple[Float[Array, "batch time controller_and_reads"], State]:
        if not self.supports(cell):
            raise MannError("The native kernel cannot run this model here: use Model.unroll_batch.")
        batch, time, _ = projected.shape
        if time == 0:
            width = cell.controller.hidden_size + cell.memory.read_size
            return jnp.zeros((batch, 0, width)), state
        controller, memory = _kernels(cell)
        hidden, entries = jnp.zeros((batch, cell.controller.hidden_size)), jnp.zeros((batch, 0))
        if controller.recurrent:
            hidden, entries = state.controller
        contents, weights, slots, age = memory.start(state.memory)
        arrays = [
            projected,
            jnp.concatenate([jnp.zeros((0, controller.gates)), *controller.fed]),
            jnp.concatenate([linear.weight for linear in memory.linears], axis=1),
            jnp.concatenate([linear.bias for linear in memory.linears]),
            jnp.concatenate([hidden, state.reads], axis=1),
            *(entries, contents, weights, slots, age),
        ]
        outputs, cells, *last = _unroll(_describe(cell, batch, time), *kernel.varying(arrays))
        hidden, reads = jnp.split(outputs[:, -1], [cell.controller.hidden_size], axis=1)
        after = type(state.controller)(hidden, cells) if controller.recurrent else state.controller
        return outputs, State(after, reads, memory.finish(*last))

    def floats(self, cell: Cell, time: int) -> int:
        """What is recorded, and the memory twice: itself and its gradient."""
        network = _describe(cell, 1, time)
        recorded = sum(int(np.prod(shape)) for shape in network.record())
        return recorded + 2 * network.slots * network.width


def _kernels(cell: Cell) -> tuple[ControllerKernel, SparseKernel]:
    controller, memory = cell.controller.kernel(), cell.memory.sparse_kernel()
    assert controller is not None and memory is not None  # `supports` was asked
    return controller, memory


class _Network(NamedTuple):
    """Names and sizes of a call; those from `batch` to `threshold` go to the kernel by name."""

    name: str
    cells: int  # length of c_t: 0 for a controller without one
    batch: int
    time: int
    hidden: int
    slots: int
    width: int
    heads: int
    neighbours: int
    targets: int
    fed_from: int
    fed: int
    cell_query: int
    steps: int  # that the record has room for: all of them, or 1 without a backward pass
    threshold: float

    def attributes(self) -> dict[str, Any]:
        own = self._asdict()
        numbers = {name: np.int64(own[name]) for name in self._fields[2:-1]}
        return numbers | {"threshold": np.float32(self.threshold)}

    @property
    def parameters(self) -> int:
        return self.heads * (2 * self.width + 2)

    def record(self) -> list[tuple[int, ...]]:
        """Shapes of what is recorded for the backward pass, but for the slots."""
        reads = self.heads * self.neighbours
        per_step = [4 * self.cells, self.cells, self.parameters, reads, reads * self.width]
        return [(self.batch, self.steps, size) for size in per_step]


def _describe(cell: Cell, batch: int, time: int) -> _Network:
    controller, memory = _kernels(cell)
    hidden = cell.controller.hidden_size
    return _Network(
        controller.name,
        hidden if controller.recurrent else 0,
        *(batch, time, hidden, cell.memory.slots, cell.memory.width, cell.memory.heads),
        neighbours=memory.neighbours,
        targets=memory.targets,
        fed_from=0 if controller.recurrent else hidden,
        fed=sum(len(weights) for weights in controller.fed),
        cell_query=int(cell.query == "cell"),
        steps=time,
        threshold=memory.threshold,
    )


def _call(
    way: str,
    network: _Network,
    results: list[tuple[tuple[int, ...], Any]],
    arrays: list[Array],
    in_place: tuple[int, int],
) -> list[Array]:
    """Arrays of these shapes and types; the memory is an argument and a result in one place."""
    like = jax.typeof(arrays[0])
    sharding = jax.NamedSharding(like.sharding.mesh, jax.P())
    result = functools.partial(
        jax.ShapeDtypeStruct, sharding=sharding, manual_axis_type=like.manual_axis_type
    )
    call = jax.ffi.ffi_call(
        f"{PREFIX}_{network.name}_sparse_{way}",
        [result(shape, dtype) for shape, dtype in results],
        vmap_method="sequential",
        input_output_aliases=dict([in_place]),
    )
    return list(call(*arrays, **network.attributes()))


def _forward(network: _Network, *arrays: Array) -> tuple[tuple[Array, ...], list[Array]]:
    """(h_t, r_t), c_T, M_T, w_T, where, w^w_T, where, and the steps since every slot was used; and the record."""
    B, T, R, K = network.batch, network.time, network.heads, network.neighbours
    memory, slots = (B, network.slots, network.width), (B, R, K)
    results: list[tuple[tuple[int, ...], Any]] = [
        ((B, T, network.hidden + R * network.width), jnp.float32),
        (memory, jnp.float32),
    ]
    results += [(slots, jnp.int32), ((B, R, K + 1), jnp.float32), ((B, R, K + 1), jnp.int32)]
    results += [((B, network.slots), jnp.float32), *((shape, jnp.float32) for shape in network.record())]
    results += [((B, network.steps, 2 * R * K + network.targets), jnp.int32)]
    hidden, last, where, written, where_written, age, *record = _call(
        "forward", network, results, list(arrays), (6, 1)
    )
    weights = record[3][:, -1].reshape(slots)
    return (hidden, record[1][:, -1], last, weights, where, written, where_written, age), record


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _unroll(network: _Network, *arrays: Array) -> tuple[Array, ...]:
    return _forward(network._replace(steps=1), *arrays)[0]


def _unroll_forward(network: _Network, *arrays: Array) -> tuple[tuple[Array, ...], Any]:
    results, record = _forward(network, *arrays)
    _, recurrent, to_heads, _, start, cell, _, weights, _, _ = arrays
    return results, (record, recurrent, to_heads, start, cell, weights, results[0])


def _unroll_backward(network: _Network, residuals: Any, gradients: tuple[Array, ...]) -> tuple[Any, ...]:
    record, recurrent, to_heads, start, cell, weights, hidden = residuals
    dhidden, dcell, dmemory, dweights, _, dwritten, *_ = gradients  # places and ages have no gradient
    B, T = network.batch, network.time
    shapes = [(B, T, recurrent.shape[1]), (B, T, network.parameters), start.shape, cell.shape]
    shapes += [dmemory.shape, weights.shape]
    inputs = [
        *record,
        recurrent,
        to_heads,
        cell,
        weights,
        hidden,
        dhidden,
        dcell,
        dmemory,
        dweights,
        dwritten,
    ]
    results: list[tuple[tuple[int, ...], Any]] = [(shape, jnp.float32) for shape in shapes]
    dz, dheads, *dstart = _call("backward", network, results, inputs, (13, 4))

    previous = jnp.concatenate([start[:, None], hidden[:, :-1]], axis=1)
    fed = previous[:, :, network.fed_from : network.fed_from + network.fed]
    query = record[1] if network.cell_query else hidden[:, :, : network.hidden]
    return dz, outer(fed, dz), outer(query, dheads), jnp.sum(dheads, (0, 1)), *dstart, None, None


_unroll.defvjp(_unroll_forward, _unroll_backward)
