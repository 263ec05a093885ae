"""What every image data set is once loaded: classes of drawings, 105×105, ink = 1."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, UInt8

from mann.errors import MannError

SIDE = 105  # pixels a side of a source drawing, as in Omniglot


@dataclass(frozen=True)
class ImageSet:
    """Drawings by class, on the host.

    `images` holds ink from 0 (paper) to `ink` (full ink): 1 for bitmaps, 255 for grey levels. A class with
    fewer drawings than the largest one is padded with empty paper; `counts` says how many are real.
    """

    name: str
    images: UInt8[np.ndarray, "classes drawings 105 105"]
    counts: Int[np.ndarray, "classes"]
    labels: tuple[str, ...]  # a printable name for each class
    ink: int = 1

    def __len__(self) -> int:
        return len(self.images)

    def subset(self, start: int, stop: int) -> "ImageSet":
        """The classes start … stop − 1 (counted from 0)."""
        if not 0 <= start < stop <= len(self):
            raise MannError(
                f"Classes {start + 1} to {stop} were asked for, but {self.name!r} has {len(self)} classes: "
                "ask for a range within them."
            )
        return ImageSet(
            self.name, self.images[start:stop], self.counts[start:stop], self.labels[start:stop], self.ink
        )

    def with_mirror_images(self) -> "ImageSet":
        """Twice the classes: after them, each with left and right exchanged."""
        return ImageSet(
            self.name,
            np.concatenate([self.images, self.images[..., ::-1]]),
            np.concatenate([self.counts, self.counts]),
            (*self.labels, *(f"{label}, mirrored" for label in self.labels)),
            self.ink,
        )
