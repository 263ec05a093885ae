"""`mann data NAME`: what a data set holds, and a sheet of drawings to look at."""

import dataclasses
from pathlib import Path
from typing import Literal

import tyro

from mann.commands import parse
from mann.errors import MannError


@dataclasses.dataclass(frozen=True)
class Arguments:
    name: tyro.conf.Positional[Literal["omniglot", "glyphs", "folder"]]
    """Which data set."""
    path: str = ""
    """Where it is: needed for a folder of your own, optional for Omniglot."""
    classes: int = 1623
    """Classes to make (glyphs only)."""
    sheet: str = ""
    """Write a picture to this file (PNG): drawings on the left, augmented 20×20 inputs on the right."""
    rows: int = 12
    """Classes on the sheet."""
    columns: int = 8
    """Drawings of each class on the sheet."""
    seed: int = 0
    """Which classes, drawings and augmentations are on the sheet."""
    force: bool = False
    """Overwrite the sheet if the file exists."""


def main(arguments: list[str]) -> int:
    options = parse(Arguments, "data", "Look at a data set.", arguments)
    if options.sheet and Path(options.sheet).exists() and not options.force:
        raise MannError(f"{options.sheet} exists: choose another name, or overwrite it with --force.")
    if not 1 <= options.rows <= 100 or not 1 <= options.columns <= 100:
        raise MannError("A sheet has between 1 and 100 rows and columns.")
    from mann import data

    images = data.load(options.name, options.path, options.classes)
    parts = data.split(len(images), 0, 0)
    counts = images.counts
    each = f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()}–{counts.max()}"
    ink = images.images.mean(dtype=float) / images.ink
    print(f"{images.name}: {len(images)} classes, {each} drawings of each, {int(counts.sum())} in all")
    print(f"training classes 1–{parts.train}, test classes {parts.train + 1}–{len(images)}")
    print(f"105×105 pixels, {100 * ink:.1f} % ink")
    if options.sheet:
        from mann.figures import draw_sheet

        draw_sheet(images, Path(options.sheet), options.rows, options.columns, options.seed)
        print(f"Wrote {options.sheet}")
    return 0
