"""Augmentation on the device: small rotation, translation, downscaling, rotation by quarter turns; or more.

Downscaling is anti-aliased with a triangle filter that reaches one output pixel (for Omniglot at 20×20, 5.25
source pixels) to each side, as image libraries do for "bilinear with antialiasing". The filtered value at *every*
point of a grid three times finer than the output is computed once, when the data set is loaded (`prepare`).
Drawing an augmented image is then one bilinear look-up per pixel at the transformed position (`render`), which is
cheap enough to happen inside every training update.
"""

from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int, PRNGKeyArray, UInt8

from mann.data.images import ImageSet, PictureFormat
from mann.errors import MannError

FINE = 3  # grid points of the prefiltered picture per output pixel
PAD = 4  # points beyond the frame; the outermost are empty, so that positions outside can be clipped to them
MAX_ROTATION = np.pi / 16
MAX_SHIFT = 10 / 105  # of the side: 10 pixels of an Omniglot drawing
KNOTS = 5  # per side, that move by themselves where a drawing is bent


def grid_side(side: int) -> int:
    """Grid points per side for pictures of a side: 68 for 20."""
    return side * FINE + 2 * PAD


class Drawings(NamedTuple):
    """A prefiltered data set on the device, from `prepare`: what episodes are drawn from."""

    grids: UInt8[Array, "classes drawings *channels grid grid"]
    """0 (paper) … 255 (ink); colour pictures have an axis of channels before the grid."""
    counts: Int[Array, "classes"]
    """Real drawings of each class."""
    alphabets: Int[Array, "classes"] | None = None
    """The alphabet of each class, as a number; None where classes have none."""

    @property
    def format(self) -> PictureFormat:
        """The pictures that `render` makes of them."""
        shape = self.grids.shape
        return PictureFormat((shape[-1] - 2 * PAD) // FINE, shape[2] if len(shape) == 5 else 1)


class Transform(NamedTuple):
    """How one image is augmented; lengths in output pixels, angles in radians, quarter in turns of 90°."""

    rotation: Float[Array, "*batch"]
    shift: Float[Array, "*batch 2"]  # down, right
    quarter: Int[Array, "*batch"]
    distortion: Float[Array, "*batch 2 2"] | None = None
    """Taken to the way back, in down and right, before all else: near the identity it stretches and shears."""
    bend: Float[Array, "*batch 2 knots knots"] | None = None
    """How far an evenly spaced grid of knots moves, down and right; what lies between them follows smoothly."""


@cache
def _triangle_filter(source: int, side: int, paper: bool = True) -> Float32[np.ndarray, "grid source"]:
    """Row g weighs the source pixels around grid point g; beyond the frame there is empty paper, or its edge."""
    pixel = source / side  # source pixels per output pixel
    reach = max(pixel, 1.0)  # a picture that is enlarged is interpolated between neighbours
    points = (np.arange(grid_side(side)) - PAD + 0.5) * pixel / FINE
    sources = np.arange(-source, 2 * source) + 0.5
    weights = np.clip(1 - np.abs(points[:, None] - sources) / reach, 0, None)
    weights /= weights.sum(axis=1, keepdims=True)
    before, within, after = np.split(weights, [source, 2 * source], axis=1)
    if not paper:
        within[:, 0] += before.sum(axis=1)
        within[:, -1] += after.sum(axis=1)
    return within.astype(np.float32)


@partial(jax.jit, static_argnames=("ink", "side", "paper"))
def _prefilter(
    images: UInt8[Array, "n height height"], ink: int, side: int, paper: bool
) -> UInt8[Array, "n grid grid"]:
    triangle = jnp.asarray(_triangle_filter(images.shape[1], side, paper))
    filtered = jnp.einsum("gy,nyx,hx->ngh", triangle, images.astype(jnp.float32), triangle)
    return jnp.round(filtered * (255 / ink)).astype(jnp.uint8)


def prepare(dataset: ImageSet, chunk: int = 2000) -> Drawings:
    """Prefilter every drawing of a data set and leave the result on the device (4.6 KB per drawing of 20×20).

    Args:
        dataset: the pictures, on the host.
        chunk: drawings that are filtered at a time.

    Raises:
        MannError: for a class without drawings, or a data set that is too large.

    Examples:
        >>> from mann.data import Glyphs
        >>> drawings = prepare(Glyphs(classes=40).load())
        >>> drawings.counts.shape, drawings.format
        ((40,), PictureFormat(side=20, channels=1))
    """
    if np.any(dataset.counts < 1):
        raise MannError(f"A class of {dataset.name!r} has no drawings: remove it or add some.")
    classes, drawings, height, _, *channels = dataset.images.shape
    grid = grid_side(dataset.side)
    # Positions in the whole set are 32-bit integers.
    if (most := 2**31 // (grid**2 * int(np.prod(channels, initial=1)))) < classes * drawings:
        raise MannError(f"{dataset.name!r} has more than {most} drawings: use a part of it.")
    flat = np.moveaxis(dataset.images, 4, 2) if channels else dataset.images
    flat = flat.reshape(-1, height, height)
    prefilter = partial(_prefilter, ink=dataset.ink, side=dataset.side, paper=dataset.has_paper)
    parts = [np.asarray(prefilter(jnp.asarray(flat[i : i + chunk]))) for i in range(0, len(flat), chunk)]
    grids = np.concatenate(parts).reshape(classes, drawings, *channels, grid, grid)
    alphabets = None
    if dataset.alphabets:
        numbers = np.unique(dataset.alphabets, return_inverse=True)[1]
        alphabets = jnp.asarray(numbers, jnp.int32)
    return Drawings(jnp.asarray(grids), jnp.asarray(dataset.counts, jnp.int32), alphabets)


def downscale_matrix(height: int, side: int, paper: bool = True) -> Float32[np.ndarray, "side height"]:
    """What each output pixel takes from the pixels of a row or a column, at its middle."""
    return _triangle_filter(height, side, paper)[PAD + FINE // 2 : PAD + FINE * side : FINE]


def downscale(
    image: UInt8[np.ndarray, "height height *channels"], side: int, paper: bool = True
) -> Float32[np.ndarray, "pixels"]:
    """One picture (0 … 255) on the host: what `render` gives for it without any transform.

    Args:
        image: a square.
        side: pixels per side of the result.
        paper: whether empty paper goes on beyond the frame (`ImageSet.has_paper`).
    """
    centres = downscale_matrix(len(image), side, paper)
    if image.ndim == 2:
        return (np.rint(centres @ image.astype(np.float32) @ centres.T) / np.float32(255)).ravel()
    channels = np.moveaxis(np.atleast_3d(image), 2, 0).astype(np.float32)
    filtered = np.moveaxis(centres @ channels @ centres.T, 0, 2)
    return (np.round(filtered) / np.float32(255)).ravel()


def random_transform(
    uniform: Float[Array, "n 3"], side: int
) -> tuple[Float[Array, "n"], Float[Array, "n 2"]]:
    """Rotation in ±π/16 and shift in ±10/105 of the side, from three numbers in [0, 1) per image."""
    unit = 2 * uniform - 1
    return unit[:, 0] * MAX_ROTATION, unit[:, 1:] * (MAX_SHIFT * side)


def random_distortion(key: PRNGKeyArray, count: int, extent: float) -> Float[Array, "count 2 2"]:
    """Matrices about the identity: normal entries with a standard deviation of `extent`, cut off at twice that."""
    return jnp.eye(2)[None] + extent * jax.random.truncated_normal(key, -2.0, 2.0, (count, 2, 2))


def random_bend(
    key: PRNGKeyArray, count: int, extent: float, side: int
) -> Float[Array, "count 2 knots knots"]:
    """Knots that move by normal numbers with a standard deviation of `extent` sides, cut off at twice that."""
    return extent * side * jax.random.truncated_normal(key, -2.0, 2.0, (count, 2, KNOTS, KNOTS))


def _between(
    knots: Float[Array, "n 2 knots knots"], side: int
) -> tuple[Float[Array, "n pixels"], Float[Array, "n pixels"]]:
    """How far every pixel moves, down and right: cubic interpolation between the knots."""
    count = knots.shape[-1]
    cubic = jax.image.resize(jnp.eye(count), (side, count), "cubic")
    moved = jnp.einsum("yk,naki,xi->anyx", cubic, knots, cubic).reshape(2, len(knots), -1)
    return moved[0], moved[1]


def render(
    pictures: Drawings,
    classes: Int[Array, "n"],
    drawings: Int[Array, "n"],
    transform: Transform,
) -> Float[Array, "n pixels"]:
    """Augmented images of the named drawings, flattened row by row with the channels last, paper 0 … ink 1.

    The drawing is distorted, turned by `rotation` about the centre of the frame, moved by `shift`, downscaled, the
    result turned counter-clockwise by `quarter` × 90°, and bent.
    """
    side, channels = pictures.format
    grid = grid_side(side)
    centred = jnp.arange(side, dtype=jnp.float32) - (side - 1) / 2
    down, right = (axis.reshape(1, -1) for axis in jnp.meshgrid(centred, centred, indexing="ij"))

    # Each output pixel asks where its ink comes from: undo the bend, the quarter turn, the shift and the rotation.
    if transform.bend is not None:
        moved_down, moved_right = _between(transform.bend, side)
        down, right = down + moved_down, right + moved_right
    cos_q = jnp.array([1.0, 0.0, -1.0, 0.0])[transform.quarter, None]
    sin_q = jnp.array([0.0, 1.0, 0.0, -1.0])[transform.quarter, None]
    y = cos_q * down + sin_q * right - transform.shift[:, :1]
    x = -sin_q * down + cos_q * right - transform.shift[:, 1:]
    cos, sin = jnp.cos(transform.rotation)[:, None], jnp.sin(transform.rotation)[:, None]
    y, x = cos * y + sin * x, -sin * y + cos * x
    if transform.distortion is not None:
        (yy, yx), (xy, xx) = jnp.moveaxis(transform.distortion[..., None], 0, 2)
        y, x = yy * y + yx * x, xy * y + xx * x

    # In grid points; the clip stops just short of the last point so that its right neighbour exists.
    middle = (grid - 1) / 2
    y, x = (jnp.clip(axis * FINE + middle, 0.0, grid - 1.001) for axis in (y, x))
    weight_y, weight_x = y - jnp.floor(y), x - jnp.floor(x)
    row, column = y.astype(jnp.int32), x.astype(jnp.int32)

    picture = (classes * pictures.grids.shape[1] + drawings)[:, None] * channels
    flat = pictures.grids.reshape(-1)

    def channel(number: int) -> Float[Array, "n pixels"]:
        start = (picture + number) * (grid * grid) + row * grid + column

        def point(offset: int) -> Float[Array, "n pixels"]:
            return flat.at[start + offset].get(mode="promise_in_bounds").astype(jnp.float32)

        upper = point(0) + weight_x * (point(1) - point(0))
        lower = point(grid) + weight_x * (point(grid + 1) - point(grid))
        return (upper + weight_y * (lower - upper)) / 255

    if channels == 1:
        return channel(0)
    return jnp.stack([channel(i) for i in range(channels)], axis=-1).reshape(len(classes), -1)
