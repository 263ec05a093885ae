"""Letters from fonts: a class is a character, its drawings are the fonts that have it.

The fonts that matplotlib ships are always there: DejaVu Sans, Serif and Mono and STIX, upright and slanted, light
and bold. They hold the letters of Latin, Greek, Cyrillic and a few other scripts.
"""

import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np
from jaxtyping import Float32, UInt8
from numpy.random import Generator, default_rng
from PIL import Image, ImageDraw, ImageFont
from tqdm import tqdm

from mann.data.images import SIDE, ImageSet
from mann.errors import MannError, check_range, check_seed

SUFFIXES = (".ttf", ".otf", ".ttc")
SHIPPED = (
    "DejaVuSans",
    "DejaVuSerif",
    "STIXGeneral",
)  # beginnings of the names of matplotlib's fonts with letters
MOST_FONTS = 500
MOST_DRAWINGS = 200
LEAST_FACES = 8  # that a character must be in, or all if there are fewer
_SIZE = 80  # pixels of an em
_JITTER = 0.08  # of a drawing's size, slant and proportions: standard deviation
_REACH = 49  # pixels from the middle that ink may go
_SAME = 0.96  # cosine from which two letters are taken for one

Faces = dict[Path, frozenset[int]]  # the characters that each font has


def load_letters(path: str, drawings: int, seed: int) -> ImageSet:
    """Every letter that enough fonts have: each font in turn, a little slanted, stretched and moved.

    Letters that look the same in a font (A in Latin, Greek and Cyrillic) are one class. Alphabets are the scripts.

    Args:
        path: a folder with fonts, searched with its sub folders; empty for those that matplotlib ships.
        drawings: of each letter.
        seed: of their accidents.

    Raises:
        MannError: if there are no fonts, or none with two letters.
    """
    check_range("The drawings of each letter", drawings, 2, MOST_DRAWINGS)
    check_seed(seed)
    faces = {file: _letters_of(file) for file in _font_files(path)}
    characters = _common(faces)
    images = np.zeros((len(characters), drawings, SIDE, SIDE), np.uint8)
    fonts = {file: _open(file) for file in faces}
    for index, character in enumerate(
        tqdm(characters, desc="letters", unit="letter", delay=2, leave=False, disable=None)
    ):
        rng = default_rng([seed, character])
        having = [file for file, letters in faces.items() if character in letters]
        order = rng.permutation(len(having))
        for drawing in range(drawings):
            font = fonts[having[order[drawing % len(having)]]]
            images[index, drawing] = _draw(font, chr(character), rng)
    kept = [index for index, drawn in enumerate(images) if drawn.any(axis=(1, 2)).all()]
    if len(kept) < 2:
        raise MannError(f"The fonts in {path or 'matplotlib'} have no letters in common: use others.")
    names = [unicodedata.name(chr(characters[index])) for index in kept]
    return ImageSet(
        "letters",
        images[kept],
        np.full(len(kept), drawings),
        tuple(name.lower() for name in names),
        alphabets=tuple(name.partition(" ")[0].lower() for name in names),
    )


def _font_files(path: str) -> list[Path]:
    if not path:
        import matplotlib

        folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
        files = [file for file in sorted(folder.glob("*.ttf")) if file.name.startswith(SHIPPED)]
        files = [file for file in files if "Display" not in file.name]  # the same letters once more
    else:
        folder = Path(path).expanduser()
        files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES)[:MOST_FONTS]
    if not files:
        raise MannError(
            f"There are no fonts ({', '.join(SUFFIXES)}) in {folder}: give a folder that has some, such as "
            "/usr/share/fonts, or leave the path out."
        )
    return files


def _open(file: Path) -> ImageFont.FreeTypeFont:
    try:
        return ImageFont.truetype(str(file), _SIZE)
    except OSError as error:
        raise MannError(f"The font {file} cannot be read ({error}): remove it.") from None


def _letters_of(file: Path) -> frozenset[int]:
    """The letters of a font, without those that only change others."""
    from matplotlib.ft2font import FT2Font

    try:
        codes = FT2Font(str(file)).get_charmap()
    except (OSError, RuntimeError, ValueError) as error:
        raise MannError(f"The font {file} cannot be read ({error}): remove it.") from None
    return frozenset(code for code in codes if unicodedata.category(chr(code)) in ("Lu", "Ll", "Lo"))


def _common(faces: Faces) -> list[int]:
    """Letters that enough fonts have, in a mixed but fixed order; those that look like an earlier one left out."""
    counts = Counter(code for letters in faces.values() for code in letters)
    least = min(LEAST_FACES, len(faces))
    common = sorted(code for code, count in counts.items() if count >= least)
    named = [code for code in common if unicodedata.name(chr(code), "") and not _is_variant(code)]
    first = {code: next(file for file, letters in faces.items() if code in letters) for code in named}
    fonts = {file: _open(file) for file in set(first.values())}
    different = _different([_plain(fonts[first[code]], chr(code)) for code in named])
    # Scripts are spread over training, held-out and test classes.
    return [named[different[place]] for place in default_rng(0).permutation(len(different))]


def _plain(font: ImageFont.FreeTypeFont, character: str) -> Float32[np.ndarray, "pixels"]:
    """A letter in the middle of a small picture, of length 1; nothing but zeros if it has no ink."""
    left, top, right, bottom = font.getbbox(character)
    canvas = Image.new("L", (SIDE, SIDE))
    middle = ((SIDE - left - right) / 2, (SIDE - top - bottom) / 2)
    ImageDraw.Draw(canvas).text(middle, character, fill=255, font=font)
    levels = np.asarray(canvas.reduce(3), np.float32).ravel()
    return levels / max(float(np.linalg.norm(levels)), 1.0)


def _different(pictures: list[Float32[np.ndarray, "pixels"]]) -> list[int]:
    """The places of those that are not nearly the same as an earlier one that was kept, and not empty."""
    kept: list[int] = []
    likeness = np.stack(pictures) @ np.stack(pictures).T if pictures else np.zeros((0, 0), np.float32)
    for place, row in enumerate(likeness):
        if row[place] > 0 and not (row[kept] > _SAME).any():
            kept.append(place)
    return kept


def _is_variant(code: int) -> bool:
    """Whether it is another letter with an accent, in bold or full width: too much like it for a class."""
    return bool(unicodedata.decomposition(chr(code)))


def _draw(font: ImageFont.FreeTypeFont, character: str, rng: Generator) -> UInt8[np.ndarray, "105 105"]:
    """One letter in the middle of the paper, ink = 1: as large as in the font, with the accidents of a drawing."""
    left, top, right, bottom = font.getbbox(character)
    canvas = Image.new("L", (2 * SIDE, 2 * SIDE))
    middle = (SIDE - (left + right) / 2, SIDE - (top + bottom) / 2)
    ImageDraw.Draw(canvas).text(middle, character, fill=255, font=font)
    slant, turn = rng.normal(0, [_JITTER, _JITTER / 2])
    across, along = np.exp(rng.normal(0, _JITTER, 2))
    extent = max((right - left) / across, (bottom - top) / along, 1)
    fit = max(1.0, extent / (2 * _REACH))  # shrink what would not fit
    move = rng.normal(0, 2, 2)
    # The way back: from a pixel of the drawing to where it comes from.
    back = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]]) @ [[1, slant], [0, 1]]
    back = np.diag([across, along]) @ back * fit
    offset = np.array([SIDE, SIDE]) - back @ (np.array([SIDE, SIDE]) / 2 + move)
    coefficients = (*back[0], offset[0], *back[1], offset[1])
    drawn = canvas.transform((SIDE, SIDE), Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR)
    return (np.asarray(drawn) > 127).astype(np.uint8)
