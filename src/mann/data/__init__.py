"""Data sets by kind, and their split into classes for training, validation and test."""

import abc
import dataclasses
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from jaxtyping import UInt8

from mann.data.images import ImageSet, PictureFormat
from mann.errors import MannError, check_range
from mann.parts import Part, member

TRAINING_SHARE = 1200 / 1623  # the paper's split of Omniglot, by class id; kept for every data set
MOST_HELD_OUT = 10**9
LARGEST_SIDE = 512


class Split(NamedTuple):
    """Ranges of classes, counted from 0: [0, train) trains, [train, validation) watches, the rest tests."""

    train: int
    validation: int
    classes: int


@dataclasses.dataclass(frozen=True)
class DataConfig(Part):
    """Which pictures, and which of their training classes are held out to watch the training.

    A data set of one's own is a subclass with `read`: see examples/my_data.py.

    Raises:
        MannError: for sizes that no picture can have.
    """

    channels: ClassVar[int] = 1
    """Of its pictures: 1 for grey, 3 for colour."""
    has_pictures: ClassVar[bool] = True
    """Whether there is anything to load."""
    side: int = 20
    """Pixels per side of what the network sees."""
    validation: int = 100
    """The last training classes, at most a quarter, are held out to watch the training and select the best."""
    mirror: bool = False
    """Train on the mirror image of every class, too, as a class of its own. Test classes are not mirrored."""

    def __post_init__(self) -> None:
        check_range("data.side", self.side, 1, LARGEST_SIDE)
        check_range("data.validation", self.validation, 0, MOST_HELD_OUT)

    @property
    def format(self) -> PictureFormat:
        """What the network sees."""
        return PictureFormat(self.side, self.channels)

    @abc.abstractmethod
    def read(self) -> ImageSet:
        """All classes, in a fixed order: the first train, the last test."""

    def load(self) -> ImageSet:
        """`read`, with the format in which the network sees the pictures."""
        return dataclasses.replace(self.read(), side=self.side)

    def picture(self, image: Any, name: str = "the image") -> UInt8[np.ndarray, "height height *channels"]:
        """One picture of a user's as those of the data set are: levels of ink, or colours on a square.

        Args:
            image: a file, a PIL image or an array.
            name: what errors call a picture that is no file.

        Raises:
            MannError: for what cannot be read as a picture.
        """
        if self.channels == 1:
            from mann.data.ink import normalise_image

            return normalise_image(image, name)
        from mann.data.colour import square_colours

        return square_colours(image, name)

    def trained_classes(self, classes: int) -> int:
        """How many of that many classes train or watch the training; the others test."""
        return round(classes * TRAINING_SHARE)

    def divide(self, classes: int, needed: int = 0) -> Split:
        """Divide classes by their order: the first 1200 of 1623 (or that share) train, the rest test.

        Args:
            classes: in the data set.
            needed: classes of an episode. The last of the training classes are for validation; none if they would
                be fewer than this.

        Examples:
            >>> Omniglot().divide(1623)
            Split(train=1100, validation=1200, classes=1623)
        """
        train = self.trained_classes(classes)
        held_out = min(self.validation, train // 4)
        if held_out < needed:
            held_out = 0
        return Split(train - held_out, train, classes)

    def first_test_class(self, classes: int, trained_on: "DataConfig") -> int:
        """From which class on, counted from 0, a network may be tested.

        Args:
            classes: in this data set.
            trained_on: the data set that the network was trained on.
        """
        return self.divide(classes).validation


@dataclasses.dataclass(frozen=True)
class Omniglot(DataConfig, kind="omniglot"):
    """1623 handwritten characters, 20 drawings of each."""

    path: str = ""
    """Where the data is; empty means $MANN_DATA, the cache, a download."""
    split: Literal["paper", "lake", "roaming"] = "paper"
    """Which classes train: ids 1 to 1200; Lake's 30 background alphabets; or 32 alphabets as in RoamingOmniglot."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_path(self.path)

    def read(self) -> ImageSet:
        from mann.data.omniglot import in_roaming_order, load_omniglot

        images = load_omniglot(self.path or None)
        return in_roaming_order(images) if self.split == "roaming" else images

    def trained_classes(self, classes: int) -> int:
        from mann.data.omniglot import BACKGROUND_CLASSES, ROAMING_CLASSES

        known = {"lake": BACKGROUND_CLASSES, "roaming": sum(ROAMING_CLASSES)}
        return known.get(self.split) or super().trained_classes(classes)

    def divide(self, classes: int, needed: int = 0) -> Split:
        from mann.data.omniglot import ROAMING_CLASSES

        if self.split == "roaming":  # as published, whatever `validation` says
            return Split(ROAMING_CLASSES[0], sum(ROAMING_CLASSES), classes)
        return super().divide(classes, needed)


@dataclasses.dataclass(frozen=True)
class Glyphs(DataConfig, kind="glyphs"):
    """Procedural handwriting, built in.

    Examples:
        >>> Glyphs(classes=40).load().images.shape
        (40, 20, 105, 105)
    """

    classes: int = 1623
    """Classes to make; the default is as many as Omniglot has."""

    def read(self) -> ImageSet:
        from mann.data.glyphs import load_glyphs

        return load_glyphs(self.classes)


@dataclasses.dataclass(frozen=True)
class Folder(DataConfig, kind="folder"):
    """Pictures of your own, one folder per class."""

    path: str = ""
    """The folder that holds a folder for each class."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_path(self.path)

    def read(self) -> ImageSet:
        from mann.data.folder import load_folder

        if not self.path:
            raise MannError(
                "A folder of your own needs its path (data.path): one folder per class inside it."
            )
        return load_folder(self.path)

    def first_test_class(self, classes: int, trained_on: DataConfig) -> int:
        """All classes of another folder than the one trained on may be tested; content has the last word."""
        same = isinstance(trained_on, Folder) and trained_on.place == self.place
        return self.divide(classes).validation if same else 0

    @property
    def place(self) -> Path:
        """Where it is, however the path is written."""
        return Path(self.path).expanduser().resolve()


@dataclasses.dataclass(frozen=True)
class NoData(DataConfig, kind="none"):
    """For tasks that draw everything themselves, such as functions."""

    has_pictures: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if dataclasses.astuple(self) != (20, 100, False):
            raise MannError("This task draws its episodes from no data set: leave the options of data out.")

    def read(self) -> ImageSet:
        raise MannError("This task needs pictures: choose a data set, such as omniglot or glyphs.")


def check_path(path: str) -> None:
    """Refuse what no file can be called."""
    if "\0" in path:
        raise MannError("The path of the data holds a null character: no file has such a name.")


def data_config(dataset: str) -> DataConfig:
    """A data set by its kind, or a folder of pictures by its path."""
    if dataset in DataConfig.members:
        return member(DataConfig, dataset, "The data set")()  # type: ignore[type-abstract]
    return Folder(path=dataset)


def choose_data(dataset: str | DataConfig, default: DataConfig) -> DataConfig:
    """The data set that was asked for, by name or as a configuration; the default if it was left empty."""
    if isinstance(dataset, str):
        return data_config(dataset) if dataset else default
    return dataset


def load_images(dataset: str) -> ImageSet:
    """The pictures of a data set, with its default options; with others: `Glyphs(classes=40).load()`.

    Args:
        dataset: its kind ("omniglot", "glyphs"), or the path of a folder with one folder per class.

    Raises:
        MannError: if it cannot be found, downloaded or read.
    """
    return data_config(dataset).load()
