"""What people would take instead: each against loops in numpy, whole episodes at once against the scan."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mann.cell import Scan
from mann.controllers import LSTMConfig, NoControllerConfig
from mann.errors import MannError
from mann.memory import AttentionConfig, KeyValueConfig, LRUAConfig, MatchingConfig, PrototypesConfig
from mann.models import ModelConfig, build_model, tile_state
from mann.recurrences import Apart, choose_recurrence
from mann.tasks import Classification, ManyThings

FEATURES, LABELS, QUERY, T = 7, 6, 3, 14
MEMORIES = {
    "prototypes": PrototypesConfig(slots=4, width=5, initial_radius=0.3),
    "matching": MatchingConfig(slots=5, width=6),
    "attention": AttentionConfig(slots=5, width=6, heads=2, layers=2),
}


def stream(seed=0):
    """Features, and labels of which some are null. Six labels in four slots: some are opened twice."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(T, FEATURES)).astype(np.float32)
    labels = np.eye(LABELS, dtype=np.float32)[rng.integers(LABELS, size=T)]
    labels[[0, 5]] = 0
    return features, labels


def linear(layer, x):
    if layer is None:  # the features as they are
        return x
    return x @ np.asarray(layer.weight, np.float64) + np.asarray(layer.bias, np.float64)


def unit(x):
    return x / np.sqrt((x**2).sum(-1, keepdims=True) + 1e-6)


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def prototypes_oracle(module, features, labels):
    """A dictionary of lists, in the order in which classes were opened."""
    classes, waiting, told = {}, None, []
    scale, radius, sharpness = (float(x) for x in (module.scale, module.radius, module.sharpness))
    for x, label in zip(features.astype(np.float64), labels, strict=True):
        if label.any():
            name = tuple(label)
            if name not in classes:
                if len(classes) == module.slots:
                    del classes[next(iter(classes))]
                classes[name] = []
            classes[name].append(waiting)
        now = linear(module.keys, x)
        if not classes:
            told.append([*np.full(LABELS, np.log(1e-9)), 10.0])
        else:
            distances = np.exp(scale) * np.array(
                [((now - np.mean(c, axis=0)) ** 2).sum() for c in classes.values()]
            )
            blended = softmax(-distances) @ np.array(list(classes))
            new = np.exp(sharpness) * (distances.min() - radius)
            told.append([*np.log(blended + 1e-9), new])
        waiting = now
    return np.array(told)


def matching_oracle(module, features, labels):
    pairs, waiting, told = [], None, []
    beta, tau, sharpness = (float(x[0]) for x in (module.strength, module.threshold, module.sharpness))
    for x, label in zip(features.astype(np.float64), labels, strict=True):
        if label.any():
            pairs = [*pairs, (waiting, label)][-module.slots :]
        now = unit(linear(module.keys, x))
        if not pairs:
            told.append([*np.full(LABELS, np.log(1e-9)), 10.0])
        else:
            cosines = np.array([key @ now for key, _ in pairs])
            blended = softmax(np.exp(beta) * cosines) @ np.array([value for _, value in pairs])
            told.append([*np.log(blended + 1e-9), np.exp(sharpness) * (tau - cosines.max())])
        waiting = now
    return np.array(told)


def attention_oracle(module, features, labels):
    """Every step anew over the steps that its ring still held at each layer."""

    def norm(x):
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)

    embedded = linear(module.embedding, norm(features.astype(np.float64)))
    before = np.concatenate([np.zeros((1, module.width)), embedded[:-1]])
    tokens = linear(module.token, np.concatenate([embedded, before, labels], axis=1))

    for layer in module.layers:
        q, k, v = np.split(linear(layer.attend, norm(tokens)), 3, axis=1)
        q, k, v = (a.reshape(T, module.heads, -1) for a in (q, k, v))
        q, k = unit(q), unit(k)
        after = []
        for t in range(T):
            seen = slice(max(0, t + 1 - module.slots), t + 1)
            heads = []
            for h in range(module.heads):
                weights = softmax(np.exp(float(layer.strength[h])) * (k[seen, h] @ q[t, h]))
                heads.append(weights @ v[seen, h])
            x = tokens[t] + linear(layer.merge, np.concatenate(heads))
            after.append(x + linear(layer.narrow, np.maximum(linear(layer.widen, norm(x)), 0)))
        tokens = np.array(after)
    return tokens


UNPROJECTED = {"prototypes of features": PrototypesConfig(width=FEATURES, projected=False)}
ORACLES = {
    "prototypes": prototypes_oracle,
    "prototypes of features": prototypes_oracle,
    "matching": matching_oracle,
    "attention": attention_oracle,
}


@pytest.mark.parametrize("kind", [*MEMORIES, *UNPROJECTED])
@pytest.mark.parametrize("slots", [4, 32])
def test_what_it_tells_is_what_loops_tell(kind, slots):
    config = dataclasses.replace((MEMORIES | UNPROJECTED)[kind], slots=slots)
    module = config.build(QUERY, (FEATURES, LABELS), key=jax.random.key(0))
    features, labels = stream()
    direct = module.project(jnp.asarray(features), jnp.asarray(labels))
    at_once, _ = module.unroll(direct, module.initial_state())
    np.testing.assert_allclose(at_once, ORACLES[kind](module, features, labels), atol=5e-4)


@pytest.mark.parametrize("kind", MEMORIES)
def test_whole_episodes_at_once_are_the_scan_with_its_gradients(kind):
    """From a wiped memory, and from one that is already full of another episode."""
    config = ModelConfig(controller=NoControllerConfig(), memory=MEMORIES[kind])
    model = build_model(config, Classification(classes=LABELS, length=T), key=jax.random.key(0))
    assert isinstance(choose_recurrence(model.cell), Apart)
    rng = np.random.default_rng(0)
    inputs = jnp.asarray(rng.uniform(size=(2, T, 400)), jnp.float32)
    labels = jnp.asarray(np.stack([stream(seed)[1] for seed in (1, 2)]))
    state = tile_state(model.initial_state(), 2)
    gradients = {
        recurrence: eqx.filter_jit(eqx.filter_grad(lambda m, s, r=recurrence: run(r, m, s), has_aux=True))
        for recurrence in (Apart(), Scan())
    }

    def run(recurrence, model, state):
        outputs, last = recurrence(model.cell, model.project(inputs, labels), state)
        return jnp.sum(jnp.sin(outputs)), (outputs, last)

    for _ in range(2):
        results = [gradient(model, state) for gradient in gradients.values()]
        for ours, theirs in zip(jax.tree.leaves(results[0]), jax.tree.leaves(results[1]), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=5e-4)
        state = results[0][1][1]
    trace = model.memory.trace(jax.tree.map(lambda leaf: leaf[0], state.memory))
    np.testing.assert_allclose(jnp.sum(trace.read_weights, axis=-1), 1, atol=1e-5)
    assert trace.write_weights.sum() == 1


@pytest.mark.parametrize("kind", ["prototypes", "matching"])
def test_the_output_layer_starts_by_passing_on_what_the_memory_tells(kind):
    config = ModelConfig(controller=NoControllerConfig(), memory=MEMORIES[kind])
    model = build_model(config, Classification(classes=LABELS, length=T), key=jax.random.key(0))
    told = jnp.arange(model.memory.read_size, dtype=jnp.float32)
    np.testing.assert_array_equal(model.readout(told), told[:LABELS])


@pytest.mark.parametrize("rules_out", [False, True])
def test_keys_and_values_start_by_saying_what_they_read(rules_out):
    """The logarithm of the blended label, and new where "none of them" has more than half of the softmax."""
    memory = KeyValueConfig(slots=4, width=2, heads=2, rules_out=rules_out)
    config = ModelConfig(controller=LSTMConfig(hidden=3), memory=memory, reads_to_controller=False)
    readout = build_model(config, ManyThings(), key=jax.random.key(0)).readout
    rng = np.random.default_rng(0)
    others = 26 if rules_out else 1  # the highest similarity, and labels in use
    log, none = rng.normal(size=(2, 25)), np.array([0.9, 0.4])
    heads = [np.concatenate([rng.normal(size=25), log[h], none[h : h + 1], [0.3] * others]) for h in (0, 1)]
    outputs = readout(jnp.asarray(np.concatenate([rng.normal(size=3), *heads]), jnp.float32))
    in_use = 4 * 0.3 if rules_out else 0  # each is as unlikely as it is told to be
    np.testing.assert_allclose(outputs[:-1], log.mean(0) - in_use, atol=1e-5)
    np.testing.assert_allclose(outputs[-1], 8 * none.mean() - 4, atol=1e-5)


def test_a_memory_that_is_asked_needs_a_controller():
    with pytest.raises(MannError, match="'lrua' is asked by a controller"):
        ModelConfig(controller=NoControllerConfig(), memory=LRUAConfig())
    assert NoControllerConfig(hidden=3).hidden == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PrototypesConfig(heads=2), "one embedding"),
        (lambda: PrototypesConfig(initial_scale=0.0), "must be positive"),
        (lambda: PrototypesConfig(initial_radius=float("nan")), "finite"),
        (lambda: MatchingConfig(heads=2), "one embedding"),
        (lambda: MatchingConfig(rules_out=True), "rules out nothing"),
        (lambda: AttentionConfig(width=10, heads=4), "multiple"),
        (lambda: AttentionConfig(layers=0), "layers must be at least 1"),
        (lambda: AttentionConfig(initial_strength=-1.0), "must be positive"),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(MannError, match=message):
        make()
