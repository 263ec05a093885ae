"""Data sets by name, and their split into classes for training, validation and test."""

from typing import Literal, NamedTuple

from mann.data.images import ImageSet
from mann.errors import MannError

NAMES = ("omniglot", "glyphs", "folder")
TRAINING_SHARE = 1200 / 1623  # the paper's split of Omniglot, by class id; kept for every data set


class Split(NamedTuple):
    """Ranges of classes, counted from 0: [0, train) trains, [train, validation) watches, the rest tests."""

    train: int
    validation: int
    classes: int


def load(name: Literal["omniglot", "glyphs", "folder"], path: str = "", classes: int = 1623) -> ImageSet:
    """Load a data set by name; `classes` is how many glyphs to make."""
    if name == "omniglot":
        from mann.data.omniglot import load_omniglot

        return load_omniglot(path or None)
    if name == "glyphs":
        from mann.data.glyphs import load_glyphs

        return load_glyphs(classes)
    if name == "folder":
        from mann.data.folder import load_folder

        if not path:
            raise MannError("A folder of your own needs its path: one folder a class inside it.")
        return load_folder(path)
    raise MannError(f"There is no data set {name!r}: choose one of {', '.join(NAMES)}.")


def split(classes: int, held_out: int, needed: int) -> Split:
    """Split classes by their order: the first 1200 of 1623 (or that share) train, the rest test.

    The last `held_out` of the training classes, at most a quarter of them, are for validation; none if they
    would be too few for an episode of `needed` classes.
    """
    train = round(classes * TRAINING_SHARE)
    held_out = min(held_out, train // 4)
    if held_out < needed:
        held_out = 0
    return Split(train - held_out, train, classes)
