"""Episodes for people to look at: drawings at their full size, turned and shifted as in training, but by PIL."""

import numpy as np
from jaxtyping import UInt8
from PIL import Image

MAX_ROTATION = 180 / 16  # degrees
MAX_SHIFT = 10  # pixels of 105


def draw_pictures(
    bitmaps: UInt8[np.ndarray, "classes drawings 105 105"],
    classes: int,
    length: int,
    rng: np.random.Generator,
) -> list[tuple[Image.Image, int]]:
    """A stream of pictures (black ink on white) of a few classes, each with the number of its class, from 0.

    As in `Classification.draw`: classes, their quarter turns and the class of every picture are random, and no
    drawing returns before all of its class were shown. `bitmaps` have ink = 1.
    """
    chosen = rng.choice(len(bitmaps), classes, replace=False)
    quarters = rng.integers(0, 4, classes)
    order = np.stack([rng.permutation(bitmaps.shape[1]) for _ in chosen])
    seen = np.zeros(classes, int)
    stream = []
    for which in rng.integers(0, classes, length):
        drawing = bitmaps[chosen[which], order[which, seen[which] % bitmaps.shape[1]]]
        seen[which] += 1
        across, down = rng.uniform(-MAX_SHIFT, MAX_SHIFT, 2)
        picture = Image.fromarray(255 - 255 * drawing).rotate(
            rng.uniform(-MAX_ROTATION, MAX_ROTATION),
            Image.Resampling.BILINEAR,
            translate=(across, down),
            fillcolor=255,
        )
        stream.append((picture.rotate(90 * int(quarters[which])), int(which)))
    return stream
