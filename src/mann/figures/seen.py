"""What the network saw of each picture, beside the picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from mann.data.decode import read_thumbnail
from mann.online import Prepared

COLUMNS = 4
_TILE, _GAP, _LINE = 105, 8, 16  # pixels
_RED = "#c0392b"


class Seen(NamedTuple):
    """One picture: its file, what to write under it, and what was made of it; None if it could not be used."""

    file: Path
    caption: str
    seen: Prepared | None
    warning: str = ""


def draw_seen(pictures: Sequence[Seen]) -> Image.Image:
    """A sheet of cells: the picture, its ink, the few pixels that the network gets, and the caption."""
    columns = min(COLUMNS, len(pictures))
    rows = -(-len(pictures) // columns)
    width, height = 3 * _TILE + 4 * _GAP, _TILE + 2 * _LINE + 2 * _GAP
    sheet = Image.new("RGB", (columns * width, rows * height), "white")
    for place, picture in enumerate(pictures):
        row, column = divmod(place, columns)
        sheet.paste(_cell(picture, width, height), (column * width, row * height))
    return sheet


def _cell(picture: Seen, width: int, height: int) -> Image.Image:
    cell = Image.new("RGB", (width, height), "white")
    brush, font = ImageDraw.Draw(cell), _font()
    for place, tile in enumerate(_tiles(picture)):
        left = _GAP + place * (_TILE + _GAP)
        brush.rectangle((left - 1, _GAP - 1, left + _TILE, _GAP + _TILE), outline="#d0d0d0")
        cell.paste(tile, (left + (_TILE - tile.width) // 2, _GAP + (_TILE - tile.height) // 2))
    top = 2 * _GAP + _TILE - 4
    brush.text((_GAP, top), _shorten(picture.caption, font, width - 2 * _GAP), "black", font)
    brush.text((_GAP, top + _LINE), _shorten(picture.warning, font, width - 2 * _GAP), _RED, font)
    return cell


def _tiles(picture: Seen) -> list[Image.Image]:
    tiles = []
    if (thumbnail := read_thumbnail(picture.file, _TILE)) is not None:
        tiles.append(thumbnail)
    if picture.seen is not None:
        pixels, whole = picture.seen
        channels = whole.shape[2:]
        side = round((pixels.size / max(1, *channels, 1)) ** 0.5)
        small = np.rint(255 * pixels).astype(np.uint8).reshape(side, side, *channels)
        pictures = (whole, small) if channels else (255 - whole, 255 - small)  # ink is dark
        tiles += [Image.fromarray(tile).resize((_TILE, _TILE), Image.Resampling.NEAREST) for tile in pictures]
    return tiles


def _font() -> ImageFont.FreeTypeFont:
    """The font that matplotlib brings: it has the letters of most alphabets."""
    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", 12)


def _shorten(text: str, font: ImageFont.FreeTypeFont, width: int) -> str:
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"
