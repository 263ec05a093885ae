"""Your own images: one folder per class, any size, colour and polarity, brought to what Omniglot looks like."""

from pathlib import Path

import numpy as np
from tqdm import tqdm

from mann.data.colour import square_colours
from mann.data.decode import KINDS, readable_suffixes, why_unreadable
from mann.data.images import SIDE, ImageSet
from mann.data.ink import normalise_image
from mann.errors import MannError

MAX_IMAGES = 200_000  # of a folder, padding included: 2.2 GB
COLOUR_SIDE = 64  # pixels of photographs that are kept: twice of what a network sees


def load_folder(path: str | Path, colour: bool = False) -> ImageSet:
    """Read `path`/<class>/<image>: at least 2 classes, at least 2 images of each, both sorted by name.

    Files that are hidden or have no suffix of an image (see `mann.data.decode`) and folders inside a class are
    ignored. Ink is 255, paper 0; see `mann.data.ink.normalise_image`. In colour: see `mann.data.colour`.
    """
    root = Path(path).expanduser()
    if not root.is_dir():
        raise MannError(f"The folder {root} does not exist: give one that has a sub folder for each class.")
    try:
        classes = [folder for folder in _listing(root) if folder.is_dir()]
        files = [[file for file in _listing(folder) if _is_image(file)] for folder in classes]
    except OSError as error:
        raise MannError(f"The folder {root} cannot be read: {error}.") from None
    if len(classes) < 2:
        raise MannError(
            f"The folder {root} has {len(classes)} sub folder(s): give at least 2, one for each class."
        )
    for folder, members in zip(classes, files, strict=True):
        if len(members) < 2:
            raise MannError(
                f"The class folder {folder} has {len(members)} image(s) ({KINDS}): "
                "put at least 2 into it, or remove it."
            )
    counts = np.array([len(members) for members in files])
    if (padded := len(classes) * int(counts.max())) > MAX_IMAGES:
        raise MannError(
            f"The folder {root} is too large: {len(classes)} classes of up to {counts.max()} images make "
            f"{padded}, and at most {MAX_IMAGES} fit."
        )
    shape = (COLOUR_SIDE, COLOUR_SIDE, 3) if colour else (SIDE, SIDE)
    images = np.zeros((len(classes), counts.max(), *shape), np.uint8)
    with tqdm(
        total=int(counts.sum()), desc=f"Reading {root}", delay=2, disable=None, leave=False
    ) as progress:
        for row, members in zip(images, files, strict=True):
            for drawing, file in enumerate(members):
                row[drawing] = square_colours(file, side=COLOUR_SIDE) if colour else normalise_image(file)
                progress.update()
    return ImageSet(root.resolve().name, images, counts, tuple(folder.name for folder in classes), ink=255)


def list_images(folder: Path) -> tuple[list[Path], dict[Path, str]]:
    """The pictures in a folder, sorted by name, at least one; and why each other file was left out."""
    if not folder.is_dir():
        raise MannError(f"The folder {folder} does not exist: create it and put pictures into it.")
    try:
        files = [entry for entry in _listing(folder) if not entry.is_dir()]
        images = [file for file in files if _is_image(file)]
    except OSError as error:
        raise MannError(f"The folder {folder} cannot be read: {error}.") from None
    left_out = {file: why_unreadable(file) for file in files if file not in images}
    if not images:
        reasons = "".join(f" {file.name}: {reason}." for file, reason in left_out.items())
        raise MannError(f"The folder {folder} has no pictures ({KINDS}): put some into it.{reasons}")
    return images, left_out


def _listing(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _is_image(file: Path) -> bool:
    return file.suffix.lower() in readable_suffixes() and file.is_file()
