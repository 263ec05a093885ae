"""The native kernel for sparse access against the JAX scan that it stands in for."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec

from mann import kernel
from mann.cell import Scan
from mann.memory import SparseConfig
from mann.models import build_model, tile_state
from mann.native.sparse import NativeSparse
from mann.recurrences import choose_recurrence
from mann.tasks import Classification
from tests.networks import network

pytestmark = pytest.mark.skipif(
    not kernel.available(), reason="no C++ compiler: there is no native kernel to test"
)

CONFIGS = {
    "default": {},
    "per head": {"least_used": "per_head", "heads": 5},
    "all slots": {"slots": 13, "neighbours": 13},
    "one slot": {"slots": 1, "neighbours": 1, "heads": 1, "width": 1},
    "one neighbour": {"neighbours": 1, "threshold": 0.5},
    "many slots, wide": {"slots": 300, "width": 40, "neighbours": 16},
    "feed-forward": {"controller": "feedforward"},
    "no reads, cell query": {"reads_to_controller": False, "query": "cell"},
}


def problem(batch=9, time=9, controller="lstm", reads_to_controller=True, query="hidden", **fields):
    """A model whose weights are so large that heads read and write elsewhere at every step, and inputs."""
    memory = SparseConfig(**{"slots": 21, "width": 7, "heads": 3, "neighbours": 4} | fields)
    config = network(controller, hidden=17, reads_to_controller=reads_to_controller, query=query)
    config = dataclasses.replace(config, memory=memory)
    model = build_model(config, Classification(classes=5), key=jax.random.key(1))
    model = eqx.tree_at(
        lambda m: m.memory,
        model,
        jax.tree.map(lambda leaf: 4 * leaf if leaf.ndim == 2 else leaf, model.memory),
    )
    random = np.random.default_rng(0)
    gates = random.normal(size=(batch, time, model.controller.gate_size))
    return model, jnp.asarray(gates, jnp.float32), tile_state(model.initial_state(), batch)


@eqx.filter_jit
def results_and_gradients(recurrence, model, projected, state):
    """Everything that is returned, and the gradients of a random projection of it."""

    def loss(arguments):
        model, projected, state = arguments
        results = recurrence(model.cell, projected, state)
        outputs, last = results
        kept = last._replace(memory=last.memory._replace(inverse=(), age=()))  # these two have no gradient
        floats = [leaf for leaf in jax.tree.leaves((outputs, kept)) if leaf.dtype == jnp.float32]
        keys = jax.random.split(jax.random.key(5), len(floats))
        total = sum(
            jnp.sum(leaf * jax.random.normal(key, leaf.shape)) for key, leaf in zip(keys, floats, strict=True)
        )
        return total, results

    return eqx.filter_value_and_grad(loss, has_aux=True)((model, projected, state))


def assert_close(actual, expected, bound):
    for (path, e), a in zip(
        jax.tree_util.tree_leaves_with_path(expected), jax.tree.leaves(actual), strict=True
    ):
        error = np.max(np.abs(np.asarray(a) - np.asarray(e)), initial=0)
        largest = np.max(np.abs(np.asarray(e)), initial=0)
        assert error <= bound * largest + 1e-6, f"{jax.tree_util.keystr(path)}: {error:.3g} of {largest:.3g}"


@pytest.mark.parametrize("name", CONFIGS)
def test_results_and_gradients_are_those_of_the_scan(name):
    """From a wiped memory, and from what that episode left behind."""
    model, projected, state = problem(**CONFIGS[name])
    assert isinstance(choose_recurrence(model.cell), NativeSparse)
    for _ in range(2):
        ((_, expected), slopes), ((_, actual), ours) = (
            results_and_gradients(recurrence, model, projected, state)
            for recurrence in (Scan(), NativeSparse())
        )
        np.testing.assert_array_equal(actual[1].memory.read_slots, expected[1].memory.read_slots)
        assert_close(actual, expected, 2e-5)
        assert_close(ours, slopes, 2e-4)
        state = expected[1]


def test_a_long_episode_uses_every_slot_again_and_again():
    model, projected, state = problem(batch=2, time=200)
    expected, actual = (
        eqx.filter_jit(recurrence)(model.cell, projected, state) for recurrence in (Scan(), NativeSparse())
    )
    np.testing.assert_array_equal(actual[1].memory.age, expected[1].memory.age)
    assert_close(actual, expected, 1e-3)


def test_outputs_of_a_whole_network_without_a_gradient_are_those_of_the_scan():
    model, _, _ = problem()
    inputs = jnp.asarray(np.random.default_rng(0).uniform(size=(3, 6, 400)), jnp.float32)
    labels = jnp.zeros((3, 6, 5))
    np.testing.assert_allclose(
        jax.jit(lambda *x: model.unroll_batch(*x))(inputs, labels).outputs,
        jax.jit(jax.vmap(lambda *x: model.unroll(*x)))(inputs, labels).outputs,
        atol=1e-5,
    )


def test_gradients_are_summed_over_devices():
    model, projected, state = problem(batch=4, time=5)
    arrays, static = eqx.partition(model, eqx.is_array)

    def gradient(arrays, projected, state):
        def loss(arrays):
            outputs, _ = NativeSparse()(eqx.combine(arrays, static).cell, projected, state)
            return jnp.sum(outputs**2)

        return jax.grad(loss)(arrays)

    mesh = Mesh(np.array(jax.devices()[:2]), "data")
    split, same = PartitionSpec("data"), PartitionSpec()
    shared = jax.jit(jax.shard_map(gradient, mesh=mesh, in_specs=(same, split, split), out_specs=same))
    assert_close(shared(arrays, projected, state), jax.jit(gradient)(arrays, projected, state), 1e-4)


def test_slots_that_there_are_not_are_refused():
    model, projected, state = problem()
    wrong = state._replace(memory=state.memory._replace(read_slots=state.memory.read_slots + 21))
    with pytest.raises(Exception, match="slots that there are not"):
        jax.block_until_ready(NativeSparse()(model.cell, projected, wrong))


def test_nothing_of_the_size_of_the_memory_is_kept_of_every_step():
    """60 steps with 4096 slots: a few memories, not 60; and one update is not much more than the memory itself."""
    model, projected, state = problem(batch=2, time=60, slots=4096)
    arrays, static = eqx.partition(model, eqx.is_array)

    def loss(arrays, projected, state):
        outputs, _ = NativeSparse()(eqx.combine(arrays, static).cell, projected, state)
        return jnp.sum(outputs**2)

    compiled = jax.jit(jax.grad(loss)).lower(arrays, projected, state).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 6 * state.memory.memory.nbytes
    recorded = NativeSparse().floats(model.cell, 60)
    assert recorded == 60 * (5 * 17 + 3 * 16 + 12 + 12 * 7) + 2 * 4096 * 7
