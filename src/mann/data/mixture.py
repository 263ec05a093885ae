"""Several data sets as one, in one size, ink and number of channels, ordered by what trains, watches and tests."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int, UInt8
from PIL import Image

from mann.data import DataConfig
from mann.data.images import ImageSet, PictureFormat

# Classes of the sources that were read: to divide them takes no more than that.
_sizes: dict[DataConfig, int] = {}


def mix(sources: Sequence[DataConfig], form: PictureFormat, drawings: int, whole: bool) -> ImageSet:
    """The training classes of all sources, then those that watch the training, then those that test.

    Pictures of different sizes are brought to the smallest that still has as many pixels as the network sees.

    Args:
        sources: data sets.
        form: what a network sees of them.
        drawings: of a class at most.
        whole: let each source be one alphabet; else each has its own.
    """
    sets = [source.load() for source in sources]
    _sizes.update({source: len(images) for source, images in zip(sources, sets, strict=True)})
    heights = [images.images.shape[2] for images in sets]
    height = min((height for height in heights if height >= form.side), default=max(heights))
    order = _order(sources)
    places = np.argsort(order)  # where each class of the sources, one after the other, goes
    most = min(drawings, max(images.images.shape[1] for images in sets))
    channels = (form.channels,) if form.channels > 1 else ()
    pictures = np.zeros((len(order), most, height, height, *channels), np.uint8)
    counts = np.minimum(np.concatenate([images.counts for images in sets]), most)
    start = 0
    for images in sets:
        some = images.images[:, :most]
        pictures[places[start : start + len(images)], : some.shape[1]] = _brought(
            some, images.ink, height, channels
        )
        start += len(images)
    labels = [f"{images.name}/{label}" for images in sets for label in images.labels]
    alphabets = [name for images in sets for name in _alphabets(images, whole)]
    return ImageSet(
        " + ".join(images.name for images in sets),
        pictures,
        counts[order],
        tuple(labels[place] for place in order),
        ink=255,
        alphabets=tuple(alphabets[place] for place in order),
    )


def splits(sources: Sequence[DataConfig]) -> list[tuple[int, int]]:
    """How many classes of each source train, and how many watch the training."""
    divided = [source.divide(_size(source)) for source in sources]
    return [(split.train, split.validation - split.train) for split in divided]


def _size(source: DataConfig) -> int:
    if source not in _sizes:
        _sizes[source] = len(source.load())
    return _sizes[source]


def _order(sources: Sequence[DataConfig]) -> Int[np.ndarray, "classes"]:
    """Class numbers, counted through all sources, in the order in which they train, watch and test."""
    groups: list[list[int]] = [[], [], []]
    start = 0
    for source, (train, held_out) in zip(sources, splits(sources), strict=True):
        bounds = (0, train, train + held_out, _size(source))
        for group, low, high in zip(groups, bounds, bounds[1:], strict=False):
            group.extend(range(start + low, start + high))
        start += _size(source)
    return np.array([number for group in groups for number in group], int)


def _alphabets(images: ImageSet, whole: bool) -> list[str]:
    if whole or not images.alphabets:
        return [images.name] * len(images)
    return [f"{images.name}/{name}" for name in images.alphabets]


def _brought(
    pictures: UInt8[np.ndarray, "classes drawings size size *theirs"],
    ink: int,
    height: int,
    channels: tuple[int, ...],
) -> UInt8[np.ndarray, "classes drawings height height *channels"]:
    """In 256 levels and this size; where colours are asked for, drawings are black on white."""
    levels = pictures * np.uint8(255 // ink)
    if levels.shape[2] != height:
        flat = levels.reshape(-1, *levels.shape[2:])
        small = [
            np.asarray(Image.fromarray(one).resize((height, height), Image.Resampling.BILINEAR))
            for one in flat
        ]
        levels = np.stack(small).reshape(*levels.shape[:2], height, height, *levels.shape[4:])
    if channels and levels.ndim == 4:
        levels = np.repeat(255 - levels[..., None], channels[0], axis=-1)
    return levels
