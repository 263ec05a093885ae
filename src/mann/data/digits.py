"""Scikit-learn's digits: ten classes of 8×8 pixels from 43 hands, which come with the package."""

import numpy as np
from PIL import Image

from mann.data.images import SIDE, ImageSet
from mann.data.ink import EXTENT
from mann.errors import MannError, check_range

CLASSES, FULL = 10, 16  # digits; the level of full ink
MOST = 174  # drawings that every digit has


def load_digits(drawings: int) -> ImageSet:
    """The first so many of each digit, enlarged to the size that other drawings have.

    Raises:
        MannError: if scikit-learn is not installed, or for a number that cannot be meant.
    """
    check_range("The drawings of each digit", drawings, 2, MOST)
    try:
        from sklearn import datasets
    except ImportError:
        raise MannError("The digits come with scikit-learn: pip install scikit-learn.") from None
    found = datasets.load_digits()
    images = np.zeros((CLASSES, drawings, SIDE, SIDE), np.uint8)
    first = (SIDE - EXTENT) // 2
    place = slice(first, first + EXTENT)
    for digit in range(CLASSES):
        for drawing, levels in enumerate(found.images[found.target == digit][:drawings]):
            small = Image.fromarray(np.rint(levels * (255 / FULL)).astype(np.uint8))
            large = small.resize((EXTENT, EXTENT), Image.Resampling.BICUBIC)
            images[digit, drawing, place, place] = np.asarray(large)
    labels = tuple(str(digit) for digit in range(CLASSES))
    return ImageSet("digits", images, np.full(CLASSES, drawings), labels, ink=255)
