"""The selective memory against loops in numpy, its gradients, and what its gates do where they are forced."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mann.controllers import NoControllerConfig
from mann.errors import MannError
from mann.memory import MemoryConfig, SelectiveConfig
from mann.memory.selective import FEATURES
from mann.models import ModelConfig, build_model
from mann.tasks import Classification
from tests.oracles import selective

FEATURES_IN, LABELS, SLOTS, WIDTH, T = 7, 4, 5, 6, 14
NAMES = [name for name, _ in FEATURES]
GATES = ("first", "second", "straight", "nowhere", "reading")
SCORE, FORGET, KEEP = range(3)


def memory(scale=0.1, **fields):
    config = SelectiveConfig(**{"slots": SLOTS, "width": WIDTH, "hidden": 3} | fields)
    module = config.build(0, (FEATURES_IN, LABELS), key=jax.random.key(0))
    keys = jax.random.split(jax.random.key(7), len(GATES))
    for name, key in zip(GATES, keys, strict=True):  # away from the start, where most of them are zero
        here = getattr(module, name)
        noise = scale * jax.random.normal(key, here.shape)
        module = eqx.tree_at(lambda m, name=name: getattr(m, name), module, here + noise)
    return module


def stream(seed=0, steps=T):
    """Features, and labels of which some are null, as at the start of an episode."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(steps, FEATURES_IN)).astype(np.float32)
    labels = np.eye(LABELS, dtype=np.float32)[rng.integers(LABELS, size=steps)]
    labels[::8] = 0
    return jnp.asarray(features), jnp.asarray(labels)


@eqx.filter_jit
def run(module, direct, state):
    def advance(state, step):
        reads, state = module(step, state)
        return state, (reads, state)

    return jax.lax.scan(advance, state, direct)[1]


def weights_of(module):
    names = (*GATES, "strength", "threshold")
    return {name: np.asarray(getattr(module, name), np.float64) for name in names}


def oracle(module, features, labels, encode=None, weights=None, before=None):
    """Reads and states of every step, with what was seen at each."""
    weights = weights or weights_of(module)
    weight, bias = encode or (np.asarray(a, np.float64) for a in (module.encode.weight, module.encode.bias))
    state, found = selective.initial_state(module.slots, module.width, LABELS), []
    for t, (x, label) in enumerate(zip(np.asarray(features), np.asarray(labels), strict=True)):
        raw = x.astype(np.float64) @ weight + bias
        now = raw / np.sqrt(raw @ raw + 1e-6)
        reads, state, seen = selective.step(
            weights,
            now,
            label.astype(np.float64),
            state,
            sees_null=module.sees_null,
            before=before[t] if before else None,
        )
        found.append((reads, state, seen))
    return [list(part) for part in zip(*found, strict=True)]


@pytest.mark.parametrize("fields", [{}, {"sees_null": False}, {"slots": 3}, {"scale": 0.0}])
def test_reads_and_states_are_those_of_the_loops(fields):
    module = memory(**fields)
    features, labels = stream()
    reads, states = run(module, module.project(features, labels), module.initial_state())
    expected, after, seen = oracle(module, features, labels)
    np.testing.assert_allclose(reads, expected, atol=3e-4)
    for name in ("keys", "values", "pairs", "left", "age", "use", "surprise", "similarity", "read_weights"):
        ours = getattr(states, name)
        np.testing.assert_allclose(ours, [getattr(s, name) for s in after], atol=1e-4, err_msg=name)
    chosen = [s.chosen if label.any() else module.slots for s, label in zip(seen, labels, strict=True)]
    np.testing.assert_allclose(states.write_weights, np.eye(module.slots + 1)[chosen][:, :-1], atol=1e-6)


def test_gradients_are_finite_differences_where_the_choice_is_straight_through():
    module = memory(scale=0.05)
    features, labels = stream()
    weighting = np.random.default_rng(1).normal(size=(T, LABELS + 1))

    def total(module):
        reads, _ = run(module, module.project(features, labels), module.initial_state())
        return jnp.sum(reads * jnp.asarray(weighting, jnp.float32))

    gradient = eqx.filter_jit(eqx.filter_grad(total))(module)
    ours = weights_of(gradient) | {
        "weight": np.asarray(gradient.encode.weight),
        "bias": np.asarray(gradient.encode.bias),
    }
    _, _, seen = oracle(module, features, labels)
    base = weights_of(module) | {
        "weight": np.asarray(module.encode.weight, np.float64),
        "bias": np.asarray(module.encode.bias, np.float64),
    }
    names = sorted(base)
    cuts = np.cumsum([np.size(base[name]) for name in names])[:-1]

    def value(numbers):
        parts = {
            name: part.reshape(np.shape(base[name]))
            for name, part in zip(names, np.split(numbers, cuts), strict=True)
        }
        reads, _, _ = oracle(module, features, labels, (parts["weight"], parts["bias"]), parts, seen)
        return float(np.sum(np.array(reads) * weighting))

    start = np.concatenate([np.ravel(base[name]) for name in names])
    slopes = np.concatenate([np.ravel(ours[name]) for name in names])
    step = 1e-6
    for place in np.random.default_rng(2).choice(start.size, 60, replace=False):
        ahead, behind = start.copy(), start.copy()
        ahead[place] += step
        behind[place] -= step
        expected = (value(ahead) - value(behind)) / (2 * step)
        np.testing.assert_allclose(slopes[place], expected, rtol=5e-3, atol=5e-3, err_msg=f"at {place}")


def forced(module, gate, feature, value, **others):
    """A gate that looks at one feature alone."""
    column = np.zeros(len(NAMES), np.float32)
    for name, weight in {feature: value, **others}.items():
        column[NAMES.index(name)] = weight
    straight = module.straight.at[:, gate].set(jnp.asarray(column))
    return eqx.tree_at(lambda m: (m.straight, m.second), module, (straight, jnp.zeros_like(module.second)))


def test_it_starts_by_joining_what_has_the_same_label_and_replaces_the_oldest_when_full():
    module = SelectiveConfig(slots=3, width=WIDTH).build(0, (FEATURES_IN, LABELS), key=jax.random.key(0))
    order = [0, 1, 0, 2, 3, 3]  # the fourth label finds three slots full; that of label 1 is the oldest
    labels = jnp.eye(LABELS)[jnp.array([0, *order])].at[0].set(0)
    features, _ = stream(steps=len(labels))
    _, states = run(module, module.project(features, labels), module.initial_state())
    np.testing.assert_allclose(states.values[-1], np.eye(LABELS)[[0, 3, 2]], atol=0.02)
    np.testing.assert_allclose(states.pairs[-1], [2, 2, 1], atol=0.1)
    keys = np.asarray(module.project(features, labels)[:, :WIDTH])
    np.testing.assert_allclose(states.keys[-1, 0], (keys[0] + keys[2]) / 2, atol=0.02)


def test_a_gate_that_forgets_at_the_null_label_leaves_nothing_to_read():
    module = forced(memory(scale=0.0), FORGET, "no label", 60.0, one=-30.0)
    features, labels = stream()
    _, states = run(module, module.project(features, labels), module.initial_state())
    assert states.left[7][states.pairs[7] > 0].min() > 0.99  # before the null label, all that came is there
    assert states.left[8].sum() < 1e-6
    assert states.read_weights[8].sum() < 1e-3
    blind = forced(memory(scale=0.0, sees_null=False), FORGET, "no label", 60.0, one=-30.0)
    _, states = run(blind, blind.project(features, labels), blind.initial_state())
    assert states.left[8][states.pairs[8] > 0].min() > 0.99


def test_what_contradicts_a_new_pair_can_be_forgotten():
    """The same picture with another label: the old binding goes, and the new one is told."""
    module = forced(memory(scale=0.0), FORGET, "similar, other label", 60.0, one=-30.0)
    features = jnp.tile(stream()[0][:1], (3, 1))
    labels = jnp.eye(LABELS)[jnp.array([0, 0, 1])].at[0].set(0)
    reads, states = run(module, module.project(features, labels), module.initial_state())
    assert np.argmax(reads[1, :LABELS]) == 0
    assert np.argmax(reads[2, :LABELS]) == 1
    np.testing.assert_allclose(sorted(states.left[2]), [0, 0, 0, 0, 1], atol=1e-3)


def test_pairs_are_dropped_where_nowhere_is_best_but_not_while_there_is_room():
    module = memory(scale=0.0)
    module = eqx.tree_at(lambda m: m.nowhere, module, jnp.array([1e4, 0.0, 0.0]))
    module = forced(module, SCORE, "held", -1.0)  # every pair to a slot of its own
    features, labels = stream()
    _, states = run(module, module.project(features, labels), module.initial_state())
    told = int(np.argmax(np.cumsum(np.asarray(labels).any(axis=1)) == SLOTS))  # the step at which it is full
    assert np.count_nonzero(states.pairs[told - 1]) == SLOTS - 1
    assert np.count_nonzero(states.pairs[told]) == SLOTS
    assert not np.any(states.write_weights[told + 1 :])


def test_what_was_forgotten_is_an_empty_slot():
    """Full, then all forgotten at the null label: nothing is familiar, and the next pair finds a place."""
    module = forced(memory(scale=0.0, slots=3), FORGET, "no label", 60.0, one=-30.0)
    module = eqx.tree_at(lambda m: m.nowhere, module, jnp.array([1e4, 0.0, 0.0]))
    labels = jnp.eye(LABELS)[jnp.array([0, 0, 1, 2, 3, 0, 3])].at[jnp.array([0, 5])].set(0)
    features, _ = stream(steps=len(labels))
    _, states = run(module, module.project(features, labels), module.initial_state())
    np.testing.assert_allclose(states.write_weights.sum(axis=1), [0, 1, 1, 1, 0, 0, 1], atol=1e-6)
    at = [module.familiarity(jax.tree.map(lambda leaf, t=t: leaf[t], states)) for t in (0, 4, 5)]
    assert at[0] == at[2] == -1 < at[1]


def test_labels_are_never_mixed_in_a_slot():
    """Also where all pairs go to the same slot, and its gate would keep all that it holds."""
    module = forced(memory(scale=0.0), SCORE, "held", 60.0)
    column = jnp.zeros(len(NAMES)).at[NAMES.index("one")].set(60.0)
    module = eqx.tree_at(lambda m: m.straight, module, module.straight.at[:, KEEP].set(column))
    labels = jnp.eye(LABELS)[jnp.array([0, 2, 2, 1])].at[0].set(0)
    features, _ = stream(steps=len(labels))
    _, states = run(module, module.project(features, labels), module.initial_state())
    np.testing.assert_allclose(states.pairs[:, 0], [0, 1, 2, 1], atol=0.02)
    np.testing.assert_allclose(states.values[3, 0], np.eye(LABELS)[1], atol=1e-4)
    np.testing.assert_allclose(states.keys[3, 0], module.project(features, labels)[2, :WIDTH], atol=1e-4)


def test_an_empty_memory_has_gradients_where_nowhere_is_best():
    module = memory(scale=0.0)
    module = eqx.tree_at(lambda m: m.nowhere, module, jnp.array([1e4, 0.0, 0.0]))
    features, labels = stream()

    def total(module):
        return jnp.sum(run(module, module.project(features, labels), module.initial_state())[0])

    assert np.any(np.asarray(eqx.filter_grad(total)(module).encode.weight))


def test_a_wiped_memory_has_finite_gradients():
    module = memory()
    features, labels = stream(steps=2)

    def total(module, features):
        reads, _ = run(module, module.project(features, jnp.zeros_like(labels)), module.initial_state())
        return jnp.sum(reads)

    gradients = eqx.filter_grad(lambda both: total(*both))((module, features))
    for leaf in jax.tree.leaves(eqx.filter(gradients, eqx.is_array)):
        assert np.all(np.isfinite(leaf))


def test_a_network_passes_on_what_it_reads_and_works_without_a_controller():
    config = ModelConfig(
        controller=NoControllerConfig(),
        memory=SelectiveConfig(slots=SLOTS, width=WIDTH),
        reads_to_controller=False,
    )
    model = build_model(config, Classification(classes=LABELS), key=jax.random.key(0))
    inputs = jnp.asarray(np.random.default_rng(0).uniform(size=(3, 400)), jnp.float32)
    inputs = inputs.at[2].set(inputs[0])
    labels = jnp.eye(LABELS)[jnp.array([0, 2, 1])].at[0].set(0)
    outputs, state, trace = model.unroll(inputs, labels, trace=True)
    assert np.argmax(outputs[2]) == 2  # the label that came after the same picture
    assert trace.read_weights.shape == trace.write_weights.shape == (3, 1, SLOTS)
    assert float(model.memory.familiarity(state.memory)) == pytest.approx(1, abs=1e-3)


def test_it_is_known_by_name_and_refuses_what_cannot_be_meant():
    assert MemoryConfig.members["selective"] is SelectiveConfig
    for fields, words in [
        ({"heads": 2}, "one read head"),
        ({"initial_strength": 0.0}, "must be positive"),
        ({"initial_threshold": 2.0}, "between -1 and 1"),
        ({"hidden": 0}, "hidden units"),
    ]:
        with pytest.raises(MannError, match=words):
            SelectiveConfig(**fields)
    assert SelectiveConfig().smallest().slots == 8
