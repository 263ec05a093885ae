"""Colour pictures of any size as squares of red, green and blue."""

from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps

from mann.data.decode import read_colours

LARGEST = 256  # pixels per side that are kept: far more than a network sees


def square_colours(
    image: Image.Image | np.ndarray | str | Path, name: str = "the image", side: int = 0
) -> UInt8[np.ndarray, "side side 3"]:
    """The middle square of a file, a PIL image or an array, of all kinds that `mann.data.decode.read_grey` takes.

    Args:
        image: the picture. Transparent parts are laid on white; a camera's orientation is honoured.
        name: what errors call a picture that is no file.
        side: pixels per side of the square; 0 for as many as there are, up to 256.

    Raises:
        MannError: for what cannot be read as a picture.
    """
    colours = Image.fromarray(read_colours(image, name))
    side = side or min(*colours.size, LARGEST)
    return np.asarray(ImageOps.fit(colours, (side, side), Image.Resampling.BOX))
