"""Muon against numpy's singular values and against Optax."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mann.training.muon import COEFFICIENTS, MOMENTUM, ROOT_MEAN_SQUARE, STEPS, muon, orthogonalise

RATE = 0.03


def orthogonal(matrix):
    """By singular values: the polynomial acts on each of them alone."""
    u, s, v = np.linalg.svd(matrix / np.linalg.norm(matrix), full_matrices=False)
    a, b, c = COEFFICIENTS
    for _ in range(STEPS):
        s = a * s + b * s**3 + c * s**5
    return u * s @ v


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([(3, 9, 9), (2, 12, 8), (1, 8, 20)]), st.integers(0, 2**31 - 1))
def test_singular_values_become_about_equal(shape, seed):
    matrices = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    got = orthogonalise(jnp.asarray(matrices))
    np.testing.assert_allclose(got, [orthogonal(matrix.astype(np.float64)) for matrix in matrices], atol=2e-5)
    before, after = (np.linalg.svd(m, compute_uv=False) for m in (matrices, np.asarray(got)))
    assert np.all(after.max(-1) / after.mean(-1) < before.max(-1) / before.mean(-1))


@jax.numpy_dtype_promotion("standard")
def test_steps_are_those_of_the_definition():
    """Nesterov momentum, made orthogonal gate by gate; the rest is Adam's. In numpy."""
    rng = np.random.default_rng(0)
    weights = {
        "recurrent": rng.normal(size=(10, 32)),
        "narrow": rng.normal(size=(10, 4)),
        "bias": np.ones(10),
    }
    weights = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), weights)
    adam = optax.adamw(RATE, weight_decay=0.1)
    blocks = {"recurrent": 4, "narrow": 1, "bias": 0}
    rule = muon(RATE, 0.1, blocks, devices=1, others=adam)
    state, others = rule.init(weights), adam.init(weights)
    momentum = np.zeros((10, 32))
    for _ in range(3):
        gradient = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32), weights)
        changes, state = rule.update(gradient, state, weights)
        expected, others = adam.update(gradient, others, weights)
        slope = np.asarray(gradient["recurrent"], np.float64)
        momentum = MOMENTUM * momentum + (1 - MOMENTUM) * slope
        ahead = MOMENTUM * momentum + (1 - MOMENTUM) * slope
        gates = [orthogonal(gate) for gate in np.split(ahead, 4, axis=1)]
        step = ROOT_MEAN_SQUARE * np.sqrt(10) * np.concatenate(gates, axis=1) + 0.1 * weights["recurrent"]
        np.testing.assert_allclose(changes["recurrent"], -RATE * step, atol=1e-5)
        np.testing.assert_allclose(changes["narrow"], expected["narrow"], atol=1e-7)
        np.testing.assert_allclose(changes["bias"], expected["bias"], atol=1e-7)


@jax.numpy_dtype_promotion("standard")
def test_what_layers_call_plain_is_left_to_the_others():
    weights = {"inner": jnp.ones((9, 8)), "readout": jnp.ones((9, 8))}
    slope = jnp.asarray(np.random.default_rng(0).normal(size=(9, 8)), jnp.float32)
    rule = muon(RATE, 0.0, {"inner": 1, "readout": 0}, devices=1, others=optax.sgd(1.0))
    changes, _ = rule.update({"inner": slope, "readout": slope}, rule.init(weights), weights)
    np.testing.assert_allclose(changes["readout"], -slope)
    assert np.abs(changes["inner"] + slope).max() > 0.1


@jax.numpy_dtype_promotion("standard")
def test_whole_matrices_agree_with_another_implementation():
    """Optax has Muon, too: with as many steps and whole matrices, the first change is the same.

    Later ones are not, since Optax corrects the bias of the momentum.
    """
    weights = jnp.asarray(np.random.default_rng(0).normal(size=(12, 20)), jnp.float32)
    gradient = jnp.asarray(np.random.default_rng(1).normal(size=(12, 20)), jnp.float32)
    ours = muon(RATE, 0.0, 1, devices=1, others=optax.identity())
    theirs = optax.contrib.muon(RATE, ns_steps=STEPS, consistent_rms=ROOT_MEAN_SQUARE)
    got, _ = ours.update(gradient, ours.init(weights), weights)
    wanted, _ = theirs.update(gradient, theirs.init(weights), weights)
    np.testing.assert_allclose(got, wanted, atol=1e-5)


@pytest.mark.parametrize("count", [3, 4])
def test_devices_share_the_blocks(count):
    """Two devices, with a number of blocks that can be shared and one that cannot."""
    mesh = jax.make_mesh((2,), ("batch",), devices=jax.devices()[:2])
    weights = jnp.asarray(np.random.default_rng(0).normal(size=(9, 8 * count)), jnp.float32)
    alone, shared = (muon(RATE, 0.0, count, devices=devices, others=optax.identity()) for devices in (1, 2))
    spec = jax.sharding.PartitionSpec()
    change = jax.shard_map(
        lambda weights: shared.update(weights, shared.init(weights), weights)[0],
        mesh=mesh,
        in_specs=spec,
        out_specs=spec,
        check_vma=False,
    )
    expected, _ = alone.update(weights, alone.init(weights), weights)
    np.testing.assert_allclose(jax.jit(change)(weights), expected, atol=1e-6)
