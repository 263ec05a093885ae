"""Sparse access against a dense memory in float64, its gradients against autodiff of the dense formulas."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mann.cell import Scan
from mann.errors import MannError
from mann.layers import normalise
from mann.memory import LRUAConfig, MemoryConfig, Sparse, SparseConfig
from mann.memory.sparse import access
from mann.models import build_model, tile_state
from mann.tasks import Classification
from tests.networks import network
from tests.oracles import sparse

H, M, W, R = 8, 10, 5, 2
STEPS = 25  # more than slots: every slot is used and used again
VARIANTS = {
    "3 neighbours": {"neighbours": 3},
    "one neighbour": {"neighbours": 1},
    "all slots": {"neighbours": M},
    "all slots, per head": {"neighbours": M, "least_used": "per_head"},
    "per head": {"neighbours": 3, "least_used": "per_head"},
    "every touch counts": {"neighbours": 3, "threshold": 0.0},
    "only strong ones count": {"neighbours": 3, "threshold": 0.6},
    "nothing counts": {"neighbours": 3, "threshold": 1.0},
}
call = eqx.filter_jit(lambda module, query, state: module(query, state))


def build(scale=3.0, **fields):
    """A module whose weights are large enough that gates and keys really differ from step to step."""
    config = SparseConfig(**{"slots": M, "width": W, "heads": R, "neighbours": 3} | fields)
    module = Sparse(H, config, key=jax.random.key(1))
    return jax.tree.map(lambda leaf: leaf * scale if leaf.ndim == 2 else leaf, module)


def layers_of(module):
    return {
        name: tuple(np.asarray(a, np.float64) for a in (layer.weight, layer.bias))
        for name in ("keys", "gates", "vectors", "strengths")
        for layer in [getattr(module, name)]
    }


def queries(count=STEPS, seed=0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(count, H)), jnp.float32)


def with_bias(module, layer, value):
    return eqx.tree_at(lambda m: getattr(m, layer).bias, module, jnp.full(R, value))


@pytest.mark.parametrize("name", VARIANTS)
def test_every_step_is_that_of_a_dense_memory_which_leaves_out_all_but_the_best(name):
    module = build(**VARIANTS[name])
    config, state, expected = module.config, module.initial_state(), sparse.initial_state(M, W, R)
    for query in queries():
        reads, state = call(module, query, state)
        told, expected = sparse.step(
            layers_of(module),
            np.asarray(query, np.float64).tolist(),
            expected,
            heads=R,
            neighbours=config.neighbours,
            threshold=config.threshold,
            least_used=config.least_used,
        )
        trace = module.trace(state)
        np.testing.assert_allclose(reads, told, atol=2e-4)
        np.testing.assert_allclose(state.memory, expected.memory, atol=2e-4)
        np.testing.assert_allclose(trace.read_weights, expected.read_weights, atol=2e-4)
        np.testing.assert_allclose(trace.write_weights, expected.write_weights, atol=2e-4)
        np.testing.assert_array_equal(state.age, expected.now - np.array(expected.used))
        np.testing.assert_allclose(
            state.inverse, 1 / np.sqrt((np.square(state.memory)).sum(1) + 1e-6), rtol=1e-5
        )


def test_every_choice_makes_a_difference():
    """Otherwise the comparison above would not tell one from another."""
    ends = {}
    for name, fields in VARIANTS.items():
        module = build(**fields)
        state = module.initial_state()
        for query in queries():
            _, state = call(module, query, state)
        ends[name] = np.concatenate([np.ravel(state.memory), state.age])
    names = list(ends)
    for i, a in enumerate(names):
        for b in names[:i]:
            assert np.abs(ends[a] - ends[b]).max() > 1e-3, f"{a} does the same as {b}"


def test_closed_gate_replaces_the_least_recently_used_slot_and_leaves_the_rest():
    module = with_bias(build(), "gates", -1e4)
    state = module.initial_state()
    for query in queries(15):
        slot = int(np.lexsort((np.arange(M), -np.asarray(state.age)))[0])
        _, after = call(module, query, state)
        written = np.tanh(np.asarray(query) @ np.asarray(module.vectors.weight)).reshape(R, W).sum(0)
        np.testing.assert_allclose(after.memory[slot], written, atol=1e-5)
        others = np.arange(M) != slot
        np.testing.assert_array_equal(np.asarray(after.memory)[others], np.asarray(state.memory)[others])
        state = after


def test_open_gate_writes_to_exactly_what_was_read_last():
    module = with_bias(build(), "gates", 1e4)
    state = module.initial_state()
    for query in queries(4):
        _, after = call(module, query, state)
        np.testing.assert_array_equal(module.trace(after).write_weights, module.trace(state).read_weights)
        state = after


def plain(module, query, state):
    """The same step with dense arrays and no rule for gradients of its own; the slots read are those of `state`."""
    memory, read_weights, target, nearest = state
    keys = jnp.tanh(module.keys(query)).reshape(R, W)
    gate = jax.nn.sigmoid(module.gates(query))[:, None]
    vectors = jnp.tanh(module.vectors(query)).reshape(R, W)
    beta = 1 + jax.nn.softplus(module.strengths(query))[:, None]
    marked = jax.nn.one_hot(target, M)[None]
    write_weights = gate * read_weights + (1 - gate) * marked
    memory = memory * (1 - marked.T) + write_weights.T @ vectors
    chosen = jnp.sum(jax.nn.one_hot(nearest, M), axis=1) > 0
    cosine = normalise(keys) @ normalise(memory).T
    weights = jax.nn.softmax(jnp.where(chosen, beta * cosine, -1e9), axis=-1)
    return (weights @ memory).reshape(-1), memory, weights, write_weights


@pytest.mark.parametrize("neighbours", [1, 3, M])
def test_gradients_of_an_episode_are_those_of_dense_formulas(neighbours):
    module, start = build(neighbours=neighbours, scale=2.0), queries(1, seed=5)[0]
    first = call(module, start, module.initial_state())[1]  # something is there already
    weigh = jnp.asarray(np.random.default_rng(3).normal(size=(6, R * W)), jnp.float32)
    choices = []
    state = first
    for query in queries(6):
        before = state
        _, state = call(module, query, state)
        choices.append((jnp.argmax(before.age), state.read_slots))

    def ours(module, queries, memory, read_weights):
        state = first._replace(memory=memory, read_weights=read_weights)
        total = jnp.zeros(())
        for query, w in zip(queries, weigh, strict=True):
            reads, state = module(query, state)
            total += jnp.sum(reads * w)
        trace = module.trace(state)
        return total + sum(
            jnp.sum(jnp.sin(a)) for a in (state.memory, trace.read_weights, trace.write_weights)
        )

    def dense(module, queries, memory, read_weights):
        weights = jnp.zeros((R, M)).at[jnp.arange(R)[:, None], first.read_slots].set(read_weights)
        total = jnp.zeros(())
        for query, w, (target, nearest) in zip(queries, weigh, choices, strict=True):
            reads, memory, weights, written = plain(module, query, (memory, weights, target, nearest))
            total += jnp.sum(reads * w)
        return total + sum(jnp.sum(jnp.sin(a)) for a in (memory, weights, written))

    arguments = (module, queries(6), first.memory, first.read_weights)
    results = [
        eqx.filter_jit(eqx.filter_value_and_grad(lambda args, f=f: f(*args)))(arguments)
        for f in (ours, dense)
    ]
    for actual, expected in zip(*(jax.tree.leaves(result) for result in results), strict=True):
        largest = np.max(np.abs(expected), initial=1e-6)
        np.testing.assert_allclose(actual / largest, expected / largest, atol=2e-4)


def model_of(slots=40, **fields):
    config = network(hidden=7, width=5, heads=2)
    memory = SparseConfig(**{"slots": slots, "width": 5, "heads": 2, "neighbours": 4} | fields)
    return build_model(
        dataclasses.replace(config, memory=memory), Classification(classes=3), key=jax.random.key(0)
    )


def test_gradients_of_a_batch_equal_finite_differences():
    """Along one random direction of all weights and inputs; so short a way that no head reads elsewhere."""
    model = model_of()
    rng = np.random.default_rng(0)
    inputs = jnp.asarray(rng.uniform(size=(3, 9, 400)), jnp.float32)
    labels = jnp.asarray(rng.uniform(size=(3, 9, 3)), jnp.float32)
    arrays, static = eqx.partition((model, inputs), eqx.is_array)
    direction = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape), jnp.float32), arrays)

    @jax.jit
    def along(step):
        moved, inputs = eqx.combine(jax.tree.map(lambda a, d: a + step * d, arrays, direction), static)
        projected = jax.vmap(moved.project)(inputs, labels)
        outputs, _ = Scan()(moved.cell, projected, tile_state(moved.initial_state(), 3))
        return jnp.sum(jnp.sin(3 * outputs))

    slope = jax.grad(along)(0.0)
    assert (along(1e-5) - along(-1e-5)) / 2e-5 == pytest.approx(float(slope), rel=1e-2)


def test_nothing_of_the_size_of_the_memory_is_kept_of_every_step():
    """The compiled gradient of 60 steps with 4096 slots: temporaries of a few memories, not of 60."""
    model, batch, steps = model_of(slots=4096), 2, 60
    inputs, labels = jnp.zeros((batch, steps, 400)), jnp.zeros((batch, steps, 3))

    def loss(model):
        return jnp.sum(model.unroll_batch(inputs, labels).outputs ** 2)

    arrays, static = eqx.partition(model, eqx.is_array)
    compiled = jax.jit(jax.grad(lambda arrays: loss(eqx.combine(arrays, static)))).lower(arrays).compile()
    one = batch * 4096 * 5 * 4
    assert compiled.memory_analysis().temp_size_in_bytes < 10 * one


def test_slots_that_occur_twice_are_written_twice():
    memory, inverse = jnp.ones((4, 2)), jnp.ones(4)
    slots, weights = jnp.array([[1, 1], [2, 1]]), jnp.array([[0.5, 0.25], [1.0, 2.0]])
    vectors = jnp.array([[1.0, 0.0], [0.0, 1.0]])
    after, *_ = access(1, memory, inverse, jnp.array([2]), slots, weights, vectors, vectors)
    np.testing.assert_allclose(after, [[1, 1], [1.75, 3], [0, 1], [1, 1]])


def test_weights_do_not_depend_on_the_slots_and_are_those_of_lrua():
    ours, theirs = model_of(slots=40), model_of(slots=999)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(one, other)
    config = SparseConfig(slots=40, neighbours=4)
    assert config.with_slots(4096) == dataclasses.replace(config, slots=4096)
    dense = LRUAConfig(width=W, heads=R).build(H, (400, 5), key=jax.random.key(0))
    named = [
        [
            (jax.tree_util.keystr(path), leaf.shape)
            for path, leaf in jax.tree_util.tree_leaves_with_path(module)
        ]
        for module in (dense, build())
    ]
    assert named[0] == named[1]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"neighbours": 11}, "11 neighbours .* need at least as many slots, but there are 10"),
        ({"neighbours": 0}, "at least 1"),
        ({"heads": 11}, "11 heads need at least as many slots, but there are 10"),
        ({"threshold": -0.1}, "between 0 and 1, not -0.1"),
        ({"threshold": 1.5}, "between 0 and 1, not 1.5"),
        ({"threshold": float("nan")}, "between 0 and 1"),
        ({"initial_strength": 1.0}, "above 1"),
    ],
)
def test_what_cannot_be_is_refused(fields, message):
    with pytest.raises(MannError, match=message):
        build(**fields)
    with pytest.raises(MannError, match="8 neighbours"):
        SparseConfig().with_slots(7)


def test_it_is_a_memory_by_name_and_has_a_smallest_form():
    assert MemoryConfig.members["sparse"] is SparseConfig
    assert SparseConfig(neighbours=16).smallest().slots == 8


def test_a_trace_of_many_steps_of_a_large_memory_is_refused():
    model = model_of(slots=2**18)
    with pytest.raises(MannError, match="262144 slots takes 3 GB: trace fewer steps"):
        model.unroll(jnp.zeros((300, 400)), jnp.zeros((300, 3)), trace=True)
    assert model.unroll(jnp.zeros((2, 400)), jnp.zeros((2, 3)), trace=True).trace is not None


def test_usage_in_a_trace_fades_and_empty_slots_have_none():
    module = build(slots=40, neighbours=2)
    state = module.initial_state()
    for query in queries(10):
        _, state = call(module, query, state)
    usage, held = module.trace(state).usage, np.abs(state.memory).max(axis=1) > 0
    assert not np.any(usage[~held])
    np.testing.assert_allclose(usage[held], 0.99 ** np.asarray(state.age)[held], rtol=1e-5)
