"""The recurrent part of the MANN as one native call on the CPU, forward and backward.

It computes what `Model.unroll` does between the input projection and the output layer, for a batch of whole
episodes, with an LSTM controller and an LRUA memory. Weight gradients are hoisted out of the recurrence: the
kernel returns the gradient of every pre-activation, and each weight gradient is one large product.
"""

import functools
import os
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mann.controllers import LSTM, LSTMState
from mann.errors import MannError
from mann.memory import LRUA
from mann.memory.lrua import LRUAState
from mann.models import Model, State
from mann.native import build

INTERVAL = 32  # steps between checkpoints of the memory; between them, it is rebuilt backwards


def supports(model: Model) -> bool:
    """Whether `unroll_batch` can run this model on this machine; MANN_NATIVE=0 turns it off."""
    return (
        os.environ.get("MANN_NATIVE") != "0"
        and jax.default_backend() == "cpu"
        and type(model.controller) is LSTM
        and type(model.memory) is LRUA
        and all(array.dtype == jnp.float32 for array in jax.tree.leaves(eqx.filter(model, eqx.is_array)))
        and build.load()
    )


def unroll_batch(
    model: Model, projected: Float[Array, "batch time gates"], state: State
) -> tuple[Float[Array, "batch time controller_and_reads"], State]:
    """(h_t, r_t) of every step and the last state, from the projected inputs and a batch of states.

    Differentiable with respect to the model, the inputs and the state. Only for models that it `supports`.
    """
    if not supports(model):
        raise MannError("The native kernel cannot run this model here: use Model.unroll_batch.")
    controller, memory = model.controller, model.memory
    assert isinstance(controller, LSTM) and isinstance(memory, LRUA) and state.reads is not None
    batch, time, gates = projected.shape
    wiped = jax.eval_shape(model.initial_state)
    expected = jax.tree.map(lambda leaf: ((batch, *leaf.shape), jnp.dtype(jnp.float32)), wiped)
    given = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), state)
    if given != expected or gates != 4 * controller.hidden_size or projected.dtype != jnp.float32:
        raise MannError(
            f"This model takes float32 inputs of {4 * controller.hidden_size} gates and a state for each "
            f"of the {batch} episodes, but got {projected.shape} and {given}."
        )
    if time == 0:
        return jnp.zeros((batch, 0, controller.hidden_size + memory.read_size)), state

    linears = [linear for linear in (memory.keys, memory.vectors, memory.gates, memory.strengths) if linear]
    fed = (
        [controller.recurrent]
        if controller.from_reads is None
        else [controller.recurrent, controller.from_reads]
    )
    arrays = [
        projected,
        jnp.concatenate(fed),
        jnp.concatenate([linear.weight for linear in linears], axis=1),
        jnp.concatenate([linear.bias for linear in linears]),
        jnp.concatenate([state.controller.hidden, state.reads], axis=1),
        state.controller.cell,
        state.memory.memory,
        state.memory.read_weights,
        jax.lax.stop_gradient(state.memory.usage),
    ]
    # Inside `shard_map`: weights that all devices share become one copy each, whose gradients are then summed.
    axes = [jax.typeof(array).manual_axis_type.varying for array in arrays]
    arrays = [
        jax.lax.pcast(array, tuple(frozenset().union(*axes) - own), to="varying")
        for array, own in zip(arrays, axes, strict=True)
    ]
    hidden, cell, *last = _unroll(_sizes(model, batch, time), *arrays)
    last_hidden, last_reads = jnp.split(hidden[:, -1], [controller.hidden_size], axis=1)
    return hidden, State(LSTMState(last_hidden, cell), last_reads, LRUAState(*last))


class _Sizes(NamedTuple):
    """In the order of `Config` in kernel.cpp, which says what each of them is."""

    batch: int
    time: int
    hidden: int
    slots: int
    width: int
    heads: int
    learned: int
    separate: int
    write_first: int
    targets: int
    erased: int
    cell_query: int
    reads_to_controller: int
    interval: int
    checkpoints: int
    steps: int
    decay: float


def _sizes(model: Model, batch: int, time: int) -> _Sizes:
    controller, memory = model.controller, model.memory
    assert isinstance(controller, LSTM) and isinstance(memory, LRUA)
    config = memory.config
    targets = 1 if config.least_used == "shared" else memory.heads
    return _Sizes(
        *(batch, time, controller.hidden_size, memory.slots, memory.width, memory.heads),
        learned=int(config.key_strength == "learned"),
        separate=int(config.written == "separate"),
        write_first=int(config.order == "write_first"),
        targets=targets,
        erased={"one": 1, "all": targets, "none": 0}[config.erased],
        cell_query=int(model.query == "cell"),
        reads_to_controller=int(controller.from_reads is not None),
        interval=INTERVAL,
        checkpoints=(time - 1) // INTERVAL,
        steps=time,
        decay=config.decay,
    )


def _call(target: str, sizes: _Sizes, shapes: list[tuple[int, ...]], *arrays: Array) -> list[Array]:
    """Arrays of these shapes, and for the forward call the indices of the least used slots."""
    like = jax.typeof(arrays[0])
    sharding = jax.NamedSharding(like.sharding.mesh, jax.P())
    result = functools.partial(
        jax.ShapeDtypeStruct, sharding=sharding, manual_axis_type=like.manual_axis_type
    )
    results = [result(shape, jnp.float32) for shape in shapes]
    if target == "mann_lrua_forward":
        results.append(result((sizes.batch, sizes.steps, sizes.targets), jnp.int32))
    call = jax.ffi.ffi_call(target, results, vmap_method="sequential")
    return list(call(*arrays, sizes=np.array(sizes[:-1], np.int64), decay=np.float32(sizes.decay)))


def _forward(sizes: _Sizes, *arrays: Array) -> tuple[tuple[Array, ...], list[Array]]:
    """The results, and what was recorded for the backward pass."""
    B, T, H, M, W, R = sizes[:6]
    padded = (-(-W // 4) * 4, -(-M // 16) * 16)
    per_step = [(4 * H,), (H,), (arrays[3].shape[0],), (R, padded[1]), (sizes.targets, W)]
    shapes = [(B, T, H + R * W), (B, M, W), (B, R, M), (B, M)]
    shapes += [(B, sizes.steps, *shape) for shape in per_step]
    shapes += [(B, sizes.checkpoints, *padded)]
    hidden, memory, written, usage, *record = _call("mann_lrua_forward", sizes, shapes, *arrays)
    cells, weights = record[1], record[3]
    return (hidden, cells[:, -1], memory, weights[:, -1, :, :M], written, usage), record


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _unroll(sizes: _Sizes, *arrays: Array) -> tuple[Array, ...]:
    return _forward(sizes._replace(steps=1, checkpoints=0), *arrays)[0]


def _unroll_forward(sizes: _Sizes, *arrays: Array) -> tuple[tuple[Array, ...], Any]:
    results, record = _forward(sizes, *arrays)
    _, recurrent, to_heads, _, start, cell, _, weights, usage = arrays
    hidden, _, memory, *_ = results
    return results, (record, recurrent, to_heads, start, cell, weights, usage, hidden, memory)


def _unroll_backward(sizes: _Sizes, kept: Any, gradients: tuple[Array, ...]) -> tuple[Array, ...]:
    record, recurrent, to_heads, start, cell, weights, usage, hidden, memory = kept
    B, T, H, M, W, R = sizes[:6]
    P = to_heads.shape[1]
    shapes = [(B, T, 4 * H), (B, T, P), (B, H + R * W), (B, H), (B, M, W), (B, R, M)]
    inputs = (recurrent, to_heads, cell, weights, memory, *gradients[:-1])  # the usage has no gradient
    dz, dheads, *dstart = _call("mann_lrua_backward", sizes, shapes, *record, *inputs)

    previous = jnp.concatenate([start[:, None], hidden[:, :-1]], axis=1)
    query = record[1] if sizes.cell_query else hidden[:, :, :H]
    drecurrent = _outer(previous[:, :, : recurrent.shape[0]], dz)
    return dz, drecurrent, _outer(query, dheads), jnp.sum(dheads, (0, 1)), *dstart, jnp.zeros_like(usage)


def _outer(inputs: Array, gradients: Array) -> Array:
    """The gradient of a weight matrix: the sum over episodes and steps of the outer products."""
    return inputs.reshape(-1, inputs.shape[-1]).T @ gradients.reshape(-1, gradients.shape[-1])


_unroll.defvjp(_unroll_forward, _unroll_backward)
