"""Episodes that share pictures: what they show, what they weigh, and that encoding once changes nothing."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mann.data import Glyphs
from mann.data.glyphs import load_glyphs
from mann.data.render import Transform, prepare, render
from mann.encoders import MLPConfig
from mann.episodes import SharedPictures
from mann.errors import MannError
from mann.memory import KeyValueConfig
from mann.models import ModelConfig, build_model
from mann.tasks import Classification, ManyThings
from mann.tasks.many import even_odds
from mann.tasks.pool import PoolConfig
from mann.training.config import Config

POOL = PoolConfig(episodes=2, classes=8, drawings=3)
TASK = ManyThings(classes=6, fewest=2, length=20, pool=POOL)


@pytest.fixture(scope="module")
def drawings():
    return prepare(load_glyphs(24))


@pytest.fixture(scope="module")
def episodes(drawings):
    keys = jax.random.split(jax.random.key(0), 6)
    return jax.jit(lambda keys: TASK.draw_training(keys, drawings))(keys)


def test_every_drawing_of_some_classes_comes_once_in_any_order(episodes):
    places, classes = np.asarray(episodes.inputs.places), np.asarray(episodes.classes)
    mask, instances = np.asarray(episodes.mask), np.asarray(episodes.instances)
    assert episodes.inputs.pictures.shape == (3, 24, 400)
    sizes = set()
    for place, which, real, instance in zip(places, classes, mask, instances, strict=True):
        place, which, instance = place[real], which[real], instance[real]
        assert len(set(place)) == len(place)
        many = which.max() + 1
        sizes.add(many)
        assert len(place) == min(3 * many, 20)
        assert np.array_equal(np.bincount(which), np.full(many, 3)) or len(place) == 20
        assert len({(p // 3, c) for p, c in zip(place, which, strict=True)}) == len(set(which))
        seen = {}
        for c, i in zip(which, instance, strict=True):
            seen[c] = seen.get(c, 0) + 1
            assert seen[c] == i
        assert not np.array_equal(place, np.sort(place))
    assert sizes <= set(range(2, 7))
    assert len(sizes) > 1


def test_labels_belong_to_classes(episodes):
    targets, classes = np.asarray(episodes.targets), np.asarray(episodes.classes)
    for target, which in zip(targets, classes, strict=True):
        codes = {tuple(t) for t in target}
        assert (
            len(codes) == len(set(which)) == len({(c, tuple(t)) for c, t in zip(which, target, strict=True)})
        )


def test_two_episodes_share_a_pool_and_the_next_two_another(episodes):
    pictures = np.asarray(episodes.inputs.pictures)
    assert not np.allclose(pictures[0], pictures[1])
    spread = np.asarray(episodes.inputs.spread(jnp.asarray(pictures)))
    places = np.asarray(episodes.inputs.places)
    for episode in range(6):
        np.testing.assert_array_equal(spread[episode], pictures[episode // 2][places[episode]])


def test_a_pool_holds_different_drawings_of_different_classes(drawings):
    """Found again among all drawings of the data set, as they are without augmentation."""
    pictures = np.asarray(POOL.draw(jax.random.key(3), drawings, augment=False)[0]).reshape(8, 3, 400)
    classes, numbers = np.divmod(np.arange(24 * 20), 20)
    still = Transform(jnp.zeros(480), jnp.zeros((480, 2)), jnp.zeros(480, jnp.int32))
    everything = np.asarray(render(drawings, jnp.asarray(classes), jnp.asarray(numbers), still))
    matches = [[np.flatnonzero((everything == picture).all(1)) for picture in row] for row in pictures]
    assert all(len(match) == 1 for row in matches for match in row)
    found = np.array(matches)[..., 0]
    assert all(len(set(row)) == 3 and len(set(row // 20)) == 1 for row in found)
    assert len(set(found[:, 0] // 20)) == 8


def test_a_class_of_a_pool_is_turned_as_a_whole(drawings):
    """A quarter turn per class and a little rotation per picture: undone, mean pictures resemble the drawings."""
    pool = PoolConfig(1, 24, 8)
    means, expected = (
        np.asarray(jax.jit(lambda key, turned=turned: pool.draw(key, drawings, turned)[0])(jax.random.key(0)))
        .reshape(24, 8, 20, 20)
        .mean(1)
        for turned in (True, False)
    )
    turns = [
        int(np.argmin([np.abs(np.rot90(e, q) - m).mean() for q in range(4)]))
        for e, m in zip(expected, means, strict=True)
    ]
    assert set(turns) == {0, 1, 2, 3}
    apart = [np.abs(np.rot90(e, q) - m).mean() for e, m, q in zip(expected, means, turns, strict=True)]
    assert np.mean(apart) < 0.7 * np.abs(expected[1:] - means[:-1]).mean()


@pytest.mark.parametrize("way", ["distortion", "bend"])
def test_drawings_of_a_pool_are_changed_each_by_itself_and_only_where_they_are_augmented(drawings, way):
    changed = dataclasses.replace(POOL, **{way: 0.05})
    one, other = (
        np.asarray(pool.draw(jax.random.key(3), drawings, augment=True)[0]) for pool in (POOL, changed)
    )
    apart = np.abs(one - other).mean(axis=1)
    assert (apart > 0).all()
    assert len(set(apart)) == len(apart)
    alike = [np.corrcoef(a, b)[0, 1] for a, b in zip(one, other, strict=True)]
    assert 0.5 < np.mean(alike) < 0.95  # the same drawings
    still = [pool.draw(jax.random.key(3), drawings, augment=False)[0] for pool in (POOL, changed)]
    np.testing.assert_array_equal(*still)
    with pytest.raises(MannError, match=way):
        dataclasses.replace(POOL, **{way: 0.5})


def test_encoding_once_gives_the_loss_and_the_gradient_of_encoding_every_step(episodes):
    config = ModelConfig(
        encoder=MLPConfig(hidden=16, layers=1, features=8), memory=KeyValueConfig(slots=32, width=8)
    )
    model = build_model(config, TASK, key=jax.random.key(1))
    every = episodes._replace(inputs=episodes.inputs.spread(episodes.inputs.pictures))

    def loss(model, episodes):
        outputs, _ = TASK.unroll(model, episodes)
        return outputs, jnp.sum(outputs**2)

    once, plain = (
        jax.jit(jax.value_and_grad(lambda m, e=e: loss(m, e)[1]))(model) for e in (episodes, every)
    )
    for ours, theirs in zip(jax.tree.leaves(once), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=1e-4)


def test_new_and_known_weigh_the_same_where_every_drawing_comes_once():
    rng = np.random.default_rng(0)
    deck = np.repeat(np.arange(5), 3)
    order = np.stack([rng.permutation(deck) for _ in range(20_000)])
    first = np.array([[c not in row[:i] for i, c in enumerate(row)] for row in order.tolist()])
    weights = np.asarray(even_odds(jnp.asarray(first), jnp.full((20_000, 1), 5), drawings=3))
    for step in range(1, 8):
        open_ = first[:, :step].sum(axis=1) < 5  # after that nothing new can come
        new, known = (weights[open_ & (first[:, step] == value), step].sum() for value in (True, False))
        assert new == pytest.approx(known, rel=0.06)


def test_tests_draw_pictures_of_their_own(drawings):
    """A pool is for training alone."""
    keys = jax.random.split(jax.random.key(0), 2)
    assert not isinstance(TASK.draw_batch(keys, drawings).inputs, SharedPictures)
    without = dataclasses.replace(TASK, pool=PoolConfig())
    np.testing.assert_array_equal(
        without.draw_training(keys, drawings).inputs, TASK.draw_batch(keys, drawings).inputs
    )


def test_an_episode_depends_on_its_key_and_its_pool_alone(drawings):
    """As on several devices, each of which draws its share of the batch."""
    keys = jax.random.split(jax.random.key(5), 4)
    draw = jax.jit(lambda keys: TASK.draw_training(keys, drawings))
    together, later = draw(keys), draw(keys[2:])
    for ours, theirs in zip(jax.tree.leaves(later), jax.tree.leaves(together), strict=True):
        np.testing.assert_allclose(ours, theirs[len(theirs) // 2 :], atol=1e-6)


def test_a_run_uses_no_more_devices_than_there_are_pools():
    config = Config(task=TASK, data=Glyphs(classes=40), batch=6, updates=500)
    assert (config.shares, Config(task=Classification(), batch=6, updates=500).shares) == (3, 6)
    with pytest.raises(MannError, match="make the batch \\(5\\) a multiple"):
        Config(task=TASK, data=Glyphs(classes=40), batch=5, updates=500)


@pytest.mark.parametrize("task", [TASK, Classification(classes=6, labels="strings", pool=POOL)])
def test_a_test_may_have_more_classes_than_the_pool(task):
    assert task.resized(20).classes == 20 > POOL.classes


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda d: TASK.draw_training(jax.random.split(jax.random.key(0), 3), d), "2 episodes share a pool"),
        (lambda d: ManyThings(classes=9, pool=POOL), "cannot be drawn from a pool of 8"),
        (lambda d: PoolConfig(2, 99, 3).draw(jax.random.key(0), d, True), "make it smaller"),
        (lambda d: PoolConfig(2, 8, 21).draw(jax.random.key(0), d, True), "make it smaller"),
        (lambda d: PoolConfig(-1), "share a pool"),
        (lambda d: Classification(pool=PoolConfig(1, 4)), "raise task.pool.classes"),
    ],
)
def test_impossible_pools_are_refused(drawings, change, sentence):
    with pytest.raises(MannError, match=sentence):
        change(drawings)
