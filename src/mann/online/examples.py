"""Pictures as a network sees them, and what a learner keeps of the examples that it was shown."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import jax
import numpy as np
from jaxtyping import Float32, UInt8
from PIL import Image

from mann.data import DataConfig, Omniglot
from mann.data.images import SIDE
from mann.data.render import downscale
from mann.errors import MannError
from mann.online.answers import Label
from mann.runtime import usable_cores


class Prepared(NamedTuple):
    """A picture as the network sees it, from `prepare_picture`."""

    pixels: Float32[np.ndarray, "pixels"]
    picture: UInt8[np.ndarray, "side side *channels"]  # before it was scaled down, for people to look at


Picture = str | Path | Image.Image | np.ndarray | jax.Array | Prepared

Keep = Literal["pixels", "pictures", "nothing"]
"""What a learner keeps of its examples.

- `pixels`: what the network saw, so that an example can be taken back: 4 bytes per pixel and channel, 6.4 kB for
  the 40×40 pixels of the default model.
- `pictures`: also the picture before it was scaled down, for people to look at: 11 kB more for a drawing, which
  has 105×105 pixels of one byte.
- `nothing`: for streams without end. Nothing can be taken back but everything (`reset`).
"""


def check_keep(keep: str) -> None:
    if keep not in get_args(Keep):
        raise MannError(f"A learner keeps pixels, pictures or nothing of its examples, not {keep!r}.")


@dataclass(frozen=True, eq=False)
class Example:
    """One example that a learner was shown; the same picture shown twice is two of them."""

    label: Label
    """The label that it was shown with."""
    pixels: Float32[np.ndarray, "pixels"]
    """What the network saw, row by row."""
    picture: UInt8[np.ndarray, "side side *channels"] | None
    """The picture before it was scaled down; None where it was not kept."""


def prepare_picture(
    image: Picture,
    name: str = "the image",
    data: DataConfig = Omniglot(),  # noqa: B008 (frozen)
) -> Prepared:
    """Bring a picture to what a network sees that was trained on a data set, once for several calls.

    Args:
        image: a file, a PIL image, an array, or what this function returned.
        name: what errors call a picture that is no file.
        data: the data set that the network was trained on.
    """
    if isinstance(image, Prepared):
        return image
    array = np.asarray(image) if isinstance(image, jax.Array) else image
    if not isinstance(array, str | Path | Image.Image | np.ndarray):
        kind = type(array).__name__
        raise MannError(f"Cannot use {name}: it is of the type {kind}, not a path, a PIL image or an array.")
    picture = data.picture(array, name)
    return Prepared(downscale(picture, data.side, data.has_paper), picture)


def prepare_pictures(images: Sequence[Picture], data: DataConfig) -> list[Prepared]:
    """`prepare_picture` of each, on all cores where that takes long: files, and what is not of a drawing's size."""
    prepare = partial(prepare_picture, data=data)
    if sum(not _quickly_prepared(image) for image in images) < 2:
        return list(map(prepare, images))
    with ThreadPoolExecutor(usable_cores()) as threads:
        return list(threads.map(prepare, images))


def _quickly_prepared(image: Picture) -> bool:
    """In less time than it takes to ask a thread for it."""
    if isinstance(image, Prepared):
        return True
    size = image.size if isinstance(image, Image.Image) else getattr(image, "shape", ())[:2]
    return size == (SIDE, SIDE)
