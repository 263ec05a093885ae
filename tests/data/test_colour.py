"""Colour pictures as they come, against what PIL makes of them."""

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageOps

from mann.data import Objects
from mann.data.colour import square_colours
from mann.data.images import ImageSet
from mann.data.render import Drawings, Transform, downscale, prepare, render
from mann.errors import MannError
from mann.online.examples import prepare_picture


@pytest.fixture(scope="module")
def scene() -> np.ndarray:
    """60 rows, 90 columns; smooth, so that a JPEG of it is about the same."""
    down, right = np.indices((60, 90)) / 90
    return np.stack([255 * right, 255 * down, 120 + 100 * np.sin(6 * right)], axis=-1).astype(np.uint8)


def middle(picture: Image.Image) -> np.ndarray:
    """The middle square by PIL's crop."""
    left, top = (picture.width - 60) // 2, (picture.height - 60) // 2
    return np.asarray(picture.crop((left, top, left + 60, top + 60)))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_turned_as_the_camera_was_held(scene, orientation, tmp_path):
    upright = Image.fromarray(scene)
    back = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # PIL's Transpose that undoes the camera's turn
    stored = upright if orientation == 1 else upright.transpose(Image.Transpose(back[orientation]))
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "photo.png"
    stored.save(path, exif=exif)
    with Image.open(path) as opened:
        expected = middle(ImageOps.exif_transpose(opened))
    np.testing.assert_array_equal(expected, middle(upright))
    np.testing.assert_array_equal(square_colours(path), expected)


def test_transparent_parts_are_white(scene):
    alpha = np.zeros(scene.shape[:2], np.uint8)
    alpha[:, 45:] = 255
    alpha[:30, 45:] = 128
    picture = Image.fromarray(np.dstack([scene, alpha]))
    white = Image.new("RGBA", picture.size, "white")
    expected = middle(Image.alpha_composite(white, picture).convert("RGB")).astype(int)
    for given in (picture, np.asarray(picture)):
        got = square_colours(given).astype(int)
        assert (got[:, :30] == 255).all()
        np.testing.assert_allclose(got, expected, atol=2)


@pytest.mark.parametrize("mode", ["L", "LA", "P", "1", "CMYK", "YCbCr", "HSV", "I;16"])
def test_every_mode_of_pil_is_read(scene, mode):
    grey = Image.fromarray(scene).convert("L")
    if mode == "I;16":
        picture = Image.fromarray(np.asarray(grey).astype(np.uint16) * 257)
        expected = grey.convert("RGB")
    else:
        picture = (grey if mode in ("LA", "1") else Image.fromarray(scene)).convert(mode)
        expected = picture.convert("RGB")
    np.testing.assert_allclose(square_colours(picture).astype(int), middle(expected).astype(int), atol=1)


def test_arrays_of_bytes_floats_and_booleans_are_the_same_picture(scene):
    square = scene[:, 15:75]
    np.testing.assert_array_equal(square_colours(square), square)
    np.testing.assert_array_equal(square_colours(square / 255), square)
    np.testing.assert_array_equal(square_colours(square.astype(np.float64)), square)
    np.testing.assert_array_equal(square_colours(square.astype(np.uint16) * 257), square)
    dark = np.ones((8, 8, 3), np.uint8)  # nearly black: bytes are bytes
    np.testing.assert_array_equal(square_colours(dark), dark)
    grey = square_colours(square[..., 0] > 100)
    np.testing.assert_array_equal(grey, np.where(square[..., :1] > 100, 255, 0).repeat(3, 2))


def test_a_large_photograph_is_made_smaller_as_pil_does(scene):
    large = Image.fromarray(scene).resize((1800, 1200), Image.Resampling.BICUBIC)
    got = square_colours(large)
    assert got.shape == (256, 256, 3)
    expected = np.asarray(ImageOps.fit(large, (256, 256), Image.Resampling.BOX))
    np.testing.assert_allclose(got.astype(int), expected.astype(int), atol=4)
    assert square_colours(large, side=32).shape == (32, 32, 3)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.full((4, 4, 3), np.nan), "NaN or infinite"),
        (np.zeros((4, 4, 5)), r"its shape is \(4, 4, 5\)"),
        (np.zeros((0, 4, 3)), "it is empty"),
        (np.full((4, 4, 3), -1.0), "its values go from -1.0"),
        (np.full((4, 4, 3), "a"), "its pixels are"),
    ],
)
def test_what_is_no_picture_gets_a_sentence(array, message):
    with pytest.raises(MannError, match=f"Cannot use the thing: .*{message}"):
        square_colours(array, "the thing")


def test_a_file_that_is_no_picture_is_named(tmp_path):
    path = tmp_path / "photo.jpg"
    path.write_bytes(b"hello")
    with pytest.raises(MannError, match=r"photo\.jpg: it is not a readable image"):
        square_colours(path)
    with pytest.raises(MannError, match=r"Cannot use .*missing\.png"):
        square_colours(tmp_path / "missing.png")


def test_beyond_a_photograph_its_edge_goes_on():
    """Against PIL's filter on the same picture with its edge repeated."""
    rng = np.random.default_rng(0)
    picture = rng.integers(0, 256, (24, 24, 3)).astype(np.uint8)
    padded = np.pad(picture, ((24, 24), (24, 24), (0, 0)), mode="edge")
    expected = np.asarray(Image.fromarray(padded).resize((36, 36), Image.Resampling.BILINEAR))[12:24, 12:24]
    np.testing.assert_allclose(
        downscale(picture, 12, paper=False).reshape(12, 12, 3) * 255, expected, atol=1.1
    )
    images = ImageSet("one", picture[None, None], np.ones(1, int), ("a",), ink=255, side=12, has_paper=False)
    drawings: Drawings = prepare(images)
    zero, place = jnp.zeros(1), jnp.zeros(1, jnp.int32)
    still = render(drawings, place, place, Transform(zero, jnp.zeros((1, 2)), place))
    np.testing.assert_allclose(np.asarray(still)[0], downscale(picture, 12, paper=False), atol=1e-6)
    moved = render(drawings, place, place, Transform(zero, jnp.array([[0.0, 30.0]]), place))
    columns = np.asarray(moved).reshape(12, 12, 3)
    np.testing.assert_allclose(columns, columns[:, :1].repeat(12, 1), atol=1e-6)  # far to the left: all edge
    assert columns.min() > 0


def test_a_learner_sees_colours_where_it_was_trained_on_them(scene):
    prepared = prepare_picture(Image.fromarray(scene), data=Objects())
    assert prepared.pixels.shape == (32 * 32 * 3,)
    expected = np.asarray(
        Image.fromarray(middle(Image.fromarray(scene))).resize((32, 32), Image.Resampling.BILINEAR)
    )
    inner = prepared.pixels.reshape(32, 32, 3)[1:-1, 1:-1] * 255
    np.testing.assert_allclose(inner, expected[1:-1, 1:-1], atol=1.5)
