"""Scikit-learn's digits: ten classes of 8×8 pixels from 43 hands, which come with the package."""

import numpy as np

from mann.data.images import SIDE, ImageSet
from mann.data.ink import enlarge_strokes, normalise_image
from mann.errors import MannError, check_range

CLASSES = 10
MOST = 174  # drawings that every digit has


def load_digits(drawings: int) -> ImageSet:
    """The first so many of each digit, brought to what other drawings look like.

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
    for digit in range(CLASSES):
        for place, picture in enumerate(found.images[found.target == digit][:drawings]):
            images[digit, place] = normalise_image(enlarge_strokes(picture / 16), "a digit")
    labels = tuple(str(digit) for digit in range(CLASSES))
    return ImageSet("digits", images, np.full(CLASSES, drawings), labels, ink=255)
