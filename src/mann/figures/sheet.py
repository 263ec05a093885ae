"""A sheet of drawings, to look at a data set."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from mann.data.images import ImageSet
from mann.data.render import Transform, prepare, random_transform, render


def draw_sheet(images: ImageSet, rows: int, columns: int, seed: int = 0) -> Image.Image:
    """Random classes, one per row: drawings on the left, augmented inputs of the network on the right."""
    rng = np.random.default_rng(seed)
    rows = min(rows, len(images))
    classes = np.sort(rng.choice(len(images), rows, replace=False))
    drawings = np.stack([rng.permuted(np.arange(columns) % images.counts[c]) for c in classes])
    chosen = replace(images, images=images.images[classes], counts=images.counts[classes], labels=())
    side, channels = images.format
    uniform = jax.random.uniform(jax.random.key(seed), (rows * columns, 3))
    rotation, shift = random_transform(uniform, side)
    quarter = jnp.asarray(np.repeat(rng.integers(0, 4, rows), columns))
    small = render(
        prepare(chosen),
        jnp.asarray(np.repeat(np.arange(rows), columns)),
        jnp.asarray(drawings.reshape(-1)),
        Transform(rotation, shift, quarter),
    )
    gap = 5
    source = chosen.images[np.arange(rows)[:, None], drawings] / images.ink
    height = source.shape[2]
    times = max(1, height // side)
    seen = np.asarray(small).reshape(rows, columns, side, side, channels)
    enlarged = seen.repeat(times, axis=2).repeat(times, axis=3)
    left = _tile(source.reshape(rows, columns, height, height, channels), gap)
    rest = height - enlarged.shape[2]
    frame = (rest // 2, rest - rest // 2)
    right = _tile(np.pad(enlarged, ((0, 0), (0, 0), frame, frame, (0, 0))), gap)
    between = np.full((left.shape[0], 4 * gap, channels), 0.6)
    levels = np.concatenate([left, between, right], axis=1)
    picture = levels if channels > 1 else 1 - levels  # ink is dark
    return Image.fromarray((255 * picture).astype(np.uint8).squeeze())


def _tile(pictures: np.ndarray, gap: int) -> np.ndarray:
    """(rows, columns, side, side, channels) to one picture with grey lines between."""
    rows, columns, side, _, channels = pictures.shape
    sheet = np.full((rows * (side + gap) + gap, columns * (side + gap) + gap, channels), 0.15)
    for i in range(rows):
        for j in range(columns):
            top, left = gap + i * (side + gap), gap + j * (side + gap)
            sheet[top : top + side, left : left + side] = pictures[i, j]
    return sheet
