"""Pieces of real photographs, to test on: those that come with scikit-learn, cut up and taken again.

A class is a place in one of the photographs. Its pictures show that place from a little further left or right,
nearer or farther, turned, and in other light.
"""

import numpy as np
from jaxtyping import Float32
from numpy.random import Generator, default_rng
from scipy import ndimage

from mann.data.images import ImageSet
from mann.data.light import Colours, take_photographs
from mann.errors import MannError, check_range, check_seed

HEIGHT = 48  # pixels per side, as of `mann.data.objects`
MOST_PICTURES = 200
_WINDOW, _STEP = 90, 60  # pixels of a photograph: of a place, and from one place to the next
_PLAIN = 0.09  # standard deviation of levels below which there is nothing to recognise, such as sky
_SHIFT, _TURN, _ZOOM = 9.0, 0.15, 0.1  # by how much a picture differs from the place: standard deviations


def load_photographs(pictures: int, seed: int) -> ImageSet:
    """Places of which there is something to recognise, in the order of the photographs.

    Raises:
        MannError: if scikit-learn is not installed, or for a number that cannot be meant.
    """
    check_range("The pictures of each place", pictures, 2, MOST_PICTURES)
    check_seed(seed)
    try:
        from sklearn import datasets

        found = datasets.load_sample_images()
    except ImportError:
        raise MannError("The photographs come with scikit-learn: pip install scikit-learn.") from None
    images: list[np.ndarray] = []
    labels: list[str] = []
    for name, photograph in zip(found.filenames, found.images, strict=True):
        levels = np.asarray(photograph, np.float32) / 255
        smooth = ndimage.gaussian_filter(levels, (_WINDOW / HEIGHT / 2, _WINDOW / HEIGHT / 2, 0))
        reach = _WINDOW // 2 + 15  # some room for pictures that are moved or turned
        for y in range(reach, levels.shape[0] - reach, _STEP):
            for x in range(reach, levels.shape[1] - reach, _STEP):
                half = _WINDOW // 2
                piece = levels[y - half : y + half, x - half : x + half]
                if piece.std(axis=(0, 1)).mean() >= _PLAIN:
                    rng = default_rng([seed, len(images)])
                    images.append(take_photographs(_scenes(smooth, y, x, pictures, rng), rng))
                    labels.append(f"{str(name).rpartition('/')[2]} at {x}, {y}")
    return ImageSet("photographs", np.stack(images), np.full(len(images), pictures), tuple(labels), ink=255)


def _scenes(
    photograph: Float32[np.ndarray, "height width 3"], y: int, x: int, pictures: int, rng: Generator
) -> Colours:
    """A place seen from several stands."""
    down, right = (np.indices((HEIGHT, HEIGHT)) + 0.5) * (_WINDOW / HEIGHT) - _WINDOW / 2
    scenes = np.empty((pictures, HEIGHT, HEIGHT, 3), np.float32)
    for scene in scenes:
        turn, zoom = rng.normal(0, _TURN), np.exp(rng.normal(0, _ZOOM))
        dy, dx = np.clip(rng.normal(0, _SHIFT, 2), -2 * _SHIFT, 2 * _SHIFT)
        rows = y + dy + zoom * (np.cos(turn) * down + np.sin(turn) * right)
        columns = x + dx + zoom * (np.cos(turn) * right - np.sin(turn) * down)
        for channel in range(3):
            ndimage.map_coordinates(
                photograph[..., channel], [rows, columns], scene[..., channel], order=1, mode="nearest"
            )
    return scenes
