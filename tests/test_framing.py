"""Framing: the ink moved and scaled to where it usually is, against scipy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import ndimage

from mann.encoders import SPREAD, ConvStackConfig, MLPConfig, NoEncoder, frame
from mann.errors import MannError
from mann.native.convolutions import encode


def test_framed_ink_is_in_the_middle_and_of_the_usual_size():
    """Against scipy's centre of mass and affine transform."""
    rng = np.random.default_rng(0)
    pictures = np.zeros((6, 20, 20, 2), np.float32)
    for number, picture in enumerate(pictures):
        top, left = rng.integers(1, 8, 2)
        picture[top : top + 6 + number, left : left + 8] = rng.uniform(0.2, 1.0, (6 + number, 8, 2))
    framed = np.asarray(frame(jnp.asarray(pictures)), np.float64)
    for picture, got in zip(pictures.astype(np.float64), framed, strict=True):
        ink = picture.sum(axis=-1)
        centre = np.array(ndimage.center_of_mass(ink))
        places = np.stack(np.indices(ink.shape), axis=-1)
        scale = np.sqrt(np.average(((places - centre) ** 2).sum(-1), weights=ink)) / (SPREAD * 20)
        for channel in range(2):
            expected = ndimage.affine_transform(
                picture[..., channel], [scale, scale], centre - scale * 9.5, order=1, mode="grid-constant"
            )
            np.testing.assert_allclose(got[..., channel], expected, atol=1e-4)


def test_a_picture_without_ink_and_a_dot_are_framed_without_trouble():
    pictures = np.zeros((2, 20, 20, 1), np.float32)
    pictures[1, 4, 17] = 1.0
    framed = np.asarray(frame(jnp.asarray(pictures)))
    gradient = jax.grad(lambda p: frame(p).sum())(jnp.asarray(pictures))
    assert not framed[0].any()
    assert framed[1, 8:12, 8:12].sum() == pytest.approx(framed[1].sum())  # not blown up beyond twice its size
    assert np.isfinite(np.asarray(gradient)).all()


def test_a_shifted_picture_has_the_same_features_if_it_is_framed():
    encoder = MLPConfig(hidden=16, layers=1, features=5, framed=True).build(
        (20, 20, 1), key=jax.random.key(0)
    )
    picture = np.zeros((20, 20), np.float32)
    picture[5:12, 6:13] = np.random.default_rng(0).uniform(size=(7, 7))
    moved = np.roll(picture, (2, -3), axis=(0, 1))
    features = encoder(jnp.asarray(np.stack([picture, moved]).reshape(2, 400)))
    np.testing.assert_allclose(features[0], features[1], atol=1e-4)


@pytest.mark.parametrize("config", [MLPConfig(framed=True), NoEncoder(framed=True)])
def test_only_pictures_can_be_framed(config):
    with pytest.raises(MannError, match="Only pictures"):
        config.build((3,), key=jax.random.key(0))


def test_convolutions_see_what_was_framed_natively_and_not():
    plain, framed = (
        ConvStackConfig((16, 16), (2, 2), 5, framed=choice).build((20, 20, 1), key=jax.random.key(0))
        for choice in (False, True)
    )
    pictures = np.zeros((3, 20, 20, 1), np.float32)
    pictures[:, 2:11, 3:9] = np.random.default_rng(0).uniform(size=(3, 9, 6, 1))
    x = jnp.asarray(pictures.reshape(3, 400))
    expected = plain(frame(jnp.asarray(pictures)).reshape(3, 400))
    for way in (framed, functools.partial(encode, framed)):
        np.testing.assert_allclose(way(x), expected, atol=1e-4)
