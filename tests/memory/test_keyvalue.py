"""The key–value memory against loops in numpy, whole episodes at once against step by step."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mann.cell import Scan
from mann.controllers import LSTMConfig
from mann.errors import MannError
from mann.memory import KeyValue, KeyValueConfig
from mann.models import ModelConfig, build_model, tile_state
from mann.recurrences import Apart, choose_recurrence
from mann.tasks import Classification

FEATURES, LABELS, QUERY, T = 7, 4, 3, 11


def memory(**fields):
    config = KeyValueConfig(**{"slots": 5, "width": 6, "heads": 2} | fields)
    return config.build(QUERY, (FEATURES, LABELS), key=jax.random.key(0))


def stream(seed=0, steps=T):
    """Features, and labels of which some are null, as at the start of an episode."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(steps, FEATURES)).astype(np.float32)
    labels = np.eye(LABELS, dtype=np.float32)[rng.integers(LABELS, size=steps)]
    labels[[0, 4]] = 0
    return jnp.asarray(features), jnp.asarray(labels)


def oracle(module, features, labels):
    """A list of pairs, in float64, one step after the other."""
    layer = module.keys
    weight, bias = (np.eye(FEATURES), 0.0) if layer is None else map(np.asarray, (layer.weight, layer.bias))
    beta, tau = np.exp(np.asarray(module.strength, np.float64)), np.asarray(module.threshold, np.float64)
    pairs, waiting, told = [], None, []
    for x, label in zip(np.asarray(features, np.float64), np.asarray(labels, np.float64), strict=True):
        if label.any():
            pairs = [*pairs, (waiting, label)][-module.slots :]
        raw = (x @ weight + bias).reshape(module.heads, module.width)
        now = raw / np.sqrt((raw**2).sum(1, keepdims=True) + 1e-6)
        reads = []
        for h in range(module.heads):
            similar = np.array([pair[0][h] @ now[h] for pair in pairs])
            best = similar.max(initial=-1)
            near = np.argsort(-similar)[: module.neighbours or None]
            odds = np.exp(beta[h] * similar[near])
            if module.balanced:
                odds /= [sum((other[1] == pairs[i][1]).all() for other in pairs) for i in near]
            none = np.exp(beta[h] * tau[h])
            blended = sum((o * pairs[i][1] for o, i in zip(odds, near, strict=True)), np.zeros(LABELS))
            blended = blended / (odds.sum() + none)
            none = none / (odds.sum() + none)
            reads += [*blended, *np.log(blended + 1e-4), none, best]
            if module.rules_out:
                reads += [none * any(pair[1][c] for pair in pairs) for c in range(LABELS)]
        told.append(reads)
        waiting = now
    return np.array(told)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"slots": 64},
        {"slots": 64, "neighbours": 2},
        {"heads": 1},
        {"slots": 3, "rules_out": True},
        {"neighbours": 1, "rules_out": True},
        {"heads": 1, "width": FEATURES, "projected": False},
        {"balanced": True},
        {"balanced": True, "slots": 64},
        {"balanced": True, "slots": 2, "neighbours": 1},
    ],
)
def test_reads_are_those_of_a_list_of_pairs(fields):
    module = memory(**fields)
    features, labels = stream()
    direct, state, told = module.project(features, labels), module.initial_state(), []
    for step in direct:
        reads, state = module(jnp.concatenate([jnp.full(QUERY, 9.0), step]), state)
        told.append(reads)
    expected = oracle(module, features, labels)
    np.testing.assert_allclose(told, expected, atol=2e-4)
    at_once, _ = module.unroll(direct, module.initial_state())
    np.testing.assert_allclose(at_once, expected, atol=2e-4)


def test_features_that_are_the_keys_must_be_as_many():
    with pytest.raises(MannError, match="7 features cannot be keys of 12 numbers"):
        memory(projected=False)
    assert KeyValueConfig(width=FEATURES, heads=1, projected=False).smallest().projected


def test_all_neighbours_are_the_dense_memory():
    features, labels = stream()
    dense, sparse = memory(slots=9), memory(slots=9, neighbours=9)
    direct = dense.project(features, labels)
    for ours, theirs in zip(
        dense.unroll(direct, dense.initial_state()),
        sparse.unroll(direct, sparse.initial_state()),
        strict=True,
    ):
        jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def network(**fields):
    config = ModelConfig(
        controller=LSTMConfig(hidden=8),
        memory=KeyValueConfig(**{"slots": 5, "width": 6, "heads": 2} | fields),
        reads_to_controller=False,
    )
    return build_model(config, Classification(classes=LABELS, length=T), key=jax.random.key(0))


@pytest.mark.parametrize(
    "fields",
    [{}, {"slots": 64}, {"slots": 64, "neighbours": 3}, {"balanced": True}, {"balanced": True, "slots": 64}],
)
def test_whole_episodes_at_once_are_the_scan_with_its_gradients(fields):
    """From a wiped memory and from one that is already full of another episode."""
    model = network(**fields)
    assert isinstance(choose_recurrence(model.cell), Apart)
    rng = np.random.default_rng(0)
    inputs = jnp.asarray(rng.uniform(size=(3, T, 400)), jnp.float32)
    labels = jnp.asarray(np.eye(LABELS, dtype=np.float32)[rng.integers(LABELS, size=(3, T))]).at[:, 0].set(0)
    state = tile_state(model.initial_state(), 3)
    for _ in range(2):

        def run(recurrence, model, state):
            outputs, last = recurrence(model.cell, model.project(inputs, labels), state)
            return jnp.sum(jnp.sin(outputs)), (outputs, last)

        results = []
        for recurrence in (Apart(), Scan()):
            gradient = eqx.filter_grad(lambda model, r=recurrence, s=state: run(r, model, s), has_aux=True)
            results.append(gradient(model))
        for ours, theirs in zip(jax.tree.leaves(results[0]), jax.tree.leaves(results[1]), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=2e-4)
        state = results[0][1][1]


@pytest.mark.parametrize("most", [1, 2 * T * 2 * (5 + T)])  # one episode at a time; two, and one that is left
def test_large_episodes_wait_for_one_another(monkeypatch, most):
    config = ModelConfig(memory=KeyValueConfig(slots=5, width=6, heads=2), reads_to_controller=False)
    model = build_model(config, Classification(classes=LABELS), key=jax.random.key(0))
    rng = np.random.default_rng(0)
    pictures = jnp.asarray(rng.uniform(size=(3, T, 400)), jnp.float32)
    labels = jnp.asarray(np.eye(LABELS)[rng.integers(LABELS, size=(3, T))], jnp.float32)
    expected, state, _ = model.unroll_batch(pictures, labels)
    monkeypatch.setattr("mann.recurrences.MOST_AT_ONCE", most)
    got, last, _ = model.unroll_batch(pictures, labels)
    np.testing.assert_allclose(got, expected, atol=1e-5)
    np.testing.assert_allclose(last.memory.keys, state.memory.keys, atol=1e-5)


def test_a_controller_that_is_fed_the_reads_runs_step_by_step():
    config = ModelConfig(controller=LSTMConfig(hidden=8), memory=KeyValueConfig(slots=5, width=6))
    model = build_model(config, Classification(classes=LABELS, length=T), key=jax.random.key(0))
    assert isinstance(choose_recurrence(model.cell), Scan)


def test_an_empty_memory_says_none_of_them_and_has_finite_gradients():
    module = memory()

    def told(module, x):
        reads, _ = module(jnp.concatenate([jnp.zeros(QUERY), x, jnp.zeros(LABELS)]), module.initial_state())
        return jnp.sum(reads), reads.reshape(2, -1)

    gradient, reads = eqx.filter_grad(told, has_aux=True)(module, jnp.zeros(12))
    np.testing.assert_allclose(reads[:, -2:], [[1, -1], [1, -1]])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(eqx.filter(gradient, eqx.is_array)))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"neighbours": 6}, "neighbours must be at most 5"),
        ({"neighbours": -1}, "neighbours must be at least 0"),
        ({"initial_strength": 0.0}, "must be positive"),
        ({"initial_threshold": 1.5}, "between -1 and 1"),
    ],
)
def test_what_cannot_be_is_refused(fields, message):
    with pytest.raises(MannError, match=message):
        memory(**fields)


def test_it_is_a_memory_by_name():
    assert isinstance(memory(), KeyValue)
    assert KeyValueConfig.members["keyvalue"] is KeyValueConfig
