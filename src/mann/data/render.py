"""Augmentation on the device: small rotation, translation, downscale to 20×20, rotation by quarter turns.

Downscaling is anti-aliased with a triangle filter that reaches one output pixel (5.25 source pixels) to each side,
as image libraries do for "bilinear with antialiasing". The filtered value at *every* point of a grid three times
finer than the output is computed once, when the data set is loaded (`prepare`). Drawing an augmented image is then
one bilinear look-up a pixel at the transformed position (`render`), which is cheap enough to happen inside every
training update.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int, UInt8

from mann.data.images import SIDE, ImageSet
from mann.errors import MannError

SIZE = 20  # pixels a side of what the network sees
FINE = 3  # grid points of the prefiltered drawing per output pixel
PAD = 4  # points beyond the frame; the outermost are empty, so that positions outside can be clipped to them
GRID = SIZE * FINE + 2 * PAD  # 68
MOST_DRAWINGS = 2**31 // GRID**2  # positions in the whole set are 32-bit integers
MAX_ROTATION = np.pi / 16
MAX_SHIFT = 10 * SIZE / SIDE  # 10 source pixels, in output pixels


class Drawings(NamedTuple):
    """A prefiltered data set on the device."""

    grids: UInt8[Array, "classes drawings grid grid"]  # 0 (paper) … 255 (ink)
    counts: Int[Array, "classes"]  # real drawings of each class


class Transform(NamedTuple):
    """How one image is augmented; lengths in output pixels, angles in radians, quarter in turns of 90°."""

    rotation: Float[Array, "*batch"]
    shift: Float[Array, "*batch 2"]  # down, right
    quarter: Int[Array, "*batch"]


def _triangle_filter() -> Float[np.ndarray, "grid 105"]:
    """Row g weighs the source pixels around grid point g; beyond the frame there is empty paper."""
    pixel = SIDE / SIZE  # 5.25 source pixels an output pixel
    points = (np.arange(GRID) - PAD + 0.5) * pixel / FINE
    sources = np.arange(-SIDE, 2 * SIDE) + 0.5
    weights = np.clip(1 - np.abs(points[:, None] - sources) / pixel, 0, None)
    weights /= weights.sum(axis=1, keepdims=True)
    return weights[:, SIDE : 2 * SIDE].astype(np.float32)


@partial(jax.jit, static_argnames="ink")
def _prefilter(images: UInt8[Array, "n 105 105"], ink: int) -> UInt8[Array, "n grid grid"]:
    triangle = jnp.asarray(_triangle_filter())
    filtered = jnp.einsum("gy,nyx,hx->ngh", triangle, images.astype(jnp.float32), triangle)
    return jnp.round(filtered * (255 / ink)).astype(jnp.uint8)


def prepare(dataset: ImageSet, chunk: int = 2000) -> Drawings:
    """Prefilter every drawing of a data set and leave the result on the device (4.6 KB a drawing)."""
    if np.any(dataset.counts < 1):
        raise MannError(f"A class of {dataset.name!r} has no drawings: remove it or add some.")
    if dataset.images.shape[0] * dataset.images.shape[1] > MOST_DRAWINGS:
        raise MannError(f"{dataset.name!r} has more than {MOST_DRAWINGS} drawings: use a part of it.")
    flat = dataset.images.reshape(-1, SIDE, SIDE)
    parts = [
        np.asarray(_prefilter(jnp.asarray(flat[i : i + chunk]), ink=dataset.ink))
        for i in range(0, len(flat), chunk)
    ]
    grids = np.concatenate(parts).reshape(*dataset.images.shape[:2], GRID, GRID)
    return Drawings(jnp.asarray(grids), jnp.asarray(dataset.counts, jnp.int32))


_CENTRES = _triangle_filter()[PAD + FINE // 2 : PAD + FINE * SIZE : FINE]  # the middle of each output pixel


def downscale(image: UInt8[np.ndarray, "105 105"]) -> Float32[np.ndarray, "400"]:
    """One drawing (paper 0 … ink 255) on the host: what `render` gives for it without any transform."""
    filtered = _CENTRES @ image.astype(np.float32) @ _CENTRES.T
    return (np.round(filtered) / np.float32(255)).ravel()


def random_transform(uniform: Float[Array, "n 3"]) -> tuple[Float[Array, "n"], Float[Array, "n 2"]]:
    """Rotation in ±π/16 and shift in ±10 source pixels, from three numbers in [0, 1) an image."""
    unit = 2 * uniform - 1
    return unit[:, 0] * MAX_ROTATION, unit[:, 1:] * MAX_SHIFT


def render(
    grids: UInt8[Array, "classes drawings grid grid"],
    classes: Int[Array, "n"],
    drawings: Int[Array, "n"],
    transform: Transform,
) -> Float[Array, "n 400"]:
    """Augmented 20×20 images of the named drawings, flattened, paper 0 … ink 1.

    The drawing is turned by `rotation` about the centre of the frame, moved by `shift`, downscaled, and the
    20×20 result turned counter-clockwise by `quarter` × 90°.
    """
    centred = jnp.arange(SIZE, dtype=jnp.float32) - (SIZE - 1) / 2
    down, right = (axis.reshape(1, -1) for axis in jnp.meshgrid(centred, centred, indexing="ij"))

    # Each output pixel asks where its ink comes from: undo the quarter turn, the shift and the rotation.
    cos_q = jnp.array([1.0, 0.0, -1.0, 0.0])[transform.quarter, None]
    sin_q = jnp.array([0.0, 1.0, 0.0, -1.0])[transform.quarter, None]
    y = cos_q * down + sin_q * right - transform.shift[:, :1]
    x = -sin_q * down + cos_q * right - transform.shift[:, 1:]
    cos, sin = jnp.cos(transform.rotation)[:, None], jnp.sin(transform.rotation)[:, None]
    y, x = cos * y + sin * x, -sin * y + cos * x

    # In grid points; the clip stops just short of the last point so that its right neighbour exists.
    middle = (GRID - 1) / 2
    y, x = (jnp.clip(axis * FINE + middle, 0.0, GRID - 1.001) for axis in (y, x))
    weight_y, weight_x = y - jnp.floor(y), x - jnp.floor(x)
    row, column = y.astype(jnp.int32), x.astype(jnp.int32)

    _, per_class, _, _ = grids.shape
    start = (classes * per_class + drawings)[:, None] * (GRID * GRID) + row * GRID + column
    flat = grids.reshape(-1)

    def point(offset: int) -> Float[Array, "n 400"]:
        return flat.at[start + offset].get(mode="promise_in_bounds").astype(jnp.float32)

    upper = point(0) + weight_x * (point(1) - point(0))
    lower = point(GRID) + weight_x * (point(GRID + 1) - point(GRID))
    return (upper + weight_y * (lower - upper)) / 255
