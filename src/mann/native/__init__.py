"""The recurrent part of a network as one native call on the CPU, forward and backward.

It computes what `Model.unroll` does between the input projection and the output layer, for a batch of whole
episodes. Weight gradients are hoisted out of the recurrence: the kernel returns the gradient of every
pre-activation, and each weight gradient is one large product.
"""

import functools
import os
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mann.controllers import LSTM, FeedForward, LSTMState
from mann.errors import MannError
from mann.memory import LRUA, NTM, LRUAState, NTMState
from mann.models import Model, State
from mann.native import build

INTERVAL = 32  # steps between checkpoints of an LRUA memory; between them, it is rebuilt backwards
CONTROLLERS = {LSTM: "lstm", FeedForward: "feedforward"}
MEMORIES = {LRUA: "lrua", NTM: "ntm", type(None): "none"}


def supports(model: Model) -> bool:
    """Whether `unroll_batch` can run this model on this machine; MANN_NATIVE=0 turns it off."""
    return (
        os.environ.get("MANN_NATIVE") != "0"
        and jax.default_backend() == "cpu"
        and _name(model) in build.NETWORKS
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
    batch, time, gates = projected.shape
    assert isinstance(model.controller, LSTM | FeedForward)
    expected_gates = model.controller.inputs.bias.size
    wiped = jax.eval_shape(model.initial_state)
    expected = jax.tree.map(lambda leaf: ((batch, *leaf.shape), jnp.dtype(jnp.float32)), wiped)
    given = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), state)
    if given != expected or gates != expected_gates or projected.dtype != jnp.float32:
        raise MannError(
            f"This model takes float32 inputs of {expected_gates} gates and a state for each "
            f"of the {batch} episodes, but got {projected.shape} and {given}."
        )
    sizes = _sizes(model, batch, time)
    if time == 0:
        return jnp.zeros((batch, 0, sizes.hidden + sizes.heads * sizes.width)), state

    arrays = [projected, *_weights(model), *_start(state, sizes)]
    # Inside `shard_map`: weights that all devices share become one copy each, whose gradients are then summed.
    axes = [jax.typeof(array).manual_axis_type.varying for array in arrays]
    arrays = [
        jax.lax.pcast(array, tuple(frozenset().union(*axes) - own), to="varying")
        for array, own in zip(arrays, axes, strict=True)
    ]
    return _last_state(model, *_unroll(_name(model), sizes, *arrays))


def _name(model: Model) -> str:
    """As in `build.NETWORKS`."""
    return f"{CONTROLLERS.get(type(model.controller))}_{MEMORIES.get(type(model.memory))}"


def _weights(model: Model) -> tuple[Array, Array, Array]:
    """From what the controller is fed to its gates; from the query to the heads' parameters; their bias."""
    controller, memory = model.controller, model.memory
    assert isinstance(controller, LSTM | FeedForward)
    fed = [controller.recurrent] if isinstance(controller, LSTM) else []
    fed += [controller.from_reads] if controller.from_reads is not None else []
    linears = []
    if isinstance(memory, LRUA):
        linears = [memory.keys, memory.vectors, memory.gates, memory.strengths]
    elif isinstance(memory, NTM):
        linears = [memory.keys, memory.addressing, memory.erase, memory.add]
    none = jnp.zeros((0, controller.inputs.bias.size)), jnp.zeros((controller.hidden_size, 0)), jnp.zeros(0)
    return (
        jnp.concatenate([none[0], *fed]),
        jnp.concatenate([none[1], *(linear.weight for linear in linears if linear)], axis=1),
        jnp.concatenate([none[2], *(linear.bias for linear in linears if linear)]),
    )


def _start(state: State, sizes: "_Sizes") -> tuple[Array, ...]:
    """(h_0, r_0), c_0, M_0, w_0 and w^u_0; what a network does not have is zero or has no entries."""
    batch, memory = sizes.batch, state.memory
    hidden, cell = state.controller or (jnp.zeros((batch, sizes.hidden)), jnp.zeros((batch, 0)))
    slots, weights, usage = jnp.zeros((batch, 0, 0)), jnp.zeros((batch, 0, 0)), jnp.zeros((batch, 0))
    if isinstance(memory, LRUAState):
        slots, weights, usage = memory.memory, memory.read_weights, jax.lax.stop_gradient(memory.usage)
    elif isinstance(memory, NTMState):
        slots, weights = memory.memory, memory.weights
    start = hidden if state.reads is None else jnp.concatenate([hidden, state.reads], axis=1)
    return start, cell, slots, weights, usage


def _last_state(
    model: Model, hidden: Array, cell: Array, slots: Array, weights: Array, written: Array, usage: Array
) -> tuple[Array, State]:
    """The results of `_unroll` as those of `unroll_batch`."""
    last, reads = jnp.split(hidden[:, -1], [model.controller.hidden_size], axis=1)
    controller = LSTMState(last, cell) if isinstance(model.controller, LSTM) else ()
    if isinstance(model.memory, LRUA):
        return hidden, State(controller, reads, LRUAState(slots, weights, written, usage))
    if isinstance(model.memory, NTM):
        return hidden, State(controller, reads, NTMState(slots, weights))
    return hidden, State(controller, None, None)


class _Sizes(NamedTuple):
    """In the order of `Config` in config.h, which says what each of them is."""

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
    interval: int = 1
    checkpoints: int = 0
    steps: int = 1
    learned: int = 0
    separate: int = 0
    write_first: int = 0
    targets: int = 0
    erased: int = 0
    decay: float = 0.0
    strength: float = 0.0


def _sizes(model: Model, batch: int, time: int) -> _Sizes:
    controller, memory = model.controller, model.memory
    assert isinstance(controller, LSTM | FeedForward)
    hidden, recurrent = controller.hidden_size, isinstance(controller, LSTM)
    slots, width, heads = (memory.slots, memory.width, memory.heads) if memory else (0, 0, 0)
    reads = controller.from_reads is not None
    common = _Sizes(
        *(batch, time, hidden, slots, width, heads),
        weighted=heads,
        fed_from=0 if recurrent else hidden,
        fed=hidden * recurrent + heads * width * reads,
        cell_query=int(model.query == "cell"),
        steps=time,
    )
    if isinstance(memory, NTM):
        return common._replace(weighted=heads + 1, checkpoints=time, strength=memory.config.initial_strength)
    if not isinstance(memory, LRUA):
        return common
    config = memory.config
    targets = 1 if config.least_used == "shared" else heads
    return common._replace(
        interval=INTERVAL,
        checkpoints=-(-time // INTERVAL),
        learned=int(config.key_strength == "learned"),
        separate=int(config.written == "separate"),
        write_first=int(config.order == "write_first"),
        targets=targets,
        erased={"one": 1, "all": targets, "none": 0}[config.erased],
        decay=config.decay,
    )


def _call(target: str, sizes: _Sizes, shapes: list[tuple[int, ...]], *arrays: Array) -> list[Array]:
    """Arrays of these shapes, and for a forward call the indices of the least used slots."""
    like = jax.typeof(arrays[0])
    sharding = jax.NamedSharding(like.sharding.mesh, jax.P())
    result = functools.partial(
        jax.ShapeDtypeStruct, sharding=sharding, manual_axis_type=like.manual_axis_type
    )
    results = [result(shape, jnp.float32) for shape in shapes]
    if target.endswith("forward"):
        results.append(result((sizes.batch, sizes.steps, sizes.targets), jnp.int32))
    call = jax.ffi.ffi_call(target, results, vmap_method="sequential")
    *integers, decay, strength = sizes
    attributes = {"decay": np.float32(decay), "strength": np.float32(strength)}
    return list(call(*arrays, sizes=np.array(integers, np.int64), **attributes))


def _forward(name: str, sizes: _Sizes, *arrays: Array) -> tuple[tuple[Array, ...], list[Array]]:
    """The results, and what was recorded for the backward pass."""
    B, T, H, M, W, R, N = sizes[:7]
    bias, cell, usage = arrays[3], arrays[5], arrays[8]
    padded = (-(-W // 4) * 4, -(-M // 16) * 16)
    kept = (N, padded[1]) if name.endswith("ntm") else (sizes.targets, W)
    per_step = [(4 * cell.shape[1],), cell.shape[1:], bias.shape, (N, padded[1]), kept]
    shapes = [(B, T, H + R * W), (B, M, W), (B, R, M), usage.shape]
    shapes += [(B, sizes.steps, *shape) for shape in per_step]
    shapes += [(B, sizes.checkpoints, *padded)]
    hidden, slots, written, usage, *record = _call(f"mann_{name}_forward", sizes, shapes, *arrays)
    cells, weights = record[1], record[3]
    return (hidden, cells[:, -1], slots, weights[:, -1, :, :M], written, usage), record


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _unroll(name: str, sizes: _Sizes, *arrays: Array) -> tuple[Array, ...]:
    return _forward(name, sizes._replace(steps=1, checkpoints=0), *arrays)[0]


def _unroll_forward(name: str, sizes: _Sizes, *arrays: Array) -> tuple[tuple[Array, ...], Any]:
    results, record = _forward(name, sizes, *arrays)
    _, recurrent, to_heads, _, start, cell, _, weights, usage = arrays
    hidden, _, slots, *_ = results
    return results, (record, recurrent, to_heads, start, cell, weights, usage, hidden, slots)


def _unroll_backward(name: str, sizes: _Sizes, kept: Any, gradients: tuple[Array, ...]) -> tuple[Array, ...]:
    record, recurrent, to_heads, start, cell, weights, usage, hidden, slots = kept
    B, T, H = sizes[:3]
    per_step = [(B, T, recurrent.shape[1]), (B, T, to_heads.shape[1])]
    shapes = per_step + [array.shape for array in (start, cell, slots, weights)]
    inputs = (recurrent, to_heads, cell, weights, hidden, slots, *gradients[:-1])  # usage has no gradient
    dz, dheads, *dstart = _call(f"mann_{name}_backward", sizes, shapes, *record, *inputs)

    previous = jnp.concatenate([start[:, None], hidden[:, :-1]], axis=1)
    fed = previous[:, :, sizes.fed_from : sizes.fed_from + sizes.fed]
    query = record[1] if sizes.cell_query else hidden[:, :, :H]
    return dz, _outer(fed, dz), _outer(query, dheads), jnp.sum(dheads, (0, 1)), *dstart, jnp.zeros_like(usage)


def _outer(inputs: Array, gradients: Array) -> Array:
    """The gradient of a weight matrix: the sum over episodes and steps of the outer products."""
    B, T = inputs.shape[:2]  # as matrices: XLA is slower at contracting two axes
    return inputs.reshape(B * T, inputs.shape[2]).T @ gradients.reshape(B * T, gradients.shape[2])


_unroll.defvjp(_unroll_forward, _unroll_backward)
