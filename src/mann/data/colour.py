"""Colour pictures of any size as squares of red, green and blue."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps

from mann.errors import MannError

LARGEST = 256  # pixels per side that are kept: far more than a network sees
MOST_PIXELS = 40_000_000


def square_colours(image: Any, name: str = "the image") -> UInt8[np.ndarray, "side side 3"]:
    """The middle square of a file, a PIL image or an array H×W(×1, 3 or 4) of bytes, or of floats in 0 … 1.

    Transparent parts are laid on white; a camera's orientation is honoured.
    """
    try:
        picture = _open(image)
        if picture.width * picture.height > MOST_PIXELS:
            raise MannError(f"Cannot use {name}: it has more than {MOST_PIXELS // 10**6} million pixels.")
        picture = ImageOps.exif_transpose(picture).convert("RGBA")
    except (OSError, ValueError, TypeError, SyntaxError) as error:
        raise MannError(f"Cannot use {name}: it is not a readable image ({error}).") from None
    white = Image.new("RGBA", picture.size, "white")
    opaque = Image.alpha_composite(white, picture).convert("RGB")
    side = min(*opaque.size, LARGEST)
    return np.asarray(ImageOps.fit(opaque, (side, side), Image.Resampling.BOX))


def _open(image: Any) -> Image.Image:
    if isinstance(image, Image.Image):
        return image
    if isinstance(image, str | Path):
        return Image.open(image)
    array = np.asarray(image)
    if array.dtype.kind == "f":
        array = np.rint(255 * np.clip(array, 0, 1))
    return Image.fromarray(array.astype(np.uint8).squeeze())
