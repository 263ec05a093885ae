"""Episodes for people to look at: drawings at their full size, turned and shifted as in training, but by PIL."""

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from mann.data.images import SIDE
from mann.data.render import MAX_ROTATION, MAX_SHIFT

_DEGREES = float(np.degrees(MAX_ROTATION))
_PIXELS = MAX_SHIFT * SIDE  # at the full size of a drawing


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
        across, down = rng.uniform(-_PIXELS, _PIXELS, 2)
        picture = Image.fromarray(255 - 255 * drawing).rotate(
            rng.uniform(-_DEGREES, _DEGREES),
            Image.Resampling.BILINEAR,
            translate=(across, down),
            fillcolor=255,
        )
        stream.append((picture.rotate(90 * int(quarters[which])), int(which)))
    return stream
