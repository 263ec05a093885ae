"""Streams against a restaurant simulated in numpy, the published measure against scikit-learn, the split."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mann.controllers import NoControllerConfig
from mann.data import Glyphs, Omniglot
from mann.data.render import PAD, Drawings, grid_side, prepare
from mann.errors import MannError
from mann.memory import KeyValueConfig
from mann.models import ModelConfig, build_model
from mann.statistics import area_of_named
from mann.tasks import Roaming
from mann.tasks.roaming import contrast_of_stream
from tests.data.test_omniglot import REAL, needs_data

SIDE = 10
TASK = Roaming()


def source(alphabets=6, characters=5, drawings=20):
    """Drawings whose pixels are all of one level, which tells the character."""
    population = alphabets * characters
    levels = np.arange(1, population + 1, dtype=np.uint8) * 2
    grids = np.zeros((population, drawings, grid_side(SIDE), grid_side(SIDE)), np.uint8)
    grids[:, :, PAD:-PAD, PAD:-PAD] = levels[:, None, None, None]
    numbers = jnp.asarray(np.repeat(np.arange(alphabets), characters), jnp.int32)
    return Drawings(jnp.asarray(grids), jnp.full(population, drawings, jnp.int32), numbers)


def restaurant(rng, tables=10, guests=30, alpha=0.2, theta=1.0, most=6):
    """The published process, a guest who finds a table full being sent back."""
    seated, order = [], []
    while len(order) < guests:
        odds = np.array([m - alpha for m in seated] + [theta + alpha * len(seated)])
        table = rng.choice(len(odds), p=odds / odds.sum())
        if table == len(seated):
            if len(seated) == tables:
                break
            seated.append(0)
        if seated[table] == most:
            continue
        seated[table] += 1
        order.append(table)
    return order


@pytest.fixture(scope="module")
def streams():
    """Context, class and mask of many streams, with the sequence of every context."""

    def one(key):
        seat_key, wander_key = jax.random.split(key)
        seats = TASK.seat(seat_key)
        return seats, TASK.wander(wander_key, *seats)

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 400)))


def test_contexts_are_restaurants(streams):
    (tables, lengths), _ = streams
    tables, lengths = tables.reshape(-1, 30), lengths.reshape(-1)
    rng = np.random.default_rng(0)
    simulated = [restaurant(rng) for _ in range(2000)]
    shown = [list(row[:length]) for row, length in zip(tables, lengths, strict=True)]
    for measure in (
        len,
        lambda order: len(set(order)),
        lambda order: len(set(order[:10])),
        lambda order: max(order.count(table) for table in set(order)),
    ):
        ours, theirs = (np.array([measure(order) for order in orders]) for orders in (shown, simulated))
        error = np.sqrt(ours.var() / len(ours) + theirs.var() / len(theirs))
        assert abs(ours.mean() - theirs.mean()) < 4 * error + 1e-9
    assert all(order[0] == 0 and max(order.count(table) for table in set(order)) <= 6 for order in shown)


def test_streams_wander_and_go_on_where_a_context_was_left(streams):
    (tables, lengths), (context, table, mask) = streams
    np.testing.assert_array_equal(mask.sum(1), lengths.sum(1))
    assert (mask[:, :-1] >= mask[:, 1:]).all()
    changes = []
    for i in range(len(context)):
        there, chosen = context[i][mask[i]], table[i][mask[i]]
        assert there[0] == 0
        for c in range(5):
            np.testing.assert_array_equal(chosen[there == c], tables[i, c, : lengths[i, c]])
        changes += list(there[1:40] != there[:39])  # before contexts run out
    assert np.mean(changes) == pytest.approx(0.2 * 0.8, abs=0.015)


@pytest.mark.parametrize("context", ["alphabet", "mixture"])
def test_a_context_is_an_alphabet_or_a_mixture_and_a_class_a_turned_character(context):
    task = dataclasses.replace(TASK, context=context, hidden=0.0)
    drawings = source(alphabets=12, characters=5)
    episode = jax.jit(task.draw)(jax.random.key(1), drawings)
    character = np.round(np.asarray(episode.inputs).mean(1) * 255 / 2).astype(int) - 1
    classes, mask = np.asarray(episode.classes), np.asarray(episode.mask)
    for number in np.unique(classes[mask]):
        assert len(set(character[mask & (classes == number)])) == 1
    for number in range(5):
        here = mask & (classes // 10 == number)
        alphabets = {classes[i]: character[i] // 5 for i in np.flatnonzero(here)}
        distinct = len(set(alphabets.values()))
        assert distinct == (1 if context == "alphabet" else len(alphabets))
    if context == "alphabet":
        assert len({character[i] // 5 for i in np.flatnonzero(mask)}) == 5
    targets = np.asarray(episode.targets)
    assert len({tuple(row) for row in targets[mask]}) == len(np.unique(classes[mask]))


def test_a_grey_box_hides_a_part_and_training_pictures_are_cropped():
    drawings = source()
    episode = jax.jit(TASK.draw)(jax.random.key(0), drawings)
    pictures = np.asarray(episode.inputs).reshape(-1, SIDE, SIDE)
    grey = pictures == 0.5
    assert (grey.sum((1, 2)) == 9).all()  # 3 of 10 pixels
    rows, columns = grey.any(2), grey.any(1)
    assert (rows.sum(1) == 3).all()
    assert (columns.sum(1) == 3).all()
    assert rows[:, 0].any()
    assert not rows[:, -1].any()  # floor(u · (side − box)), as published
    cropped = jax.jit(TASK.draw_training)(jax.random.key(0)[None], drawings)
    assert np.asarray(cropped.inputs)[0][:, [0, -1]].min() == 0  # paper from beyond the frame
    np.testing.assert_array_equal(cropped.classes[0], episode.classes)


def test_the_area_is_that_of_the_published_code():
    sklearn_metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    new, known = rng.normal(size=300), rng.uniform(size=300) < 0.6
    right = known & (rng.uniform(size=300) < 0.8)
    order = np.argsort(new)
    hits = np.cumsum(right[order])
    precision = [1.0, *(hits / np.arange(1, 301))]
    recall = [0.0, *(hits / known.sum())]
    assert area_of_named(new, right, known) == pytest.approx(sklearn_metrics.auc(recall, precision))
    assert area_of_named(-known.astype(float), known, known) == pytest.approx(1)
    assert np.isnan(area_of_named(new, right, np.zeros(300, bool)))


def test_what_is_counted():
    """A network that names all and knows what is new has an area of 1; one that mistakes new for known has not."""
    drawings = source(alphabets=5)
    task = dataclasses.replace(TASK, classes=10, length=30)
    episodes = jax.jit(task.draw_batch)(jax.random.split(jax.random.key(0), 3), drawings)
    new = (episodes.instances == 1).astype(jnp.float32)[..., None]
    outputs = jnp.concatenate([10 * episodes.targets, 10 * (2 * new - 1)], axis=-1)
    result = task.summarise(task.tally(outputs, episodes), None)
    assert result.area.value == pytest.approx(1)
    assert result.instances[1].value == result.instances[3].value == 1
    assert [row[0] for row in result.table([]).rows][1:] == [
        "accuracy after 1 show",
        "accuracy after 3 shows",
    ]
    wrong = task.record(task.tally(outputs.at[..., -1].multiply(-1), episodes))
    assert wrong["average_precision"] < 0.9
    assert wrong["held_out_loss"] > 5
    assert "after 1 and 3 shows 100.0% 100.0%" in task.headline(wrong)
    assert float(task.loss(outputs, episodes).max()) < 0.1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"contexts": 3}, "evenly"),
        ({"length": 0}, "evenly"),
        ({"discount": 1.0}, "discount"),
        ({"hidden": 1.5}, "hidden share"),
        ({"switch": -0.1}, "switch"),
    ],
)
def test_what_cannot_be_is_refused(fields, message):
    with pytest.raises(MannError, match=message):
        Roaming(**fields)


def test_sizes_and_data_that_do_not_fit_are_refused():
    with pytest.raises(MannError, match="wants 5 alphabets of 10 classes, but the data has 3"):
        TASK.check(source(alphabets=3, characters=8))
    with pytest.raises(MannError, match="one size"):
        TASK.resized(classes=5)
    with pytest.raises(MannError, match="no curriculum"):
        TASK.stage(5)


@needs_data
def test_the_published_split(monkeypatch):
    monkeypatch.setenv("MANN_DATA", str(REAL))
    data = Omniglot(split="roaming", side=28)
    images = data.load()
    parts = data.divide(len(images))
    assert parts == (987, 1159, 1623)
    groups = [set(images.subset(*bounds).alphabets) for bounds in ((0, 987), (987, 1159), (1159, 1623))]
    assert [len(group) for group in groups] == [32, 5, 13]
    assert not groups[0] & groups[1] | groups[2] & (groups[0] | groups[1])
    assert {"Tibetan", "ULOG"} <= groups[2]
    assert {"Hebrew", "Bengali"} <= groups[1]
    assert sorted(images.labels) == sorted(Omniglot().load().labels)


def test_the_contrast_of_a_stream_is_the_mean_over_all_pairs():
    rng = np.random.default_rng(0)
    keys, classes = rng.normal(size=(9, 4)), np.array([0, 1, 0, 2, 1, 0, 3, 2, 0])
    mask = np.arange(9) < 8
    unit = keys / np.linalg.norm(keys, axis=1, keepdims=True)
    losses = []
    for i in range(8):
        against = sum(np.exp(18 * unit[i] @ unit[k]) for k in range(8) if classes[k] != classes[i])
        for j in range(8):
            if j != i and classes[j] == classes[i]:
                found = np.exp(18 * unit[i] @ unit[j])
                losses.append(-np.log(found / (found + against)))
    found = contrast_of_stream(jnp.asarray(keys, jnp.float32), jnp.asarray(classes), jnp.asarray(mask))
    assert float(found) == pytest.approx(np.mean(losses), rel=1e-5)


def test_a_stream_of_one_class_has_no_contrast_and_a_finite_gradient():
    keys, classes = (
        jnp.asarray(np.random.default_rng(1).normal(size=(3, 4)), jnp.float32),
        jnp.zeros(3, jnp.int32),
    )
    value, gradient = jax.value_and_grad(contrast_of_stream)(keys, classes, jnp.ones(3, bool))
    assert float(value) == pytest.approx(0, abs=1e-6)
    assert np.isfinite(gradient).all()


def test_the_contrast_changes_the_loss_and_nothing_that_is_counted():
    plain = Roaming(classes=6, contexts=2, length=12)
    contrasted = dataclasses.replace(plain, contrast=2.0)
    drawings = prepare(Glyphs(classes=40).load())
    memory = KeyValueConfig(slots=16, width=400, projected=False)
    config = ModelConfig(controller=NoControllerConfig(), memory=memory, reads_to_controller=False)
    model = build_model(config, plain, drawings.format, key=jax.random.key(0))
    episodes = plain.draw_training(jax.random.split(jax.random.key(1), 2), drawings)
    outputs, _ = plain.unroll(model, episodes)
    both, _ = contrasted.unroll(model, episodes)
    np.testing.assert_allclose(both.outputs, outputs, atol=1e-5)
    more = contrasted.loss(both, episodes) - plain.loss(outputs, episodes)
    keys = [
        contrast_of_stream(inputs, classes, mask)
        for inputs, classes, mask in zip(episodes.inputs, episodes.classes, episodes.mask, strict=True)
    ]
    np.testing.assert_allclose(more, 2.0 * np.array(keys), rtol=1e-4)
    np.testing.assert_allclose(
        contrasted.tally(both, episodes).new, plain.tally(outputs, episodes).new, atol=1e-5
    )
