"""What a network was trained on, by content: the boundary between training and test.

Every drawing has a fingerprint, which a checkpoint keeps of all drawings of the classes that its network trained
on or was selected by. Whatever path a data set is read from, whatever its folders are called: a class that the
network has met is found.
"""

import hashlib

import numpy as np
from jaxtyping import UInt64

from mann.data import DataConfig
from mann.data.images import ImageSet
from mann.errors import MannError

Fingerprints = UInt64[np.ndarray, "drawings"]


def fingerprints(images: ImageSet) -> list[Fingerprints]:
    """One array per class: 64 bits of the SHA-256 of each real drawing, with levels scaled to 0 … 255."""
    return [
        np.array([_fingerprint(picture, images.ink) for picture in pictures[:count]], np.uint64)
        for pictures, count in zip(images.images, images.counts, strict=True)
    ]


def training_fingerprints(images: ImageSet, data: DataConfig) -> Fingerprints:
    """Those of all drawings of a data set's training classes, held-out ones included."""
    return np.concatenate(fingerprints(images.subset(0, data.divide(len(images)).validation)))


def _fingerprint(picture: np.ndarray, ink: int) -> int:
    levels = np.ascontiguousarray(picture) * np.uint8(255 // ink)
    return int.from_bytes(
        hashlib.sha256(repr(levels.shape).encode() + levels.tobytes()).digest()[:8], "little"
    )


def seen_classes(images: ImageSet, seen: Fingerprints) -> list[int]:
    """The classes, counted from 0, of which at least half of the drawings are among those seen.

    Half, since two hands may draw the same dot.
    """
    among = np.isin(np.concatenate(fingerprints(images)), seen)  # all at once: it sorts what was seen
    parts = np.split(among, np.cumsum(images.counts)[:-1])
    return [number for number, known in enumerate(parts) if 2 * known.sum() >= len(known)]


def refuse_seen(images: ImageSet, seen: Fingerprints, model: str) -> None:
    """Refuse to test a network on classes that it has met."""
    if classes := seen_classes(images, seen):
        names = ", ".join(repr(images.labels[number]) for number in classes[:3])
        more = " …" if len(classes) > 3 else ""
        raise MannError(
            f"{len(classes)} of the {len(images)} classes of {images.name!r} ({names}{more}) are among those that "
            f"{model} was trained on or selected by: test it on others."
        )


def unseen_images(
    data: DataConfig, trained_on: DataConfig, seen: Fingerprints | None, model: str
) -> tuple[ImageSet, int]:
    """The classes of a data set that a network may be tested on, and the number of the first, counted from 0.

    The test classes of a data set that has some; every class of a folder that the network never met.
    """
    if data.format.channels != trained_on.format.channels:
        theirs, its = ("in colour" if d.format.channels > 1 else "grey" for d in (data, trained_on))
        raise MannError(
            f"{model} was trained on pictures that are {its}, and those of {data.kind!r} are {theirs}: choose "
            "another data set."
        )
    images = data.load()
    if seen is None:  # trained by a version that did not record it
        seen = training_fingerprints(images if data == trained_on else trained_on.load(), trained_on)
    first = data.first_test_class(len(images), trained_on)
    if first >= len(images):
        raise MannError(f"{images.name} is too small to have test classes: add classes to it.")
    unseen = images.subset(first, len(images))
    refuse_seen(unseen, seen, model)
    return unseen, first
