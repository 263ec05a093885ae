"""Episodes within one alphabet: told apart by pictures whose grey says which class they are."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mann.data import Glyphs, Omniglot
from mann.data.images import ImageSet
from mann.data.render import prepare
from mann.errors import MannError
from mann.tasks import Classification, ManyThings, Regression
from mann.tasks.alphabets import choose_classes
from mann.tasks.pool import PoolConfig

OF_CLASS = np.array(
    [0, 1, 1, 0, 2, 2, 2, 2, 0, 3]
)  # alphabets of 3, 2, 4 and 1 classes, not one after another
ALPHABETS = tuple(f"alphabet {number}" for number in OF_CLASS)

choose = jax.jit(jax.vmap(choose_classes, in_axes=(0, None, None, None)), static_argnums=(2, 3))
draw = jax.jit(lambda task, keys, drawings: task.draw_batch(keys, drawings), static_argnums=0)


@pytest.fixture(scope="module")
def images():
    """Full ink top left, so that turns can be seen, and the class's grey everywhere else."""
    pictures = np.zeros((10, 4, 40, 40), np.uint8)
    pictures += (20 * (np.arange(10) + 1)).astype(np.uint8)[:, None, None, None]
    pictures[:, :, :20, :20] = 255
    names = tuple(f"class {number}" for number in range(10))
    return ImageSet("grey", pictures, np.full(10, 4), names, ink=255, alphabets=ALPHABETS)


def decode(pictures):
    """Class and quarter turn of every picture."""
    levels = np.round(np.asarray(pictures) * 255).reshape(-1, 20, 20)
    corners = np.stack([levels[:, 4, 4], levels[:, 15, 4], levels[:, 15, 15], levels[:, 4, 15]], axis=1)
    return np.round(corners.min(axis=1) / 20).astype(int) - 1, np.argmax(corners, axis=1)


def choices(kind, count=5, many=400):
    keys = jax.random.split(jax.random.key(0), many)
    return [np.asarray(part) for part in choose(keys, jnp.asarray(OF_CLASS), count, kind)]


def test_within_takes_one_alphabet_after_another():
    chosen, alike = choices("within")
    orders = set()
    for classes, first in zip(chosen, alike, strict=True):
        assert len(set(classes.tolist())) == 5
        alphabets = OF_CLASS[classes].tolist()
        blocks = list(dict.fromkeys(alphabets))
        assert alphabets == sorted(alphabets, key=blocks.index)  # no alphabet returns
        for name in blocks[:-1]:
            assert alphabets.count(name) == (name == OF_CLASS).sum()  # used up before the next begins
        assert first.tolist() == [alphabets.index(name) for name in alphabets]
        orders.add(tuple(classes))
    assert {OF_CLASS[order[0]] for order in orders} == {0, 1, 2, 3}
    assert len(orders) > 200


def test_across_and_mixed():
    chosen, alike = choices("across")
    assert np.array_equal(alike, np.broadcast_to(np.arange(5), alike.shape))
    shares = np.bincount(chosen.ravel(), minlength=10) / chosen.size
    np.testing.assert_allclose(shares, 0.1, atol=0.03)
    _, mixed = choices("mixed")
    within = np.mean(np.any(mixed != np.arange(5), axis=1))  # five of these classes always share an alphabet
    assert 0.4 < within < 0.6


@pytest.mark.parametrize(("kind", "strict"), [("within", True), ("across", False)])
def test_an_episode_is_of_one_alphabet_and_turned_as_one(images, kind, strict):
    task = Classification(classes=2, length=8, labels="strings", alphabets=kind)
    episodes = draw(task, jax.random.split(jax.random.key(1), 60), prepare(images))
    one, turned = [], []
    for pictures in np.asarray(episodes.inputs):
        classes, quarters = decode(pictures)
        if 9 in classes:
            continue  # the only one of its alphabet: a second follows
        one.append(len(set(OF_CLASS[classes])) == 1)
        turned.append(len(set(quarters)) == 1)
    assert np.all(one) == np.all(turned) == strict
    assert len(one) > 30


def test_a_pool_and_its_episodes_are_of_few_alphabets(images):
    pool = PoolConfig(episodes=2, classes=6, drawings=2)
    task = ManyThings(classes=4, fewest=2, length=8, pool=pool, alphabets="within")
    drawings = prepare(images)
    episodes = jax.jit(lambda keys: task.draw_training(keys, drawings))(
        jax.random.split(jax.random.key(2), 40)
    )
    shown = episodes.inputs.spread(episodes.inputs.pictures)
    pools = [set(decode(pictures)[0].tolist()) for pictures in np.asarray(episodes.inputs.pictures)]
    for number, (pictures, mask) in enumerate(zip(np.asarray(shown), np.asarray(episodes.mask), strict=True)):
        classes = set(decode(pictures)[0][mask].tolist())
        others = pools[number // 2] - classes
        parted = {OF_CLASS[c] for c in classes} & {OF_CLASS[c] for c in others}
        assert len(parted) <= 1  # all of an alphabet that the pool has, before another begins


def test_sets_say_of_which_alphabet_a_class_is(images):
    assert images.subset(2, 5).alphabets == ALPHABETS[2:5]
    mirrored = images.with_mirror_images().alphabets
    assert mirrored[:10] == ALPHABETS
    assert not set(mirrored[:10]) & set(mirrored[10:])
    assert len(set(Glyphs(classes=70).load().alphabets)) == 3


def test_data_without_alphabets_are_of_one_and_tasks_without_classes_refuse(images):
    plain, key = prepare(dataclasses.replace(images, alphabets=())), jax.random.key(0)
    within, across = (Classification(classes=2, alphabets=kind) for kind in ("within", "across"))
    np.testing.assert_array_equal(within.draw(key, plain).inputs, across.draw(key, plain).inputs)
    assert Regression().resized(alphabets="across") == Regression()
    with pytest.raises(MannError, match="has no classes"):
        Regression().resized(alphabets="within")
    assert Classification().resized(alphabets="within").alphabets == "within"


def test_lakes_split_is_by_his_alphabets():
    assert Omniglot(split="lake").divide(1623) == (864, 964, 1623)
    assert Omniglot().divide(1623) == (1100, 1200, 1623)
