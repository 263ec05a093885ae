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


def check_path(path: str) -> None:
    """Refuse what no file can be called."""
    if "\0" in path:
        raise MannError("The path of the data holds a null character: no file has such a name.")


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
    has_paper: ClassVar[bool] = True
    """Whether empty paper goes on beyond the frame, as around drawings; else the edge does, as in photographs."""
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
        return dataclasses.replace(self.read(), side=self.side, has_paper=self.has_paper)

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
class Textures(DataConfig, kind="textures"):
    """Swatches of materials made by rules, built in: nothing like handwriting.

    Examples:
        >>> Textures(classes=6, drawings=4).load().images.shape
        (6, 4, 105, 105)
    """

    classes: int = 800
    """Materials to make."""
    drawings: int = 20
    """Swatches of each."""
    seed: int = 0
    """Of the materials."""

    def read(self) -> ImageSet:
        from mann.data.textures import load_textures

        return load_textures(self.classes, self.drawings, self.seed)


@dataclasses.dataclass(frozen=True)
class Letters(DataConfig, kind="letters"):
    """Letters of many scripts, drawn from the fonts that matplotlib ships or from your own."""

    path: str = ""
    """A folder with fonts, such as /usr/share/fonts; empty for those that are always there."""
    drawings: int = 20
    """Of each letter."""
    seed: int = 0
    """Of slant, proportions and place of each drawing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_path(self.path)

    def read(self) -> ImageSet:
        from mann.data.letters import load_letters

        return load_letters(self.path, self.drawings, self.seed)


@dataclasses.dataclass(frozen=True)
class _ForTests(DataConfig, abstract=True):
    """A data set with too few classes to train on: all of them test."""

    def trained_classes(self, classes: int) -> int:
        return 0


@dataclasses.dataclass(frozen=True)
class Digits(_ForTests, kind="digits"):
    """Scikit-learn's handwritten digits: ten classes, all of them for testing."""

    drawings: int = 50
    """Of each digit."""

    def read(self) -> ImageSet:
        from mann.data.digits import load_digits

        return load_digits(self.drawings)


@dataclasses.dataclass(frozen=True)
class Objects(DataConfig, kind="objects"):
    """Coloured things made by rules and photographed in all kinds of light, built in.

    Examples:
        >>> Objects(classes=6, pictures=4).load().format
        PictureFormat(side=32, channels=3)
    """

    channels: ClassVar[int] = 3
    has_paper: ClassVar[bool] = False
    side: int = 32
    """Pixels per side of what the network sees."""
    classes: int = 1200
    """Things to make."""
    pictures: int = 16
    """Photographs of each."""
    seed: int = 0
    """Of the things."""

    def read(self) -> ImageSet:
        from mann.data.objects import load_objects

        return load_objects(self.classes, self.pictures, self.seed)


@dataclasses.dataclass(frozen=True)
class Photographs(_ForTests, kind="photographs"):
    """Places in the photographs that come with scikit-learn, each taken several times; all for testing."""

    channels: ClassVar[int] = 3
    has_paper: ClassVar[bool] = False
    side: int = 32
    """Pixels per side of what the network sees."""
    pictures: int = 20
    """Of each place."""
    seed: int = 0
    """Of where and in what light they are taken."""

    def read(self) -> ImageSet:
        from mann.data.photographs import load_photographs

        return load_photographs(self.pictures, self.seed)


@dataclasses.dataclass(frozen=True)
class Mixture(DataConfig, kind="mixture"):
    """Several data sets as one: the training classes of all of them train, the test classes of all test.

    Where one of them is in colour, all are, and drawings are black on white. `side`, `validation` and `mirror` are
    those of the mixture, whatever its sources say.

    Raises:
        MannError: for a mixture of fewer than one source, or of one that has no pictures.

    Examples:
        >>> mixture = Mixture(sources=(Glyphs(classes=40), Textures(classes=20, drawings=20)), validation=4)
        >>> images = mixture.load()
        >>> mixture.divide(len(images))  # 26 + 12 train, 4 + 3 watch, 10 + 5 test
        Split(train=38, validation=45, classes=60)
    """

    sources: tuple[DataConfig, ...] = (Omniglot(), Glyphs(), Letters(), Textures())
    """The data sets."""
    without: str = ""
    """The kind of one to leave out, to be tested on."""
    groups: Literal["alphabets", "sources"] = "alphabets"
    """What counts as an alphabet (`task.alphabets`): the alphabets of each source, or each source as a whole."""
    drawings: int = 20
    """Drawings of a class at most."""
    colour: bool = False
    """In colour even if no source is."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("data.drawings", self.drawings, 2, MOST_HELD_OUT)
        kinds = [source.kind for source in self.sources]
        if self.without and self.without not in kinds:
            raise MannError(
                f"The mixture has no source {self.without!r} to leave out: it has {', '.join(kinds) or 'none'}."
            )
        if not self.used:
            raise MannError("A mixture needs at least one source: add one to data.sources.")
        for source in self.used:
            if not source.has_pictures:
                raise MannError(f"A mixture is of pictures, and {source.kind!r} has none: take it out.")

    @property
    def used(self) -> tuple[DataConfig, ...]:
        """The sources that are not left out, with the options of the mixture."""
        return tuple(
            dataclasses.replace(source, side=self.side, validation=self.validation)
            if source.has_pictures
            else source
            for source in self.sources
            if source.kind != self.without
        )

    @property
    def channels(self) -> int:  # type: ignore[override]
        return 3 if self.colour else max(source.channels for source in self.used)

    @property
    def has_paper(self) -> bool:  # type: ignore[override]
        return self.channels == 1 and all(source.has_paper for source in self.used)

    def read(self) -> ImageSet:
        from mann.data.mixture import mix

        return mix(self.used, self.format, self.drawings, whole=self.groups == "sources")

    def divide(self, classes: int, needed: int = 0) -> Split:
        from mann.data.mixture import splits

        train, held_out = (sum(part) for part in zip(*splits(self.used), strict=True))
        return Split(train if held_out >= needed else train + held_out, train + held_out, classes)


@dataclasses.dataclass(frozen=True)
class Folder(DataConfig, kind="folder"):
    """Pictures of your own, one folder per class."""

    path: str = ""
    """The folder that holds a folder for each class."""
    colour: bool = False
    """Take them as photographs, in colour; else as drawings, of which only the ink counts."""

    @property
    def channels(self) -> int:  # type: ignore[override]
        return 3 if self.colour else 1

    @property
    def has_paper(self) -> bool:  # type: ignore[override]
        return not self.colour

    def __post_init__(self) -> None:
        super().__post_init__()
        check_path(self.path)

    def read(self) -> ImageSet:
        from mann.data.folder import load_folder

        if not self.path:
            raise MannError(
                "A folder of your own needs its path (data.path): one folder per class inside it."
            )
        return load_folder(self.path, self.colour)

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
        dataset: its kind ("omniglot", "glyphs", "textures" …), or the path of a folder with one folder per class.

    Raises:
        MannError: if it cannot be found, downloaded or read.
    """
    return data_config(dataset).load()
