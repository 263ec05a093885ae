"""What every set of pictures is once loaded: pictures by class, with the format in which a network sees them."""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt8

from mann.errors import MannError

SIDE = 105  # pixels per side of Omniglot's drawings, to which ink from other sources is brought


class PictureFormat(NamedTuple):
    """The pictures that a network sees: square, grey or colour.

    Examples:
        >>> PictureFormat(side=32, channels=3).size
        3072
    """

    side: int = 20
    """Pixels per side."""
    channels: int = 1
    """1 for grey, 3 for colour."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows, columns, channels: the order in which a picture is flattened."""
        return self.side, self.side, self.channels

    @property
    def size(self) -> int:
        """Numbers in one picture."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class ImageSet:
    """Pictures by class, on the host.

    Examples:
        >>> squares = np.zeros((3, 4, 30, 30), np.uint8)  # 3 classes, 4 pictures of each, 30×30 pixels
        >>> ImageSet("squares", squares, np.full(3, 4), ("a", "b", "c")).subset(0, 2).labels
        ('a', 'b')
    """

    name: str
    """Of the data set, for people."""
    images: UInt8[np.ndarray, "classes drawings height height *channels"]
    """Levels from 0 (paper) to `ink`; square, of any size, and in colour with a last axis of channels. A class with
    fewer pictures than the largest one is padded with empty paper."""
    counts: Int[np.ndarray, "classes"]
    """How many pictures of each class are real."""
    labels: tuple[str, ...]
    """A printable name for each class."""
    ink: int = 1
    """The level of full ink: 1 for bitmaps, 255 for grey levels or colours."""
    side: int = 20
    """Pixels per side of what a network sees."""
    alphabets: tuple[str, ...] = ()
    """The alphabet of each class, where classes have one."""
    has_paper: bool = True
    """Whether empty paper goes on beyond the frame, as around drawings; else the edge does, as in photographs."""

    def __len__(self) -> int:
        return len(self.images)

    @property
    def format(self) -> PictureFormat:
        """What a network sees of them."""
        return PictureFormat(self.side, self.images.shape[4] if self.images.ndim == 5 else 1)

    def subset(self, start: int, stop: int) -> "ImageSet":
        """The classes start … stop − 1 (counted from 0).

        Raises:
            MannError: for a range that is empty or not within the data set.
        """
        if not 0 <= start < stop <= len(self):
            raise MannError(
                f"Classes {start + 1} to {stop} were asked for, but {self.name!r} has {len(self)} classes: "
                "ask for a range within them."
            )
        return replace(
            self,
            images=self.images[start:stop],
            counts=self.counts[start:stop],
            labels=self.labels[start:stop],
            alphabets=self.alphabets[start:stop],
        )

    def reordered(self, order: Int[np.ndarray, "classes"]) -> "ImageSet":
        """The same classes in another order."""
        return replace(
            self,
            images=self.images[order],
            counts=self.counts[order],
            labels=tuple(self.labels[i] for i in order),
            alphabets=tuple(self.alphabets[i] for i in order) if self.alphabets else (),
        )

    def with_mirror_images(self) -> "ImageSet":
        """Twice the classes: after them, each with left and right exchanged."""
        return replace(
            self,
            images=np.concatenate([self.images, self.images[:, :, :, ::-1]]),
            counts=np.concatenate([self.counts, self.counts]),
            labels=(*self.labels, *(f"{label}, mirrored" for label in self.labels)),
            alphabets=(*self.alphabets, *(f"{name}, mirrored" for name in self.alphabets)),
        )
