"""Augmented images against scipy's affine transform and Pillow's bilinear (triangle) filter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image, ImageDraw
from scipy import ndimage, stats

from mann.data import render as rendering
from mann.data.images import SIDE, ImageSet, PictureFormat
from mann.data.render import (
    Transform,
    grid_side,
    prepare,
    random_bend,
    random_distortion,
    random_transform,
)
from mann.errors import MannError

COUNT = 8  # stroke drawings: two classes of four
render = jax.jit(rendering.render)


def image_set(images, ink=1, counts=None, side=20):
    images = np.asarray(images, np.uint8)
    counts = np.full(len(images), images.shape[1]) if counts is None else np.asarray(counts)
    return ImageSet("test", images, counts, tuple(str(i) for i in range(len(images))), ink, side)


def strokes(seed):
    """A bitmap like Omniglot's: a few lines and arcs, 3 pixels wide, ink 1."""
    rng = np.random.default_rng(seed)
    image = Image.new("L", (SIDE, SIDE), 0)
    draw = ImageDraw.Draw(image)
    for _ in range(3):
        draw.line(rng.integers(15, 90, 4).tolist(), fill=1, width=3)
    left, top = rng.integers(10, 50, 2)
    draw.arc([left, top, left + 45, top + 40], int(rng.integers(180)), int(rng.integers(200, 360)), 1, 3)
    return np.asarray(image)


@pytest.fixture(scope="module")
def bitmaps():
    return np.stack([strokes(seed) for seed in range(COUNT)])


@pytest.fixture(scope="module")
def pictures(bitmaps):
    return prepare(image_set(bitmaps.reshape(2, COUNT // 2, SIDE, SIDE)))


def show(pictures, rotation=0.0, shift=(0.0, 0.0), quarter=0, distortion=None, bend=None):
    """All drawings of the set under one transform, or a transform for each, as (n, side, side, *channels)."""
    classes, per_class, *channels = pictures.grids.shape[:-2]
    count, side = classes * per_class, pictures.format.side
    transform = Transform(
        jnp.asarray(np.broadcast_to(np.float32(rotation), count)),
        jnp.asarray(np.broadcast_to(np.asarray(shift, np.float32), (count, 2))),
        jnp.asarray(np.broadcast_to(np.int32(quarter), count)),
        distortion,
        bend,
    )
    index = np.arange(count, dtype=np.int32)
    classes, drawings = np.divmod(index, np.int32(per_class))
    return np.asarray(render(pictures, classes, drawings, transform)).reshape(count, side, side, *channels)


def enlarge(bitmap):
    """Four times the side, each pixel a square of 4×4."""
    return np.kron(bitmap.astype(np.float64), np.ones((4, 4)))


def downscale(image, side=20):
    """To side×side with Pillow's anti-aliased bilinear filter.

    Pillow lets the filter end at the border; paper goes on beyond it, hence a margin as wide as the picture.
    """
    padded = np.pad(np.asarray(image, np.float32), len(image))
    resized = Image.fromarray(padded).resize((3 * side, 3 * side), Image.Resampling.BILINEAR)
    return np.asarray(resized)[side : 2 * side, side : 2 * side]


def reference(bitmap, rotation, shift, distortion=None):
    """Turn counter-clockwise about the centre, move down and right by source pixels, then downscale.

    In rows and columns, counter-clockwise by φ takes an offset (down, right) from the centre to
    (cos φ · down − sin φ · right, sin φ · down + cos φ · right); scipy asks for the way back.
    """
    back = np.array([[np.cos(rotation), np.sin(rotation)], [-np.sin(rotation), np.cos(rotation)]])
    back = back if distortion is None else np.asarray(distortion) @ back
    # In four times the resolution, so that interpolation blurs the strokes as little as possible.
    fine = enlarge(bitmap)
    centre = (np.array(fine.shape) - 1) / 2
    offset = centre - back @ (centre + 4 * np.asarray(shift))
    moved = ndimage.affine_transform(fine, back, offset, order=1, mode="constant")
    return downscale(moved)


def test_untransformed_image_is_pillows_bilinear_filter(bitmaps, pictures):
    expected = np.stack([downscale(bitmap) for bitmap in bitmaps])
    assert np.abs(show(pictures) - expected).max() < 1 / 255


def test_random_transforms_agree_with_scipy_and_pillow(bitmaps, pictures):
    rng = np.random.default_rng(0)
    errors, correlations = [], []
    for _ in range(5):
        rotation = rng.uniform(-np.pi / 16, np.pi / 16, COUNT)
        shift = rng.uniform(-10, 10, (COUNT, 2))
        actual = show(pictures, rotation, shift * 20 / 105)
        for i, bitmap in enumerate(bitmaps):
            expected = reference(bitmap, rotation[i], shift[i])
            errors.append(np.abs(actual[i] - expected).mean())
            correlations.append(np.corrcoef(actual[i].ravel(), expected.ravel())[0, 1])
    # Rotating the filter with the grid, and bilinear look-up, are the only differences.
    assert max(errors) < 0.01
    assert min(correlations) > 0.99


def test_distortions_agree_with_scipy(bitmaps, pictures):
    distortion = random_distortion(jax.random.key(0), COUNT, 0.1)
    assert 0.1 < np.abs(np.asarray(distortion) - np.eye(2)).max() <= 0.2
    shift = np.tile([3.0, -5.0], (COUNT, 1))
    actual = show(pictures, 0.1, shift * 20 / 105, distortion=distortion)
    for i, bitmap in enumerate(bitmaps):
        expected = reference(bitmap, 0.1, shift[i], distortion[i])
        assert np.corrcoef(actual[i].ravel(), expected.ravel())[0, 1] > 0.985
        plain = reference(bitmap, 0.1, shift[i])
        assert np.abs(actual[i] - expected).mean() < 0.5 * np.abs(plain - expected).mean()


def bent(bitmap, knots):
    """Every point looks where scipy says its ink comes from, with Pillow's bicubic filter between the knots."""
    fine = enlarge(bitmap)
    scale = len(fine) / 20  # fine pixels per output pixel
    moved = [
        np.asarray(Image.fromarray(np.asarray(axis)).resize(fine.shape, Image.Resampling.BICUBIC))
        for axis in knots
    ]
    places = np.indices(fine.shape) + scale * np.stack(moved)
    return downscale(ndimage.map_coordinates(fine, places, order=1, mode="constant"))


def test_bends_agree_with_scipy_and_pillow(bitmaps, pictures):
    knots = random_bend(jax.random.key(0), COUNT, 0.02, 20)
    assert 0.7 < np.abs(np.asarray(knots)).max() <= 0.8  # output pixels
    actual, plain = show(pictures, bend=knots), show(pictures)
    expected = np.stack([bent(bitmap, moved) for bitmap, moved in zip(bitmaps, knots, strict=True)])
    for one, other in zip(actual, expected, strict=True):
        assert np.corrcoef(one.ravel(), other.ravel())[0, 1] > 0.98
    assert np.abs(actual - expected).mean() < 0.3 * np.abs(plain - expected).mean()
    np.testing.assert_array_equal(show(pictures, bend=0 * knots), plain)


@pytest.mark.parametrize("quarter", [0, 1, 2, 3])
@pytest.mark.parametrize(("rotation", "shift"), [(0.0, (0.0, 0.0)), (0.15, (1.5, -0.7))])
def test_quarter_turns_are_exactly_rot90_after_everything_else(pictures, quarter, rotation, shift):
    upright, turned = (show(pictures, rotation, shift, q) for q in (0, quarter))
    np.testing.assert_array_equal(turned, np.rot90(upright, quarter, axes=(1, 2)))


def square(row, column, half=6):
    """One square of ink, centred there."""
    image = np.zeros((1, 1, SIDE, SIDE), np.uint8)
    image[0, 0, row - half : row + half + 1, column - half : column + half + 1] = 1
    return prepare(image_set(image))


def centre_of_mass(image):
    return np.array(ndimage.center_of_mass(image))


@pytest.mark.parametrize("shift", [(1.9, 0.0), (0.0, 1.9), (-1.9, 0.7)])
def test_shift_moves_ink_down_and_right_by_output_pixels(shift):
    pictures = square(52, 52)
    moved = centre_of_mass(show(pictures, 0.0, shift)[0]) - centre_of_mass(show(pictures)[0])
    np.testing.assert_allclose(moved, shift, atol=0.05)


@pytest.mark.parametrize("angle", [0.15, -0.15])
def test_positive_rotation_is_counter_clockwise(angle):
    """Ink to the right of the centre goes up when turned counter-clockwise."""
    image = show(square(52, 90), angle)[0]
    down, right = centre_of_mass(image) - 9.5
    radius = (90 - 52) * 20 / 105
    np.testing.assert_allclose([down, right], [-radius * np.sin(angle), radius * np.cos(angle)], atol=0.05)


def test_rotation_comes_before_the_shift():
    angle, shift = 0.19, np.array([1.5, -1.0])
    together = centre_of_mass(show(square(52, 90), angle, shift)[0])
    np.testing.assert_allclose(together, centre_of_mass(show(square(52, 90), angle)[0]) + shift, atol=0.05)


@pytest.mark.parametrize(
    ("side", "direction"), [((0, 52), (-1, 0)), ((52, 0), (0, -1)), ((104, 52), (1, 0)), ((52, 104), (0, 1))]
)
def test_ink_that_leaves_the_frame_disappears(side, direction):
    """No wrapping around and no smear along the border, however far it goes."""
    image = np.zeros((1, 1, SIDE, SIDE), np.uint8)
    rows, columns = (slice(max(0, c - 4), c + 5) for c in side)
    image[0, 0, rows, columns] = 1
    pictures = prepare(image_set(image))
    assert show(pictures).max() > 0.5
    for distance in (2.0, 5.0, 19.0, 100.0):
        gone = show(pictures, 0.0, np.array(direction) * distance)[0]
        assert gone.max() < 1e-3


@pytest.mark.parametrize(
    ("shift", "turns"), [((1.9, 0.0), 0), ((0.0, 1.9), 1), ((-1.9, 0.0), 2), ((0.0, -1.9), 3)]
)
def test_full_page_shifted_leaves_empty_paper_behind(shift, turns):
    full = prepare(image_set(np.ones((1, 1, SIDE, SIDE))))
    image = np.rot90(show(full, 0.0, shift)[0], -turns)  # the empty side on top
    image = image[:, 1:-1]  # beside the page is paper, which the filter of the outer columns sees
    np.testing.assert_allclose(image[3:], 1, atol=2e-3)
    assert image[0].max() < 2e-3
    # The edge of the page at 1.9: what the triangle around 1.5 and 2.5 covers, ∫ from 0.4 and −0.6 to 1.
    np.testing.assert_allclose(image[1], 0.6**2 / 2, atol=0.02)
    np.testing.assert_allclose(image[2], 1 - 0.4**2 / 2, atol=0.02)


def test_output_is_ink_between_zero_and_one(pictures):
    images = show(
        pictures, np.linspace(-0.19, 0.19, COUNT), np.linspace(-1.9, 1.9, 2 * COUNT).reshape(COUNT, 2)
    )
    assert images.min() >= 0
    assert images.max() <= 1
    assert np.all(images.reshape(COUNT, -1).max(1) > 0.3)


def test_grey_levels_give_the_same_as_bitmaps_of_full_ink(bitmaps, pictures):
    grey = bitmaps.reshape(2, COUNT // 2, SIDE, SIDE) * np.uint8(255)
    again = prepare(image_set(grey, ink=255))
    assert (
        np.abs(np.asarray(again.grids, int) - np.asarray(pictures.grids, int)).max() <= 1
    )  # rounded once, in another order
    half = prepare(image_set(np.full((1, 1, SIDE, SIDE), 51), ink=255))
    np.testing.assert_allclose(show(half)[0, 1:-1, 1:-1], 0.2, atol=1e-6)


def test_preparing_in_chunks_changes_nothing(bitmaps, pictures):
    again = prepare(image_set(bitmaps.reshape(2, COUNT // 2, SIDE, SIDE)), chunk=3)
    np.testing.assert_array_equal(again.grids, pictures.grids)
    np.testing.assert_array_equal(again.counts, [COUNT // 2] * 2)


def test_class_without_drawings_is_refused_by_name(bitmaps):
    with pytest.raises(MannError, match="'test' has no drawings"):
        prepare(image_set(bitmaps[None, :2], counts=[0]))


def test_set_too_large_for_32_bit_positions_is_refused():
    drawings = 2**31 // grid_side(20) ** 2 + 1
    assert grid_side(20) == 68
    images = np.broadcast_to(np.zeros((), np.uint8), (1, drawings, SIDE, SIDE))  # takes no memory
    with pytest.raises(MannError, match=f"more than {drawings - 1} drawings"):
        prepare(ImageSet("huge", images, np.array([drawings]), ("a",)))


def test_random_transform_spans_the_papers_ranges():
    """±π/16 and ±10 of 105 pixels, each from a number of its own, linearly from 0 to 1."""
    ends = jnp.array([[0.0, 0.0, 0.0], [0.5, 0.5, 0.5], [1.0, 1.0, 1.0], [1.0, 0.5, 0.0]])
    rotation, shift = random_transform(ends, 20)
    np.testing.assert_allclose(rotation, np.array([-1, 0, 1, 1]) * np.pi / 16, rtol=1e-6)
    np.testing.assert_allclose(shift * 105 / 20, [[-10, -10], [0, 0], [10, 10], [0, -10]], rtol=1e-6)


def test_random_transforms_are_uniform_and_independent():
    rotation, shift = random_transform(jax.random.uniform(jax.random.key(0), (20_000, 3)), 20)
    columns = [np.asarray(rotation) / (np.pi / 16), *(np.asarray(shift).T * 105 / 20 / 10)]
    for column in columns:
        assert stats.kstest(column, stats.uniform(-1, 2).cdf).pvalue > 1e-3
    assert np.abs(np.corrcoef(columns) - np.eye(3)).max() < 5 / np.sqrt(20_000)


# Other formats


@pytest.fixture(scope="module")
def photographs():
    """Two classes of two, in colour and of smooth levels, as a camera sees them."""
    noise = np.random.default_rng(0).uniform(size=(2, 2, 40, 40, 3))
    smooth = ndimage.gaussian_filter(noise, (0, 0, 2, 2, 0))
    smooth = (smooth - smooth.min()) / np.ptp(smooth)
    return np.round(255 * smooth).astype(np.uint8)


@pytest.mark.parametrize(("height", "side"), [(SIDE, 28), (SIDE, 7), (28, 28), (9, 20)])
def test_pictures_of_another_side_are_pillows_too(bitmaps, height, side):
    """Also those that are as large as what the network sees, or smaller."""
    start = (SIDE - height) // 2
    pages = bitmaps[:, start : start + height, start : start + height]
    assert pages.any()
    prepared = prepare(image_set(pages[:, None], side=side))
    assert prepared.format == PictureFormat(side, 1)
    expected = np.stack([downscale(page, side) for page in pages])
    assert np.abs(show(prepared) - expected).max() < 1 / 255


def test_shift_is_the_same_part_of_a_picture_of_any_side():
    ends = jnp.array([[0.0, 0.0, 1.0]])
    for side in (20, 28, 105):
        rotation, shift = random_transform(ends, side)
        np.testing.assert_allclose(rotation, [-np.pi / 16], rtol=1e-6)
        np.testing.assert_allclose(shift, np.array([[-10, 10]]) * side / 105, rtol=1e-6)


@pytest.mark.parametrize("side", [20, 28])
def test_each_channel_of_a_colour_picture_is_rendered_like_a_grey_picture(photographs, side):
    rng = np.random.default_rng(1)
    transform = {
        "rotation": rng.uniform(-0.19, 0.19, 4),
        "shift": rng.uniform(-1.9, 1.9, (4, 2)),
        "quarter": [0, 1, 2, 3],
    }
    prepared = prepare(image_set(photographs, ink=255, side=side))
    assert prepared.format == PictureFormat(side, 3)
    together = show(prepared, **transform)
    for channel in range(3):
        grey = prepare(image_set(photographs[..., channel], ink=255, side=side))
        expected = show(grey, **transform)
        assert expected.std() > 0.05
        np.testing.assert_allclose(together[..., channel], expected, rtol=0, atol=1e-6)


def test_colour_pictures_in_chunks_are_the_same(photographs):
    whole, parts = (prepare(image_set(photographs, ink=255), chunk=chunk) for chunk in (2000, 5))
    np.testing.assert_array_equal(whole.grids, parts.grids)


@pytest.mark.parametrize("side", [20, 28])
def test_picture_made_smaller_on_the_host_is_what_is_rendered_without_a_transform(bitmaps, photographs, side):
    grey = bitmaps.reshape(2, COUNT // 2, SIDE, SIDE) * np.uint8(255)
    for images in (grey, photographs):
        rendered = show(prepare(image_set(images, ink=255, side=side)))
        rendered = rendered.reshape(len(rendered), -1)  # as `render` gives it: the channels last
        on_host = [rendering.downscale(image, side) for image in images.reshape(-1, *images.shape[2:])]
        assert all(picture.dtype == np.float32 for picture in on_host)
        # Both round to 255 levels; a level may fall on either side.
        np.testing.assert_allclose(on_host, rendered, atol=1.01 / 255)
        assert np.mean(np.abs(np.array(on_host) - rendered) > 1e-5) < 1e-3
