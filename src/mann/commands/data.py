"""`mann data NAME`: what a data set holds, and a sheet of drawings to look at."""

import dataclasses
import io
from pathlib import Path

import tyro

from mann.commands import parse
from mann.errors import MannError, check_seed
from mann.files import check_writable, write_atomically, writing


@dataclasses.dataclass(frozen=True)
class Arguments:
    name: tyro.conf.Positional[str]
    """A kind of data set (omniglot, glyphs, letters …), or the path of a folder of pictures, a folder per class."""
    path: str = ""
    """Where Omniglot is, if not where it is looked for; of letters, a folder with fonts."""
    classes: int = 0
    """Classes to make (glyphs, textures, objects); 0 for as many as usual."""
    side: int = 0
    """Pixels per side of what the network would see; 0 for as many as the data set says."""
    sheet: str = ""
    """Write a picture to this file (PNG): drawings on the left, augmented inputs on the right."""
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
    if options.sheet:
        check_writable(Path(options.sheet))
    if not 1 <= options.rows <= 100 or not 1 <= options.columns <= 100:
        raise MannError("A sheet has between 1 and 100 rows and columns.")
    check_seed(options.seed)
    from mann.data import data_config
    from mann.parts import from_dict, to_dict

    changes = {name: value for name in ("path", "classes", "side") if (value := getattr(options, name))}
    config = data_config(options.name)
    for name in changes:
        if name not in {field.name for field in dataclasses.fields(config)}:
            raise MannError(f"The data set {options.name!r} has no choice of {name}: leave --{name} out.")
    config = from_dict(type(config), to_dict(config) | changes, "data")
    images = config.load()
    parts = config.divide(len(images))
    counts = images.counts
    each = f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()}–{counts.max()}"
    print(f"{images.name}: {len(images)} classes, {each} drawings of each, {int(counts.sum())} in all")
    print(f"training classes 1–{parts.validation}, test classes {parts.validation + 1}–{len(images)}")
    height = images.images.shape[2]
    what = f"{100 * images.images.mean(dtype=float) / images.ink:.1f} % ink"
    what = "colour" if images.format.channels > 1 else what
    print(f"{height}×{height} pixels, {what}; the network sees {images.side}×{images.side}")
    if options.sheet:
        from mann.figures.sheet import draw_sheet

        content = io.BytesIO()
        draw_sheet(images, options.rows, options.columns, options.seed).save(content, "PNG")
        path = Path(options.sheet)
        with writing(path):
            write_atomically(path, content.getvalue())
        print(f"Wrote {options.sheet}")
    return 0
