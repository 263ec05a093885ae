"""Episodes, told apart by pictures that say which class and drawing they are and how they were turned."""

import itertools
import math
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import log_softmax
from sklearn.gaussian_process.kernels import RBF

from mann.data.functions import GaussianProcess
from mann.data.images import ImageSet
from mann.data.render import prepare
from mann.episodes import choose_below, instance_numbers, sample_distinct, time_offset
from mann.errors import MannError
from mann.tasks import Classification, Regression

CLASSES, DRAWINGS = 8, 6
COUNTS = np.array([6, 6, 2, 6, 1, 6, 3, 6])  # some classes are padded
MARK, STEP = 255, 10
LIKELY = 1e-4  # a fixed seed below this would be one bad seed in ten thousand

draw_many = jax.jit(lambda task, keys, drawings: task.draw_batch(keys, drawings), static_argnums=0)
distinct = jax.jit(jax.vmap(sample_distinct, (0, None)), static_argnums=1)


@pytest.fixture(scope="module")
def drawings():
    """Quadrants: full ink top left, the class's grey top right, the drawing's bottom right, paper bottom left.

    Padding is full ink everywhere, so that it cannot be mistaken for a drawing.
    """
    images = np.zeros((CLASSES, DRAWINGS, 105, 105), np.uint8)
    for c, d in itertools.product(range(CLASSES), range(DRAWINGS)):
        images[c, d, :52, :52] = MARK
        images[c, d, :52, 53:] = STEP * (c + 1)
        images[c, d, 53:, 53:] = STEP * (d + 1)
        if d >= COUNTS[c]:
            images[c, d] = MARK
    names = tuple("abcdefgh")
    return prepare(ImageSet("coded", images, COUNTS, names, ink=255))


def decode(inputs):
    """Class, drawing and quarter turn of every picture, from the middles of its quadrants."""
    pictures = np.round(np.asarray(inputs) * 255).reshape(-1, 20, 20)
    corners = np.stack([pictures[:, 5, 5], pictures[:, 5, 14], pictures[:, 14, 14], pictures[:, 14, 5]], 1)
    assert np.all((corners == MARK).sum(1) == 1), "a padded or a broken picture"
    clockwise = np.argmax(corners, axis=1)
    corners = np.stack([np.roll(row, -turn) for row, turn in zip(corners, clockwise, strict=True)])
    classes, numbers = corners[:, 1] / STEP - 1, corners[:, 2] / STEP - 1
    shape = np.shape(inputs)[:-1]
    return [part.astype(int).reshape(shape) for part in (classes, numbers, -clockwise % 4)]


def episodes(task, drawings, count, seed=0):
    batch = draw_many(task, jax.random.split(jax.random.key(seed), count), drawings)
    return jax.tree.map(np.asarray, batch)


@pytest.fixture(scope="module")
def many(drawings):
    """2000 episodes of 4 classes with everything at its default but for the length."""
    return episodes(Classification(classes=4, length=12), drawings, 2000)


@pytest.fixture(scope="module")
def decoded(many):
    return decode(many.inputs)


def uniform_enough(counts):
    return stats.chisquare(np.ravel(counts)).pvalue > LIKELY


# A pure function of the key


def test_same_key_gives_the_same_episode_compiled_or_not(drawings):
    task = Classification(classes=3, length=7, labels="strings")
    compiled = jax.jit(task.draw)
    first, again, other = (compiled(jax.random.key(seed), drawings) for seed in (0, 0, 1))
    plain = task.draw(jax.random.key(0), drawings)
    assert first.told is None  # everything is
    for name in set(first._fields) - {"told"}:
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
        np.testing.assert_allclose(getattr(first, name), getattr(plain, name), atol=1e-5)
    assert np.any(np.asarray(first.inputs) != np.asarray(other.inputs))


def test_batch_is_the_episodes_of_its_keys(many, drawings):
    single = jax.jit(Classification(classes=4, length=12).draw)
    for i, key in enumerate(jax.random.split(jax.random.key(0), 2000)[:3]):
        episode = single(key, drawings)
        for name in set(many._fields) - {"told"}:
            np.testing.assert_allclose(getattr(many, name)[i], getattr(episode, name), atol=1e-6)


def test_classification_without_pictures_is_refused():
    with pytest.raises(MannError, match="needs pictures"):
        Classification().draw_batch(jax.random.split(jax.random.key(0), 2), None)


# Classes


def test_each_class_of_an_episode_is_one_class_of_the_set_and_no_other(many, decoded):
    for shown, slots in zip(decoded[0], many.classes, strict=True):
        pairs = set(zip(slots.tolist(), shown.tolist(), strict=True))
        assert len(pairs) == len({slot for slot, _ in pairs}) == len({true for _, true in pairs})


def test_classes_of_the_set_are_equally_likely(decoded):
    """The first picture of each episode is of a class drawn uniformly from the whole set."""
    assert uniform_enough(np.bincount(decoded[0][:, 0], minlength=CLASSES))


def test_classes_of_the_samples_are_independent_and_uniform(many):
    pairs = np.zeros((4, 4))
    np.add.at(pairs, (many.classes[:, :-1:2], many.classes[:, 1::2]), 1)
    assert uniform_enough(pairs)


def test_counts_differ_and_a_class_may_be_absent(many):
    present = np.array([[np.any(row == c) for c in range(4)] for row in many.classes])
    expected = (3 / 4) ** 12
    assert stats.binomtest(int((~present[:, 0]).sum()), len(present), expected).pvalue > LIKELY
    assert len({tuple(sorted(Counter(row.tolist()).values())) for row in many.classes}) > 10


@pytest.mark.parametrize("length", [12, 14])
def test_balanced_episode_has_every_class_equally_often_in_any_order(drawings, length):
    batch = episodes(Classification(classes=4, length=length, balanced=True), drawings, 300)
    counts = np.array([np.bincount(row, minlength=4) for row in batch.classes])
    assert counts.min() == length // 4
    assert counts.max() == math.ceil(length / 4)
    assert len({tuple(row) for row in batch.classes}) > 290
    assert uniform_enough(np.bincount(batch.classes[:, 0] % 2, minlength=2))


def test_instance_numbers_equal_a_count_by_hand(many):
    for classes, instances in zip(many.classes[:50], many.instances[:50], strict=True):
        seen = Counter()
        for c, instance in zip(classes.tolist(), instances.tolist(), strict=True):
            seen[c] += 1
            assert instance == seen[c]
    np.testing.assert_array_equal(instance_numbers(jnp.array([2, 2, 0, 2, 1, 0]), 4), [1, 2, 1, 3, 1, 2])


def test_length_is_ten_times_the_classes_unless_given():
    assert [Classification(classes=n).steps for n in (5, 10, 15)] == [50, 100, 150]
    assert Classification(classes=15, length=100).steps == 100


# Labels


def test_one_hot_labels_are_a_shuffled_numbering_of_the_classes(many):
    labels = many.targets.argmax(-1)
    assert np.array_equal(many.targets, np.eye(4)[labels])
    for classes, row in zip(many.classes, labels, strict=True):
        pairs = set(zip(classes.tolist(), row.tolist(), strict=True))
        assert len(pairs) == len({c for c, _ in pairs}) == len({label for _, label in pairs})


def test_binding_of_class_and_label_is_shuffled_from_episode_to_episode(many, decoded):
    labels = many.targets.argmax(-1)
    table = np.zeros((CLASSES, 4))
    np.add.at(table, (decoded[0][:, 0], labels[:, 0]), 1)
    assert uniform_enough(table)
    by_slot = np.zeros((4, 4))
    np.add.at(by_slot, (many.classes[:, 0], labels[:, 0]), 1)
    assert uniform_enough(by_slot)


def test_string_labels_differ_between_the_classes_of_an_episode_and_stay_within_one(drawings):
    batch = episodes(Classification(classes=4, length=12, labels="strings"), drawings, 1000)
    assert batch.targets.shape == (1000, 12, 25)
    np.testing.assert_array_equal(batch.targets.reshape(-1, 5, 5).sum(-1), 1)
    letters = batch.targets.reshape(1000, 12, 5, 5).argmax(-1)
    for classes, words in zip(batch.classes, letters.tolist(), strict=True):
        pairs = {(c, tuple(word)) for c, word in zip(classes.tolist(), words, strict=True)}
        assert len(pairs) == len({c for c, _ in pairs}) == len({word for _, word in pairs})
    for position in range(5):
        assert uniform_enough(np.bincount(letters[:, 0, position], minlength=5))
    assert len({tuple(word) for word in letters[:, 0].tolist()}) > 800  # of 3125, 1000 draws: 856 expected


def test_every_one_of_the_3125_codes_is_a_word_of_its_own():
    code = Classification(labels="strings").label_code
    encoded = np.asarray(code.encode(jnp.arange(3125)))
    assert encoded.shape == (3125, 25)
    np.testing.assert_array_equal(encoded.reshape(3125, 5, 5).sum(-1), 1)
    words = ["".join("abcde"[i] for i in row) for row in encoded.reshape(3125, 5, 5).argmax(-1)]
    assert words == ["".join(word) for word in itertools.product("abcde", repeat=5)]
    assert code.name(int(code.decode(encoded[1234]))) == words[1234]


# Drawings and their augmentation


def test_drawing_returns_only_when_its_class_is_used_up(drawings):
    batch = episodes(Classification(classes=3, length=40, augment=False), drawings, 100)
    classes, numbers, quarters = decode(batch.inputs)
    assert not quarters.any()
    wrapped = False
    for shown, order in zip(classes, numbers, strict=True):
        for c in set(shown.tolist()):
            seen = order[shown == c]
            for start in range(0, len(seen), COUNTS[c]):
                cycle = seen[start : start + COUNTS[c]]
                assert len(set(cycle.tolist())) == len(cycle)
                wrapped = wrapped or start > 0
    assert wrapped


def test_repeats_let_a_drawing_return_at_once(drawings):
    batch = episodes(Classification(classes=1, length=12, repeats=True, augment=False), drawings, 400)
    classes, numbers, _ = decode(batch.inputs)
    again = numbers[:, 1] == numbers[:, 0]
    whole = COUNTS[classes[:, 0]] == DRAWINGS
    assert stats.binomtest(int(again[whole].sum()), int(whole.sum()), 1 / DRAWINGS).pvalue > LIKELY


@pytest.mark.parametrize("repeats", [False, True])
def test_padding_is_never_shown_and_all_real_drawings_are(drawings, repeats):
    batch = episodes(Classification(classes=4, length=24, repeats=repeats), drawings, 300)
    classes, numbers, _ = decode(batch.inputs)  # which would not find a mark in padding
    for c in range(CLASSES):
        assert set(numbers[classes == c].tolist()) == set(range(COUNTS[c]))


def test_first_drawing_of_a_class_is_any_of_them_equally_often(many, decoded):
    classes, numbers, _ = decoded
    first = (many.instances == 1) & (COUNTS[classes] == DRAWINGS)
    assert uniform_enough(np.bincount(numbers[first], minlength=DRAWINGS))


def test_quarter_turn_belongs_to_the_class_and_changes_from_episode_to_episode(many, decoded):
    _, _, quarters = decoded
    for classes, turns in zip(many.classes, quarters, strict=True):
        pairs = set(zip(classes.tolist(), turns.tolist(), strict=True))
        assert len(pairs) == len(set(classes.tolist()))
    for index, size in ((decoded[0][:, 0], CLASSES), (many.classes[:, 0], 4)):
        table = np.zeros((size, 4))
        np.add.at(table, (index, quarters[:, 0]), 1)
        assert uniform_enough(table)


def test_every_sample_is_moved_differently_but_only_with_augmentation(drawings):
    def different_pictures(augment):
        task = Classification(classes=1, length=10, repeats=True, augment=augment)
        batch = episodes(task, drawings, 20)
        numbers = decode(batch.inputs)[1]
        return [
            len(np.unique(pictures[order == order[0]], axis=0)) - (order == order[0]).sum()
            for pictures, order in zip(batch.inputs, numbers, strict=True)
        ]

    assert not any(different_pictures(True))
    assert any(different_pictures(False))


# The random numbers


@pytest.mark.parametrize(("population", "count"), [(5, 1), (5, 3), (4, 4), (7, 2)])
def test_distinct_sample_takes_every_ordered_choice_exactly_once(population, count):
    """For every combination of ranks: the middle of each equal part of [0, 1)."""
    parts = [(np.arange(population - i) + 0.5) / (population - i) for i in range(count)]
    grid = jnp.asarray(list(itertools.product(*parts)), jnp.float32)
    chosen = np.asarray(distinct(grid, population))
    assert sorted(map(tuple, chosen.tolist())) == sorted(itertools.permutations(range(population), count))


def test_distinct_sample_is_uniform_over_ordered_pairs():
    uniform = jax.random.uniform(jax.random.key(0), (20_000, 2))
    pairs = np.asarray(distinct(uniform, 6))
    table = np.zeros((6, 6))
    np.add.at(table, tuple(pairs.T), 1)
    assert not np.diagonal(table).any()
    assert uniform_enough(table[~np.eye(6, dtype=bool)])


@pytest.mark.parametrize("uniform", [0.0, np.nextafter(np.float32(1), np.float32(0))])
@pytest.mark.parametrize("population", [15, 1200, 3125, 100_000])
def test_distinct_sample_stays_within_the_population_at_the_ends(uniform, population):
    chosen = np.asarray(sample_distinct(jnp.full(15, uniform, jnp.float32), population))
    expected = range(15) if uniform == 0 else range(population - 1, population - 16, -1)
    assert chosen.tolist() == list(expected)


def test_choice_below_a_limit_is_uniform_and_never_reaches_it():
    almost_one = np.nextafter(np.float32(1), np.float32(0))
    below = jax.jit(choose_below)
    for limit in (1, 4, 1623, 2**20):
        assert below(jnp.asarray([0.0, almost_one]), jnp.asarray(limit)).tolist() == [0, limit - 1]
    uniform = jax.random.uniform(jax.random.key(1), (10_000,))
    assert uniform_enough(np.bincount(choose_below(uniform, 7), minlength=7))


# Time offset and curriculum


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_time_offset_gives_null_first_and_then_the_label_before(batch):
    targets = np.random.default_rng(0).normal(size=(*batch, 6, 4)).astype(np.float32)
    offset = np.asarray(time_offset(jnp.asarray(targets)))
    assert not offset[..., 0, :].any()
    for t in range(1, 6):
        np.testing.assert_array_equal(offset[..., t, :], targets[..., t - 1, :])


@pytest.mark.parametrize("balanced", [False, True])
def test_curriculum_uses_fewer_classes_and_steps_without_compiling_again(drawings, balanced):
    task = Classification(classes=5, balanced=balanced)
    compiled = jax.jit(task.draw)
    for classes, length in ((2, 20), (3, 30), (5, 50)):
        episode = compiled(jax.random.key(0), drawings, jnp.array([classes, length]))
        assert set(np.asarray(episode.classes).tolist()) == set(range(classes))
        np.testing.assert_array_equal(episode.mask, np.arange(50) < length)
        assert len(np.unique(np.asarray(episode.targets), axis=0)) == classes
    assert compiled._cache_size() == 1


def test_without_a_curriculum_no_step_is_masked(many):
    assert many.mask.all()


# The loss


@pytest.mark.parametrize("labels", ["onehot", "strings"])
def test_loss_is_minus_the_log_probability_averaged_over_the_steps_that_are_not_padding(drawings, labels):
    task, lengths = Classification(classes=3, length=9, labels=labels), (2, 9, 5)
    keys = jax.random.split(jax.random.key(0), 3)
    drawn = [
        task.draw(key, drawings, jnp.array([2, length])) for key, length in zip(keys, lengths, strict=True)
    ]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *drawn)
    outputs = np.random.default_rng(0).normal(size=(3, 9, task.output.size)).astype(np.float32)
    expected = []
    for episode, length, rows in zip(drawn, lengths, outputs, strict=True):
        steps = []
        for row, target in zip(rows[:length], np.asarray(episode.targets), strict=False):
            parts = zip(*(np.split(x, task.label_code.letters) for x in (row, target)), strict=True)
            steps.append(-sum(log_softmax(scores)[letter.argmax()] for scores, letter in parts))
        expected.append(np.mean(steps))
    np.testing.assert_allclose(task.loss(jnp.asarray(outputs), batch), expected, rtol=1e-5)


# Pictures of another format


def test_episode_shows_pictures_in_the_format_of_the_set():
    """Each class has a colour of its own, and every picture is of that colour."""
    images = np.zeros((4, 2, 32, 32, 3), np.uint8)
    colours = np.array([[200, 0, 0], [0, 200, 0], [0, 0, 200], [100, 100, 0]])
    images += colours[:, None, None, None].astype(np.uint8)
    source = prepare(ImageSet("colours", images, np.full(4, 2), tuple("abcd"), ink=255, side=28))
    task = Classification(classes=3, length=12)
    assert task.input_shape(source.format) == (28, 28, 3)
    episode = task.draw(jax.random.key(0), source)
    assert episode.inputs.shape == (12, 28 * 28 * 3)
    middles = np.asarray(episode.inputs).reshape(12, 28, 28, 3)[:, 14, 14] * 255
    shown = [np.flatnonzero((np.abs(colours - middle) < 1).all(1)).item() for middle in middles]
    pairs = set(zip(np.asarray(episode.classes).tolist(), shown, strict=True))
    assert len(pairs) == len({c for c, _ in pairs}) == len({colour for _, colour in pairs})


# Mistakes


def test_too_few_classes_are_refused_with_both_numbers(drawings):
    with pytest.raises(MannError, match="9 classes cannot be drawn from a data set of 8"):
        Classification(classes=9).draw(jax.random.key(0), drawings)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"classes": 0}, "classes in an episode must be at least 1"),
        ({"length": -1}, "length of an episode must be at least 0"),
        ({"classes": 3126, "labels": "strings"}, "3125 string labels"),
    ],
)
def test_impossible_classification_is_refused(fields, words):
    with pytest.raises(MannError, match=words):
        Classification(**fields)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"dimensions": 0}, "1, 2 or 3 dimensions"),
        ({"dimensions": 4}, "1, 2 or 3 dimensions"),
        ({"length": 0}, "at least 1"),
        ({"high": float("inf")}, "range is empty"),
        ({"low": 1.0, "high": 1.0}, "range is empty"),
    ],
)
def test_impossible_regression_is_refused(fields, words):
    with pytest.raises(MannError, match=words):
        Regression(**fields)


# Regression


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_functions_are_drawn_from_the_process_at_uniform_points(dimensions):
    process = GaussianProcess(length_scale=0.8, noise=0.2)
    task = Regression(dimensions=dimensions, length=10, low=-1.0, high=3.0, process=process)
    batch = episodes(task, None, 1000)
    x, y = batch.inputs, batch.targets[..., 0].astype(np.float64)
    assert x.shape == (1000, 10, dimensions)
    assert batch.targets.shape == (1000, 10, 1)
    assert stats.kstest(x.ravel(), stats.uniform(-1, 4).cdf).pvalue > LIKELY
    kernel = RBF(0.8)
    whitened = [
        np.linalg.solve(np.linalg.cholesky(kernel(points) + 0.04 * np.eye(10)), values)
        for points, values in zip(x.astype(np.float64), y, strict=True)
    ]
    assert stats.kstest(np.ravel(whitened), "norm").pvalue > LIKELY
    assert stats.kstest(np.square(whitened).sum(1), stats.chi2(10).cdf).pvalue > LIKELY
    np.testing.assert_allclose(np.cov(np.transpose(whitened)), np.eye(10), atol=0.25)


def test_every_step_of_a_regression_episode_counts_as_a_first_instance():
    episode = episodes(Regression(length=6), None, 2)
    assert episode.mask.all()
    assert not episode.classes.any()
    assert (episode.instances == 1).all()
