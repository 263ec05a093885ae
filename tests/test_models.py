"""Whole networks: against the oracles, step by step against at once, and no look into the future."""

import dataclasses
import functools
import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import signal

from mann.cell import Scan
from mann.controllers import FeedForwardConfig, LSTMConfig
from mann.data.images import PictureFormat
from mann.encoders import ConvConfig, Encoder, MLPConfig
from mann.episodes import time_offset
from mann.errors import MannError
from mann.memory import LRUA, PAPER_MEMORY, LRUAConfig, NoMemory, NTMConfig
from mann.models import PAPER_MODEL, Model, ModelConfig, build_model
from mann.native import Native
from mann.parts import from_dict
from mann.tasks import Classification, Regression
from tests.networks import network
from tests.oracles import lrua, lstm, ntm
from tests.oracles.lrua import linear

H, M, W, R = 8, 10, 5, 2
CLASSES, T = 3, 6
TASK = Classification(classes=CLASSES, length=T)
SIZES = {"hidden": H, "slots": M, "width": W, "heads": R, "maps": 4}
SMALL = network(**SIZES)
SLOT_SIZES = ("slots", "width", "heads")
COMBINATIONS = list(itertools.product(["lstm", "feedforward"], ["lrua", "ntm", "none"], ["none", "conv"]))


# Compiled once for each combination, because all tests use the same shapes.
step = eqx.filter_jit(lambda model, x, label, state: model.step(x, label, state))
unroll = eqx.filter_jit(
    lambda model, inputs, labels, state: model.unroll(inputs, labels, state, trace=model.memory.slots > 0)
)
unroll_many = eqx.filter_jit(lambda model, inputs, labels: jax.vmap(model.unroll)(inputs, labels))
unroll_batch = eqx.filter_jit(lambda model, *arguments: model.unroll_batch(*arguments))


def ways(model):
    """The different programs that may run a batch: the scan of JAX, and the native kernel where there is one."""
    return [unroll_many, unroll_batch] if Native().supports(model.cell) else [unroll_many]


def shape_of(config, task=TASK):
    """A network without numbers, and without the time it takes to draw them."""
    return eqx.filter_eval_shape(build_model, config, task, key=jax.random.key(0))


def build(task=TASK, dtype=np.float32, **fields):
    """A network whose weights *and biases* are all at work."""
    rng = np.random.default_rng(0)

    def fill(leaf):
        scale = 1.5 / np.sqrt(leaf.shape[0]) if len(leaf.shape) == 2 else 0.5
        return jnp.asarray(rng.normal(size=leaf.shape) * scale, dtype)

    return jax.tree.map(fill, shape_of(network(**SIZES, **fields), task))


def input_size(task):
    """Numbers in x_t."""
    return math.prod(task.input_shape(PictureFormat()))


def stream(task=TASK, steps=T, seed=0):
    """Random inputs and labels."""
    rng = np.random.default_rng(seed)
    inputs = rng.uniform(size=(steps, input_size(task)))
    labels = np.eye(task.label_size)[rng.integers(task.label_size, size=steps)]
    return inputs.astype(np.float32), labels.astype(np.float32)


def previous(targets):
    """y_{t−1}: null, y_1, …, y_{T−1}, along the second to last axis."""
    return np.concatenate([np.zeros_like(targets[..., :1, :]), targets[..., :-1, :]], axis=-2)


def changed_from(values, garbage):
    """Episode t of the batch is changed from step t on."""
    changed = values.copy()
    for t in range(T):
        changed[t, t:] += np.float32(garbage)
    return changed


def batch():
    streams = [stream(seed=seed) for seed in range(T)]
    return tuple(np.stack(parts) for parts in zip(*streams, strict=True))


def walk(model, inputs, labels, state):
    """One step at a time: all outputs and all states."""
    outputs, states = [], []
    for x, label in zip(inputs, labels, strict=True):
        output, state = step(model, x, label, state)
        outputs.append(output)
        states.append(state)
    return np.stack(outputs), states


def stack(trees):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def assert_same_tree(actual, expected, **tolerance):
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for left, right in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(left, right, **tolerance)


@pytest.fixture(scope="module", params=COMBINATIONS, ids="-".join)
def model(request):
    controller, memory, encoder = request.param
    return build(controller=controller, memory=memory, encoder=encoder)


# Every combination of controller, memory and encoder


def test_unroll_and_its_trace_equal_a_loop_of_steps(model):
    inputs, labels = stream()
    first = model.initial_state()
    outputs, last, trace = unroll(model, inputs, labels, first)
    expected, states = walk(model, inputs, labels, first)
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    assert_same_tree(last, states[-1], atol=1e-5)
    if isinstance(model.memory, NoMemory):
        with pytest.raises(MannError, match="no memory to trace"):
            model.unroll(jnp.asarray(inputs), jnp.asarray(labels), trace=True)
    else:
        seen = [model.memory.trace(state.memory) for state in states]
        assert_same_tree(trace, stack(seen), atol=1e-5)


def test_batch_equals_one_episode_at_a_time(model):
    inputs, labels = batch()
    outputs, states, _ = unroll_batch(model, inputs, labels)
    singles = [unroll(model, *episode, model.initial_state()) for episode in zip(inputs, labels, strict=True)]
    np.testing.assert_allclose(outputs, stack([single[0] for single in singles]), atol=1e-5)
    assert_same_tree(states, stack([single[1] for single in singles]), atol=1e-5)


@pytest.mark.parametrize("garbage", [0.5, float("nan")])
def test_label_of_a_step_reaches_no_output_before_the_next_step(model, garbage):
    """Bit for bit: y_t and all later labels may be anything, the outputs up to and including t stay the same."""
    inputs, targets = batch()
    changed = changed_from(targets, garbage)
    for run in ways(model):
        before, after = (np.asarray(run(model, inputs, previous(labels))[0]) for labels in (targets, changed))
        for t in range(T):
            np.testing.assert_array_equal(after[t, : t + 1], before[t, : t + 1])
            assert np.all(np.any(after[t, t + 1 :] != before[t, t + 1 :], axis=1))


def test_input_of_a_step_reaches_no_earlier_output(model):
    inputs, targets = batch()
    changed = changed_from(inputs, 0.5)
    for run in ways(model):
        before, after = (np.asarray(run(model, x, previous(targets))[0]) for x in (inputs, changed))
        for t in range(T):
            np.testing.assert_array_equal(after[t, :t], before[t, :t])
            assert np.all(np.any(after[t, t:] != before[t, t:], axis=1))


def test_only_a_model_with_a_past_remembers_an_earlier_label(model):
    inputs, targets = batch()
    changed = targets.copy()
    changed[:, 0] += 1
    forgets = isinstance(model.memory, NoMemory) and not jax.tree.leaves(model.initial_state().controller)
    for run in ways(model):
        before, after = (np.asarray(run(model, inputs, previous(labels))[0]) for labels in (targets, changed))
        assert np.any(after[:, 2:] != before[:, 2:]) != forgets


# Against the oracles


def float64(tree):
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


def oracle_outputs(model, config, inputs, labels):
    """The whole network in plain loops: (x_t, y_{t−1}) and r_{t−1} → h_t → r_t → linear of (h_t, r_t)."""
    controller, memory = float64(model.controller), float64(model.memory)
    hidden, cell, reads = [0.0] * H, [0.0] * H, [0.0] * (R * W)
    state = {"lrua": lrua, "ntm": ntm}[config.memory.kind].initial_state(M, W, R)
    outputs = []
    for x, label in zip(float64(inputs), float64(labels), strict=True):
        together = [*x.tolist(), *label.tolist()]
        into_controller = reads if config.reads_to_controller else None
        first_layer = (controller.inputs.weight, controller.inputs.bias)
        if config.controller.kind == "lstm":
            hidden, cell = lstm.step(
                first_layer,
                controller.recurrent,
                controller.from_reads,
                together,
                into_controller,
                hidden,
                cell,
            )
        else:
            z = np.array(linear(first_layer, together))
            if into_controller is not None:
                z = z + np.array(linear((controller.from_reads, np.zeros(H)), into_controller))
            hidden = np.tanh(z).tolist()
        names = {
            "lrua": ["keys", "gates", "vectors", "strengths"],
            "ntm": ["keys", "addressing", "erase", "add"],
        }
        layers = {
            name: (getattr(memory, name).weight, getattr(memory, name).bias)
            for name in names[config.memory.kind]
            if getattr(memory, name) is not None
        }
        query = cell if config.query == "cell" else hidden
        if config.memory.kind == "lrua":
            fields = dataclasses.asdict(config.memory)
            fields["gamma"] = fields.pop("decay")
            for name in ("initial_strength", "slots", "width"):  # in the bias, in the state, in the keys
                del fields[name]
            reads, state = lrua.step(layers, query, state, **fields)
        else:
            reads, state = ntm.step(layers, query, state, heads=R, initial_strength=1.0)
        outputs.append(linear(float64((model.readout.weight, model.readout.bias)), [*hidden, *reads]))
    return np.array(outputs)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"query": "cell"},
        {"reads_to_controller": False},
        {"lrua": PAPER_MEMORY},
        {"controller": "feedforward"},
        {"controller": "feedforward", "reads_to_controller": False},
        {"memory": "ntm"},
        {"memory": "ntm", "query": "cell"},
    ],
    ids=str,
)
def test_whole_network_equals_the_oracle(fields):
    task = Regression(dimensions=3, length=T)
    model = build(task=task, **fields)
    rng = np.random.default_rng(0)
    inputs, labels = (jnp.asarray(rng.normal(size=(T, n)), jnp.float32) for n in (3, 1))
    outputs, _ = walk(model, inputs, labels, model.initial_state())
    expected = oracle_outputs(model, network(**SIZES, **fields), inputs, labels)
    np.testing.assert_allclose(outputs, expected, atol=2e-4)


@pytest.mark.parametrize(
    ("controller", "memory"),
    [("lstm", "lrua"), ("feedforward", "ntm"), ("lstm", "none")],
)
def test_gradient_of_the_whole_network_reaches_every_parameter_and_equals_finite_differences(
    controller, memory
):
    task, width = Regression(length=T), 1e-6
    with jax.enable_x64(True):
        model = build(task, np.float64, controller=controller, memory=memory)
        first = jax.tree.map(lambda leaf: leaf.astype(np.float64), model.initial_state())
        parameters, static = eqx.partition(model, eqx.is_array)
        rng = np.random.default_rng(0)
        inputs = jnp.asarray(rng.normal(size=(T, input_size(task))))
        targets = jnp.asarray(rng.normal(size=(T, task.label_size)))

        @functools.partial(jax.jit)
        @jax.value_and_grad
        def loss(parameters):
            outputs = eqx.combine(parameters, static).unroll(inputs, time_offset(targets), first).outputs
            return jnp.sum(task.output.nll(outputs, targets))

        gradient = loss(parameters)[1]
        leaves, structure = jax.tree.flatten(parameters)
        for number, (leaf, slope) in enumerate(zip(leaves, jax.tree.leaves(gradient), strict=True)):
            assert slope.dtype == jnp.float64
            assert np.any(slope)
            direction = rng.normal(size=leaf.shape)
            ends = [
                loss(structure.unflatten([*leaves[:number], leaf + move * direction, *leaves[number + 1 :]]))
                for move in (width, -width)
            ]
            expected = float(ends[0][0] - ends[1][0]) / (2 * width)
            assert float(np.sum(slope * direction)) == pytest.approx(expected, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("memory", ["lrua", "ntm"])
def test_gradients_stay_finite_over_an_episode_of_1000_steps(memory):
    task = Regression(length=1000)
    model = build(task, memory=memory)
    inputs = jax.random.uniform(jax.random.key(0), (1000, 1), minval=-2.0, maxval=2.0)
    targets = jnp.sin(3 * inputs)

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def loss(model):
        outputs = model.unroll(inputs, time_offset(targets)).outputs
        return jnp.mean(task.output.nll(outputs, targets))

    value, gradients = loss(model)
    assert np.isfinite(value)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradients))


# State


def test_episode_starts_with_a_wiped_memory_a_fresh_controller_and_nothing_read():
    state = build().initial_state()
    np.testing.assert_array_equal(state.reads, np.zeros(R * W))
    np.testing.assert_array_equal(state.controller.hidden, np.zeros(H))
    np.testing.assert_array_equal(state.controller.cell, np.zeros(H))
    np.testing.assert_array_equal(state.memory.memory, np.full((M, W), 1e-6, np.float32))
    np.testing.assert_array_equal(state.memory.usage, np.eye(M)[0])


def test_episode_goes_on_from_the_state_it_is_given():
    model, (inputs, labels) = build(), stream()
    _, states = walk(model, inputs, labels, model.initial_state())
    outputs, last, _ = unroll(model, inputs, labels, states[2])
    expected, expected_states = walk(model, inputs, labels, states[2])
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    assert_same_tree(last, expected_states[-1], atol=1e-5)


def test_batch_goes_on_from_the_states_it_is_given():
    model, (inputs, labels) = build(), batch()
    states = unroll_batch(model, inputs, labels).state
    outputs = unroll_batch(model, inputs, labels, states).outputs
    for i in range(T):
        state = jax.tree.map(lambda leaf, i=i: leaf[i], states)
        np.testing.assert_allclose(outputs[i], unroll(model, inputs[i], labels[i], state)[0], atol=1e-5)


@pytest.mark.parametrize("memory", ["lrua", "ntm"])
def test_next_episode_keeps_the_memory_and_refreshes_the_controller(memory):
    model, (inputs, labels) = build(memory=memory), stream()
    fresh = model.initial_state()
    last = unroll(model, inputs, labels, fresh)[1]
    carried = model.next_episode(last)
    assert_same_tree(carried.memory, last.memory, rtol=0)
    assert_same_tree(carried.controller, fresh.controller, rtol=0)
    np.testing.assert_array_equal(carried.reads, fresh.reads)
    wiped, unwiped, kept = (
        np.asarray(unroll(model, inputs, labels, state)[0]) for state in (fresh, carried, last)
    )
    assert np.abs(wiped - unwiped).max() > 1e-6
    assert np.abs(unwiped - kept).max() > 1e-6


# The encoder


@pytest.mark.parametrize(("side", "channels", "places"), [(20, 1, 3), (28, 1, 4), (9, 3, 2)])
def test_convolutional_encoder_equals_scipy(side, channels, places):
    """The picture at half size, then three times: 3×3 correlation at every other place, standardised, ReLU."""
    config, pictures = network(encoder="conv", **SIZES), PictureFormat(side, channels)
    encoder = build_model(config, TASK, pictures, key=jax.random.key(0)).encoder
    encoder = jax.tree.map(lambda leaf: leaf + 0.1 if leaf.ndim == 1 else leaf, encoder)  # no bias stays zero
    pixels = np.random.default_rng(0).uniform(size=(2, side * side * channels)).astype(np.float32)
    expected, corners = [], range(0, side // 2 * 2, 2)
    for picture in float64(pixels):
        maps = picture.reshape(side, side, channels).transpose(2, 0, 1)
        for convolution in float64(encoder.convolutions):
            kernels = convolution.weight.reshape(3, 3, len(maps), -1).transpose(3, 2, 0, 1)
            summed = np.array(
                [
                    sum(
                        signal.correlate2d(old, k, "same")[::2, ::2]
                        for old, k in zip(maps, kernel, strict=True)
                    )
                    for kernel in kernels
                ]
            )
            standardised = (summed - summed.mean()) / np.sqrt(summed.var() + 1e-5)
            maps = np.maximum(standardised + convolution.bias[:, None, None], 0)
        assert maps.shape == (4, places, places)
        square = picture.reshape(side, side, channels)
        small = [
            square[i : i + 2, j : j + 2, c].sum() / 2
            for i, j, c in itertools.product(corners, corners, range(channels))
        ]
        expected.append([*small, *0.1 * maps.transpose(1, 2, 0).ravel()])
    actual = eqx.filter_jit(lambda encoder, pixels: encoder(pixels))(encoder, pixels)
    np.testing.assert_allclose(actual, expected, atol=1e-4)
    assert encoder.features == len(expected[0])


# Parts of one's own


class OwnRecurrence(Scan):
    """Says whether it can run a cell, and counts how often it does."""

    def __init__(self, able):
        self.able, self.calls = able, 0

    def supports(self, cell):
        return self.able

    def __call__(self, cell, projected, state):
        self.calls += 1
        return super().__call__(cell, projected, state)


@pytest.mark.parametrize("able", [True, False])
def test_recurrence_of_a_memorys_own_is_taken_first_if_it_supports_the_cell(able):
    own, usual = OwnRecurrence(able), build()

    class WithRecurrence(LRUA):
        def recurrence(self):
            return own

    memory = WithRecurrence(H, usual.memory.config, key=jax.random.key(0))
    memory = eqx.tree_at(jax.tree.leaves, memory, jax.tree.leaves(usual.memory))
    model = Model(usual.encoder, usual.controller, memory, usual.readout, inputs=400, labels=CLASSES)
    inputs, labels = batch()
    outputs, states, _ = model.unroll_batch(jnp.asarray(inputs), jnp.asarray(labels))
    assert own.calls == able
    expected, expected_states, _ = unroll_many(usual, inputs, labels)
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    assert_same_tree(states, expected_states, atol=1e-5)


class Doubled(Encoder):
    """An encoder of one's own: x, twice."""

    features: int = eqx.field(static=True, default=800)

    def __call__(self, x):
        return jnp.concatenate([x, x], axis=-1)


def test_model_is_made_of_the_parts_that_are_passed_in():
    """An encoder that repeats x, in front of weights of which each half is half of the usual ones."""
    usual, (inputs, labels) = build(), stream()
    pixels, rest = jnp.split(usual.controller.inputs.weight, [400])
    halves = jnp.concatenate([pixels / 2, pixels / 2, rest])
    controller = eqx.tree_at(lambda c: c.inputs.weight, usual.controller, halves)
    model = Model(Doubled(), controller, usual.memory, usual.readout, inputs=400, labels=CLASSES)
    actual, expected = (m.unroll(jnp.asarray(inputs), jnp.asarray(labels)).outputs for m in (model, usual))
    np.testing.assert_allclose(actual, expected, atol=1e-5)


# Configuration and mistakes


def test_paper_preset_is_the_default_but_for_the_literal_reading_and_builds_with_the_papers_sizes():
    different = {
        field.name
        for field in dataclasses.fields(LRUAConfig)
        if getattr(PAPER_MODEL.memory, field.name) != getattr(LRUAConfig(), field.name)
    }
    assert different == {"key_strength", "written", "least_used"}
    assert dataclasses.replace(PAPER_MODEL, memory=LRUAConfig()) == ModelConfig()
    model = shape_of(PAPER_MODEL, Classification(classes=5))
    assert model.controller.inputs.weight.shape == (405, 800)
    assert model.controller.from_reads.shape == (160, 800)
    assert model.memory.keys.weight.shape == (200, 160)
    assert model.memory.gates.weight.shape == (200, 4)
    assert (model.memory.slots, model.memory.width, model.memory.heads) == (128, 40, 4)
    assert model.readout.weight.shape == (360, 5)


@pytest.mark.parametrize(
    ("task", "size"),
    [(Classification(classes=4), 4), (Classification(classes=15, labels="strings"), 25), (Regression(), 2)],
    ids=["one-hot", "strings", "regression"],
)
def test_output_layer_has_the_size_that_the_task_asks_for(task, size):
    assert shape_of(SMALL, task).readout.bias.shape == (size,)


def test_same_key_builds_the_same_network_and_another_key_another():
    build = eqx.filter_jit(build_model)
    first, again, other = (build(SMALL, TASK, key=jax.random.key(seed)) for seed in (0, 0, 1))
    assert_same_tree(first, again, rtol=0)
    for left, right in zip(jax.tree.leaves(first), jax.tree.leaves(other), strict=True):
        assert left.ndim == 1 or np.all(left != right)  # biases start alike


@pytest.mark.parametrize("wrong", ["features", "label"])
def test_wrong_sizes_are_refused_with_both_shapes(wrong):
    model, (inputs, labels) = build(), stream()
    if wrong == "features":
        inputs = inputs[:, :-1]
    else:
        labels = np.zeros((T, CLASSES + 1), np.float32)
    with pytest.raises(MannError, match=r"inputs of size 400 with labels of size 3") as error:
        model.unroll(jnp.asarray(inputs), jnp.asarray(labels))
    assert str(inputs.shape) in str(error.value)
    assert str(labels.shape) in str(error.value)
    with pytest.raises(MannError, match="use data of the task"):
        model.step(jnp.asarray(inputs[0]), jnp.asarray(labels[0]), model.initial_state())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["inputs", "labels"])
def test_nan_and_infinity_are_refused_by_name(where, value):
    model, (inputs, labels) = build(), stream()
    if where == "inputs":
        inputs[2, 5] = value
    else:
        labels[2, 1] = value
    with pytest.raises(MannError, match=f"The {where} contain NaN or infinity"):
        model.unroll(jnp.asarray(inputs), jnp.asarray(labels))


@pytest.mark.parametrize("field", ["encoder", "memory", "controller"])
def test_unknown_parts_are_refused_with_the_choices(field):
    with pytest.raises(MannError, match=f"config.{field} is of kind 'perceptron'") as error:
        from_dict(ModelConfig, {field: {"kind": "perceptron"}})
    choices = {
        "encoder": {"none", "conv"},
        "memory": {"lrua", "ntm", "none"},
        "controller": {"lstm", "feedforward"},
    }
    named = str(error.value).split("choose one of ")[1].split(", or name")[0]
    assert choices[field] <= set(named.split(", "))


def test_cell_query_needs_a_controller_with_a_cell():
    with pytest.raises(MannError, match="Only the LSTM controller has a cell state: set query to hidden"):
        ModelConfig(controller=FeedForwardConfig(), query="cell")


@pytest.mark.parametrize(
    ("part", "field", "name"),
    [
        (LSTMConfig, "hidden", "The controller's hidden units"),
        (FeedForwardConfig, "hidden", "The controller's hidden units"),
        *((part, size, f"The memory's {size}") for part in (LRUAConfig, NTMConfig) for size in SLOT_SIZES),
        (ConvConfig, "maps", "The encoder's feature maps"),
    ],
)
def test_sizes_below_one_are_refused_by_name(part, field, name):
    with pytest.raises(MannError, match=f"{name} must be at least 1, not 0"):
        part(**{field: 0})


def test_more_heads_than_slots_are_refused():
    with pytest.raises(MannError, match="4 heads need at least as many slots"):
        LRUAConfig(slots=3, heads=4)


def test_convolutional_encoder_is_refused_for_functions():
    with pytest.raises(MannError, match=r"set model\.encoder to none"):
        build(task=Regression(), encoder="conv")


def test_fully_connected_encoder_by_numpy():
    encoder = MLPConfig(hidden=9, layers=2, features=5).build((4, 4, 1), key=jax.random.key(0))
    encoder = jax.tree.map(lambda leaf: leaf + 0.1, encoder)
    x = np.random.default_rng(0).normal(size=(3, 2, 16))
    values = x
    for layer in encoder.layers[:-1]:
        values = values @ np.asarray(layer.weight, np.float64)
        values = (values - values.mean(-1, keepdims=True)) / np.sqrt(values.var(-1, keepdims=True) + 1e-5)
        values = np.maximum(values + np.asarray(layer.bias, np.float64), 0)
    expected = values @ np.asarray(encoder.layers[-1].weight, np.float64) + np.asarray(
        encoder.layers[-1].bias
    )
    np.testing.assert_allclose(encoder(jnp.asarray(x, jnp.float32)), expected, atol=1e-4)
    assert encoder.features == 5
