"""The controllers against loops over units."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mann.controllers import LSTM, FeedForward
from tests.oracles import lstm
from tests.oracles.lrua import linear

INPUTS, H, READS, STEPS = 7, 8, 10, 10
call = eqx.filter_jit(lambda controller, x, reads, state: controller(controller.project(x), reads, state))


def float64(array):
    return np.asarray(array, np.float64)


def layer(linear_layer):
    return float64(linear_layer.weight), float64(linear_layer.bias)


def build(kind, reads):
    """Weights and biases that are all at work."""
    controller = kind(INPUTS, H, reads, key=jax.random.key(0))
    bias = jax.random.normal(jax.random.key(1), controller.inputs.bias.shape)
    return eqx.tree_at(lambda c: c.inputs.bias, controller, bias)


def stream(seed=0):
    rng = np.random.default_rng(seed)
    draw = (rng.normal(size=(STEPS, size)) * 2 for size in (INPUTS, READS))
    return [jnp.asarray(values, jnp.float32) for values in draw]


@pytest.mark.parametrize("with_reads", [True, False])
def test_lstm_equals_the_oracle_over_several_steps(with_reads):
    controller = build(LSTM, READS if with_reads else 0)
    from_reads = float64(controller.from_reads) if with_reads else None
    state, hidden, cell = controller.initial_state(), [0.0] * H, [0.0] * H
    for x, r in zip(*stream(), strict=True):
        output, state = call(controller, x, r, state)  # without `from_reads`, they make no difference
        hidden, cell = lstm.step(
            layer(controller.inputs),
            float64(controller.recurrent),
            from_reads,
            float64(x).tolist(),
            float64(r).tolist() if with_reads else None,
            hidden,
            cell,
        )
        np.testing.assert_allclose(output.hidden, hidden, atol=1e-5)
        np.testing.assert_allclose(output.cell, cell, atol=1e-5)
        np.testing.assert_array_equal(state.hidden, output.hidden)
        np.testing.assert_array_equal(state.cell, output.cell)


def test_lstm_starts_from_zero():
    for part in build(LSTM, READS).initial_state():
        np.testing.assert_array_equal(part, np.zeros(H))


def test_forget_gate_starts_open():
    """With no input at all, a cell keeps σ(1) of what it held, not one half."""
    controller = LSTM(INPUTS, H, 0, key=jax.random.key(0))
    state = controller.initial_state()._replace(cell=jnp.ones(H))
    _, new = call(controller, jnp.zeros(INPUTS), jnp.zeros(0), state)
    np.testing.assert_allclose(new.cell, 1 / (1 + math.exp(-1)), rtol=1e-6)


@pytest.mark.parametrize("with_reads", [True, False])
def test_feedforward_equals_the_loop_and_has_no_state(with_reads):
    controller = build(FeedForward, READS if with_reads else 0)
    state = controller.initial_state()
    assert state == ()
    for x, r in zip(*stream(), strict=True):
        output, state = call(controller, x, r, state)  # without `from_reads`, they make no difference
        expected = linear(layer(controller.inputs), float64(x).tolist())
        if with_reads:
            more = linear((float64(controller.from_reads), np.zeros(H)), float64(r).tolist())
            expected = [a + b for a, b in zip(expected, more, strict=True)]
        np.testing.assert_allclose(output.hidden, np.tanh(expected), atol=1e-5)
        np.testing.assert_array_equal(output.cell, output.hidden)
        assert state == ()


@pytest.mark.parametrize("kind", [LSTM, FeedForward])
def test_projecting_a_whole_episode_is_projecting_every_step(kind):
    controller = build(kind, READS)
    inputs, _ = stream()
    steps = [linear(layer(controller.inputs), float64(x).tolist()) for x in inputs]
    np.testing.assert_allclose(controller.project(inputs), steps, atol=1e-5)
