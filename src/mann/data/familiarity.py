"""Whether a picture looks like the drawings that the networks were trained on."""

import numpy as np
from jaxtyping import UInt8
from scipy import ndimage

# What all but 3 in 1000 drawings of Omniglot's training classes have (6000 of them were measured), and of the
# built-in glyphs as well.
INK = (0.004, 0.18)  # part of the frame
MOST_WIDTH = 10.0  # of its strokes, in pixels of 105
MOST_PIECES = 5  # that do not touch


def why_unfamiliar(levels: UInt8[np.ndarray, "105 105"]) -> str:
    """One phrase on what no drawing of the training data is like; empty for a picture like them."""
    mask = levels > 127
    ink = mask.mean()
    if not INK[0] <= ink <= INK[1]:
        return f"ink covers {100 * ink:.1f} % of it, not {100 * INK[0]:.1f} to {100 * INK[1]:.0f} %"
    # Of a band, the mean distance to its edge is a quarter of its width.
    width = 4 * (ndimage.distance_transform_edt(mask)[mask] - 0.5).mean()
    if width > MOST_WIDTH:
        return f"its strokes are {width:.0f} pixels wide, not at most {MOST_WIDTH:.0f}, or it is filled in"
    pieces = ndimage.label(mask, np.ones((3, 3)))[1]
    if pieces > MOST_PIECES:
        return f"it is in {pieces} pieces, not at most {MOST_PIECES}"
    return ""
