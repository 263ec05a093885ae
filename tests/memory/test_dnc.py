"""The DNC's memory over several steps against the loops of the oracle, values and gradients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from mann.errors import MannError
from mann.memory import DNC, DNCConfig, DNCState, MemoryConfig
from mann.memory.dnc import allocation
from tests.oracles import dnc

H, M, W, R = 8, 10, 5, 2
STEPS = 12  # more than slots: some are freed and allocated again
LAYERS = ("keys", "strengths", "erased", "written", "gates", "modes")
FREE, ALLOCATE, WRITE = 0, R, R + 1  # places in the layer of gates
call = eqx.filter_jit(lambda module, query, state: module(query, state))


def build(scale=3.0, strength=2.0):
    module = DNC(H, DNCConfig(slots=M, width=W, heads=R, initial_strength=strength), key=jax.random.key(1))
    return jax.tree.map(lambda leaf: leaf * scale if leaf.ndim == 2 else leaf, module)


def with_bias(module, layer, *values):
    return eqx.tree_at(
        lambda m: getattr(m, layer).bias,
        module,
        jnp.broadcast_to(jnp.array(values, jnp.float32), getattr(module, layer).bias.shape),
    )


def gated(module, free, allocate, write):
    """The same module with all gates shut or open."""
    return with_bias(module, "gates", *[2e4 * value - 1e4 for value in (*[free] * R, allocate, write)])


def layers_of(module):
    return {
        name: tuple(np.asarray(leaf, np.float64) for leaf in (layer.weight, layer.bias))
        for name in LAYERS
        for layer in [getattr(module, name)]
    }


def queries(count=STEPS):
    return jnp.asarray(np.random.default_rng(0).normal(size=(count, H)), jnp.float32)


def busy_state():
    rng = np.random.default_rng(2)
    weights = rng.dirichlet(np.ones(M), R + 2)
    links = rng.dirichlet(np.ones(M), M) * (1 - np.eye(M)) / 2
    arrays = (rng.normal(size=(M, W)), rng.uniform(size=M), weights[0], links, weights[2:], weights[1])
    return DNCState(*(jnp.asarray(a, jnp.float32) for a in arrays))


def as_oracle(state):
    return dnc.State(*(np.asarray(leaf, np.float64).tolist() for leaf in state))


@pytest.mark.parametrize("start", ["wiped", "busy"])
def test_whole_module_equals_the_oracle_over_several_steps(start):
    module = build()
    # Equally used slots would be sorted by rounding: the wiped ones start a little apart.
    wiped = module.initial_state()._replace(usage=jnp.linspace(0.0, 0.1, M))
    state = wiped if start == "wiped" else busy_state()
    layers, expected = layers_of(module), as_oracle(state)
    for step, query in enumerate(queries()):
        reads, state = call(module, query, state)
        expected_reads, expected = dnc.step(layers, np.asarray(query, np.float64).tolist(), expected, heads=R)
        np.testing.assert_allclose(reads, expected_reads, atol=2e-5, err_msg=f"at step {step}")
        for name, ours in state._asdict().items():
            np.testing.assert_allclose(
                ours, getattr(expected, name), atol=2e-5, err_msg=f"{name} at step {step}"
            )


def test_gradients_are_the_finite_differences_of_the_oracle():
    """Of the reads of three steps, by every weight and by what the memory held; sorting is the same nearby."""
    module, state = build(scale=1.0), busy_state()
    weighting = np.random.default_rng(3).normal(size=(3, R * W))

    def total(module, memory, usage):
        now, result = state._replace(memory=memory, usage=usage), 0.0
        for query, weights in zip(queries(3), weighting, strict=True):
            reads, now = module(query, now)
            result += reads @ jnp.asarray(weights, jnp.float32)
        return result

    arguments = (module, state.memory, state.usage)
    gradients = eqx.filter_jit(eqx.filter_grad(lambda args: total(*args)))(arguments)
    ours, _ = ravel_pytree(eqx.filter(gradients, eqx.is_array))
    flat, unflatten = ravel_pytree(eqx.filter(arguments, eqx.is_array))
    flat = np.asarray(flat, np.float64)

    def oracle(values):
        changed, memory, usage = unflatten(
            jnp.zeros(len(values))
        )  # the shapes alone: numbers stay in float64
        leaves, tree = jax.tree.flatten((changed, memory, usage))
        cuts = np.cumsum([leaf.size for leaf in leaves])[:-1]
        parts = [p.reshape(leaf.shape) for p, leaf in zip(np.split(values, cuts), leaves, strict=True)]
        changed, memory, usage = jax.tree.unflatten(tree, parts)
        layers = {name: (layer.weight, layer.bias) for name in LAYERS for layer in [getattr(changed, name)]}
        now = as_oracle(state)
        now.memory, now.usage = memory.tolist(), usage.tolist()
        result = 0.0
        for query, weights in zip(np.asarray(queries(3), np.float64), weighting, strict=True):
            reads, now = dnc.step(layers, query.tolist(), now, heads=R)
            result += float(np.dot(reads, weights))
        return result

    step = 1e-6
    for place in np.random.default_rng(4).choice(len(flat), 60, replace=False):
        ahead, behind = flat.copy(), flat.copy()
        ahead[place] += step
        behind[place] -= step
        slope = (oracle(ahead) - oracle(behind)) / (2 * step)
        np.testing.assert_allclose(ours[place], slope, rtol=1e-3, atol=2e-4, err_msg=f"at {place}")


def test_allocation_takes_the_least_used_slot_and_leaves_nothing_if_all_are_used():
    used = jnp.array([1.0, 0.5, 0.0, 1.0])
    np.testing.assert_allclose(allocation(used), [0, 0, 1, 0], atol=1e-7)
    np.testing.assert_allclose(allocation(jnp.array([0.5, 0.25, 1.0])), [0.125, 0.75, 0], atol=1e-7)
    np.testing.assert_array_equal(allocation(jnp.ones(3)), np.zeros(3))


def test_empty_rows_give_finite_reads_and_gradients():
    """All-zero slots, usage at its bounds, weights that are exactly zero."""
    module = build()

    def total(module, state):
        result = 0.0
        for query in queries(2):
            reads, state = module(query, state)
            result += jnp.sum(reads)
        return result

    for usage in (jnp.zeros(M), jnp.ones(M)):
        state = module.initial_state()._replace(usage=usage)
        gradients = eqx.filter_jit(eqx.filter_grad(lambda args: total(*args)))((module, state))
        for leaf in jax.tree.leaves(eqx.filter(gradients, eqx.is_array)):
            assert np.all(np.isfinite(leaf))


def test_gates_forced_open_write_one_free_slot_after_the_other_and_link_them():
    module = gated(build(scale=1.0), free=0, allocate=1, write=1)
    state = module.initial_state()
    for step, query in enumerate(queries(M)):
        _, state = call(module, query, state)
        np.testing.assert_allclose(state.write_weights, np.eye(M)[step], atol=1e-6)
        np.testing.assert_allclose(state.precedence, np.eye(M)[step], atol=1e-6)
    np.testing.assert_allclose(state.links, np.eye(M, k=-1), atol=1e-5)  # each slot after the one before
    _, full = call(module, queries(1)[0], state)
    np.testing.assert_allclose(full.write_weights, np.zeros(M), atol=1e-6)  # all used, none free


def test_shut_write_gate_changes_nothing_but_what_is_read():
    module, state = gated(build(), free=0, allocate=1, write=0), busy_state()
    _, new = call(module, queries(1)[0], state)
    for name in ("memory", "precedence", "links"):
        np.testing.assert_allclose(getattr(new, name), getattr(state, name), atol=1e-7)


def test_a_free_gate_releases_exactly_what_its_head_read():
    module, state = gated(build(), free=1, allocate=1, write=1), busy_state()
    state = state._replace(
        usage=jnp.ones(M), write_weights=jnp.zeros(M), read_weights=jnp.zeros((R, M)).at[1, 6].set(1.0)
    )
    _, new = call(module, queries(1)[0], state)
    np.testing.assert_allclose(new.usage, 1 - np.eye(M)[6], atol=1e-7)
    np.testing.assert_allclose(new.write_weights, np.eye(M)[6], atol=1e-6)


@pytest.mark.parametrize(("mode", "by"), [(0, -1), (2, 1)])
def test_read_modes_follow_the_order_of_writing(mode, by):
    biases = np.full((R, 3), -1e4)
    biases[:, mode] = 1e4
    module = gated(with_bias(build(), "modes", *biases.ravel()), free=0, allocate=1, write=0)
    state = busy_state()._replace(
        links=jnp.eye(M, k=-1), read_weights=jnp.tile(jnp.eye(M)[4], (R, 1)), write_weights=jnp.zeros(M)
    )
    reads, new = call(module, queries(1)[0], state)
    np.testing.assert_allclose(new.read_weights, np.tile(np.eye(M)[4 + by], (R, 1)), atol=1e-6)
    np.testing.assert_allclose(
        np.asarray(reads).reshape(R, W), np.tile(state.memory[4 + by], (R, 1)), atol=1e-5
    )


def test_trace_is_what_the_state_holds():
    module = build()
    _, state = call(module, queries(1)[0], busy_state())
    trace = module.trace(state)
    np.testing.assert_array_equal(trace.read_weights, state.read_weights)
    np.testing.assert_array_equal(trace.write_weights, state.write_weights[None])
    np.testing.assert_array_equal(trace.usage, state.usage)


def test_it_is_known_by_name_and_refuses_what_cannot_be_meant():
    assert MemoryConfig.members["dnc"] is DNCConfig
    with pytest.raises(MannError, match="key strength must be above 1"):
        DNCConfig(initial_strength=1.0)
