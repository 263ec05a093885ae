"""The NTM's access module over several steps against the loops of the oracle."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mann.errors import MannError
from mann.memory import NTM, NTMConfig, NTMState
from tests.oracles import ntm

H, M, W, R = 8, 10, 5, 2
STEPS = 12
TOLERANCE = 2e-4  # our sharpening adds 1e-6, which the oracle does not; twelve steps add up
STRENGTH, GATE, BACK, STAY, FORTH, SHARPNESS = range(6)  # columns of a head
call = eqx.filter_jit(lambda module, query, state: module(query, state))


def written_slots(module):
    """Where the write head has most of its weight, step by step, and how much."""
    state, found = module.initial_state(), []
    for query in queries(6):
        _, state = call(module, query, state)
        found.append(np.asarray(state.weights[-1]))
    return [int(weights.argmax()) for weights in found], min(weights.max() for weights in found)


def build(config=None, scale=3.0):
    sized = dataclasses.replace(config or NTMConfig(), slots=M, width=W, heads=R)
    module = NTM(H, sized, key=jax.random.key(1))
    return jax.tree.map(lambda leaf: leaf * scale if leaf.ndim == 2 else leaf, module)


def forced(module, **raw):
    """The same module with some raw addressing numbers driven to ±1e4 for all heads."""
    bias = np.zeros((R + 1, 6), np.float32)
    for name, value in raw.items():
        bias[:, globals()[name]] = value
    return eqx.tree_at(lambda m: m.addressing.bias, module, jnp.asarray(bias.ravel()))


def layers_of(module):
    return {
        name: tuple(np.asarray(leaf, np.float64) for leaf in (layer.weight, layer.bias))
        for name in ("keys", "addressing", "erase", "add")
        for layer in [getattr(module, name)]
    }


def queries(count=STEPS):
    return jnp.asarray(np.random.default_rng(0).normal(size=(count, H)), jnp.float32)


def busy_state():
    rng = np.random.default_rng(2)
    arrays = rng.normal(size=(M, W)), rng.dirichlet(np.ones(M), R + 1)
    return NTMState(*(jnp.asarray(a, jnp.float32) for a in arrays))


def as_oracle(state):
    weights = np.asarray(state.weights, np.float64).tolist()
    return ntm.State(np.asarray(state.memory, np.float64).tolist(), weights[:R], weights[R])


def test_start_of_an_episode_is_as_specified():
    state = build().initial_state()
    np.testing.assert_array_equal(state.memory, np.full((M, W), 1e-6, np.float32))
    np.testing.assert_array_equal(state.weights, [np.eye(M)[0]] * (R + 1))


@pytest.mark.parametrize("start", ["wiped", "busy"])
@pytest.mark.parametrize("strength", [1.0, 5.0, -2.0])
def test_whole_module_equals_the_oracle_over_several_steps(strength, start):
    module = build(NTMConfig(initial_strength=strength))
    state = module.initial_state() if start == "wiped" else busy_state()
    layers, expected = layers_of(module), as_oracle(state)
    for step, query in enumerate(queries()):
        reads, state = call(module, query, state)
        expected_reads, expected = ntm.step(
            layers,
            np.asarray(query, np.float64).tolist(),
            expected,
            heads=R,
            initial_strength=strength,
        )
        message = f"at step {step}"
        np.testing.assert_allclose(reads, expected_reads, atol=TOLERANCE, err_msg=message)
        np.testing.assert_allclose(state.memory, expected.memory, atol=TOLERANCE, err_msg=message)
        np.testing.assert_allclose(
            state.weights, [*expected.read_weights, expected.write_weights], atol=TOLERANCE, err_msg=message
        )


def test_closed_gate_without_shift_keeps_the_previous_weights():
    module = forced(build(), GATE=-1e4, STAY=1e4, SHARPNESS=-1e4)
    state = busy_state()
    _, new = call(module, queries(1)[0], state)
    np.testing.assert_allclose(new.weights, state.weights, atol=1e-5)  # the sharpening's small constant


@pytest.mark.parametrize(("move", "by"), [("BACK", -1), ("FORTH", 1)])
def test_forced_shift_moves_the_previous_weights_by_one_slot(move, by):
    module = forced(build(), GATE=-1e4, SHARPNESS=-1e4, **{move: 1e4})
    state = busy_state()
    _, new = call(module, queries(1)[0], state)
    for i in range(M):
        np.testing.assert_allclose(
            np.asarray(new.weights)[:, (i + by) % M], np.asarray(state.weights)[:, i], atol=1e-5
        )


def test_open_gate_with_very_large_strength_reads_exactly_one_slot():
    module = forced(build(), GATE=1e4, STAY=1e4, STRENGTH=1e7)
    query, state = queries(1)[0], busy_state()
    reads, new = call(module, query, state)
    keys = np.tanh(np.asarray(query) @ np.asarray(module.keys.weight)).reshape(R + 1, W)
    memory = np.asarray(new.memory)
    cosines = keys @ memory.T / np.linalg.norm(keys, axis=1)[:, None] / np.linalg.norm(memory, axis=1)[None]
    best = np.argmax(cosines[:R], axis=1)  # the read heads see the memory after the write
    np.testing.assert_allclose(new.weights[:R], np.eye(M)[best], atol=1e-5)
    np.testing.assert_allclose(np.asarray(reads).reshape(R, W), memory[best], atol=1e-4)


def test_write_head_that_erases_all_replaces_one_slot_and_no_other():
    module = forced(build(), GATE=-1e4, STAY=1e4, SHARPNESS=1e2)
    module = eqx.tree_at(lambda m: m.erase.bias, module, jnp.full(W, 1e4))
    state = busy_state()
    state = state._replace(weights=state.weights.at[R].set(jnp.eye(M)[4]))
    query = queries(1)[0]
    _, new = call(module, query, state)
    added = np.tanh(np.asarray(query) @ np.asarray(module.add.weight))
    np.testing.assert_allclose(new.memory[4], added, atol=1e-5)
    others = np.arange(M) != 4
    np.testing.assert_allclose(np.asarray(new.memory)[others], np.asarray(state.memory)[others], atol=1e-5)


def test_trace_separates_reading_from_writing_and_has_no_usage():
    module = build()
    _, state = call(module, queries(1)[0], busy_state())
    trace = module.trace(state)
    np.testing.assert_array_equal(trace.read_weights, state.weights[:R])
    np.testing.assert_array_equal(trace.write_weights, state.weights[R:])
    np.testing.assert_array_equal(trace.memory, state.memory)
    assert trace.usage is None


def test_moving_heads_start_by_writing_one_slot_after_the_other():
    slots, weight = written_slots(build(NTMConfig(initial_heads="moving"), scale=0.1))
    assert slots == [1, 2, 3, 4, 5, 6]
    assert weight > 0.5
    slots, _ = written_slots(build(NTMConfig(), scale=0.1))
    assert slots != [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_initial_strength_must_be_finite(value):
    with pytest.raises(MannError, match="finite"):
        NTMConfig(initial_strength=value)
