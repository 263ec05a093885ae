"""From any picture to its ink: what every picture goes through before the network sees it.

A drawing of 105×105 pixels on plain paper is in the form of the training data and stays where it is. Anything
else is brought to that form as the playground does it: the ink is found, centred and scaled to the size that
characters of the training data have. On paper that is not plain, as in a photograph, the sheet is found first,
uneven light and shadows are divided out, and ruled lines and specks are left out.
"""

import math
from bisect import bisect_left, bisect_right
from functools import cache, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, UInt8
from PIL import Image
from scipy import ndimage

from mann.data.decode import Grey, border_of, plain_grey, read_grey
from mann.data.images import SIDE
from mann.data.sheet import find_sheet, flatten_sheet
from mann.errors import MannError

EXTENT = 68  # pixels of 105 that the longer side of a drawing has: the median of Omniglot's training classes
STROKE = (3.2, 5.0)  # pixels of 105, between which the width of strokes is brought

_LEAST_CONTRAST = 8 / 255  # between ink and paper; below it there is only noise
_PLAIN = 0.04  # of the contrast, by which plain paper differs from its level at most …
_MOSTLY = 0.9  # … in this part of it
_SHADE = 0.2  # of the logarithm of light, that a shadow takes away at least
_WIDEST = 0.08  # of the longer side: the width of a stroke at most, where there may be hard shadows …
_WIDEST_AREA = 0.33  # … and where there are none
_DARK = 0.03  # added to levels before taking ratios, so that noise in the dark counts for little
_FINE = 3  # times as many pixels while strokes are widened or thinned

Mask = Bool[np.ndarray, "height width"]

_GREYS = np.arange(256, dtype=np.float32) / 255


class _Ink(NamedTuple):
    """How much ink there is at each pixel: 0 is paper, `full` what a typical stroke has."""

    amount: Grey
    full: float
    faint: float  # up to here it is still paper


def normalise_image(
    image: Image.Image | np.ndarray | str | Path, name: str = "the image"
) -> UInt8[np.ndarray, "105 105"]:
    """Any one image as 105×105 levels of ink: 0 is paper, 255 full ink.

    Takes a file, a PIL image of any mode, or an array H×W or H×W×1, 2, 3 or 4 (grey, grey and alpha, RGB,
    RGBA) of booleans, integers, or floats in 0 … 1 or 0 … 255, on light or dark paper. A MannError names a
    file by its path and anything else by `name`.
    """
    if isinstance(image, str | Path):
        name = str(image)
    plain = plain_grey(image, SIDE, name)
    if plain is not None and (drawn := _ink_of_drawing(plain)) is not None:
        return drawn
    grey = read_grey(image, name)
    ink = _ink_on_plain_paper(grey)
    if ink is not None and grey.shape == (SIDE, SIDE):
        return _levels(ink)
    ink = ink or _ink_in_photograph(grey)
    if ink is None:
        raise MannError(f"Cannot use {name}: it is blank, with no ink that differs from the paper.")
    return _frame(ink)


def _ink_on_plain_paper(grey: Grey) -> _Ink | None:
    """What differs from the paper, where all of the paper has one level; None where it has not.

    Paper is what the border mostly shows, whether light or dark.
    """
    # The median: strokes may touch the border as long as they cover less than half of it.
    paper = np.percentile(grey[border_of(grey.shape)], 50, method="higher").astype(np.float32)
    change = grey - paper
    darkest, lightest = np.percentile(change, [0.05, 99.95])  # a few stray pixels are not ink
    strongest = max(-darkest, lightest)
    if strongest < _LEAST_CONTRAST:
        return None
    ink = -change if -darkest >= lightest else change
    nearly = np.abs(change) < strongest / 2
    if (np.abs(change[nearly]) <= _PLAIN * strongest).mean() < _MOSTLY:
        return None
    if _comes_in_from_outside(np.abs(change) > strongest / 4, _WIDEST_AREA / 3):
        return None
    # Thin strokes lose contrast when scaled down, so full ink is what a typical stroke still has; and the
    # paper of a scan is uneven, so levels that are common at the border (if faint) are still paper.
    full = float(np.median(ink[ink > strongest / 2]))
    faint = float(np.clip(np.percentile(ink[border_of(ink.shape)], 75), 0, full / 4))
    return _Ink(ink, full, faint)


def _ink_of_drawing(drawing: Image.Image) -> UInt8[np.ndarray, "105 105"] | None:
    """`_levels(_ink_on_plain_paper(…))` of a grey drawing, by counting its 256 levels: many times as quick."""
    up_to = list(accumulate(drawing.histogram()))  # pixels up to each level
    at_border = list(accumulate(drawing.histogram(_border_mask())))
    paper = bisect_right(at_border, at_border[-1] // 2)
    steps = _steps_from(paper)
    darkest, lightest = _percentile(steps, up_to, 0.05), _percentile(steps, up_to, 99.95)
    strongest = max(-darkest, lightest)
    if strongest < _LEAST_CONTRAST:
        return None
    # Levels are in order, so that those that differ from the paper by less than something are a range.
    low, high = bisect_right(steps, -strongest / 2), bisect_left(steps, strongest / 2)
    plain = bisect_left(steps, -_PLAIN * strongest), bisect_right(steps, _PLAIN * strongest)
    if _between(up_to, *plain) / _between(up_to, low, high) < _MOSTLY:
        return None
    near, far = bisect_left(steps, -strongest / 4), bisect_right(steps, strongest / 4)
    if _between(at_border, near, far) < at_border[-1]:
        levels = np.asarray(drawing)
        if _comes_in_from_outside((levels < near) | (levels >= far), _WIDEST_AREA / 3):
            return None
    dark = -darkest >= lightest
    # The middle one of the strong pixels, or the two.
    first, last = (
        (0, bisect_left(steps, -strongest / 2)) if dark else (bisect_right(steps, strongest / 2), 256)
    )
    before, strong = up_to[first - 1] if first else 0, _between(up_to, first, last)
    middle = tuple(bisect_right(up_to, before + place) for place in ((strong - 1) // 2, strong // 2))
    common = _percentile(steps, at_border, 75.0, dark)
    table = _table(paper, dark, middle, common)
    return np.frombuffer(drawing.tobytes().translate(table), np.uint8).reshape(SIDE, SIDE)


def _change_from(paper: int) -> Float32[np.ndarray, "256"]:
    return _GREYS - _GREYS[paper]


@cache
def _steps_from(paper: int) -> list[float]:
    """By how much each level differs from the paper's."""
    return _change_from(paper).tolist()


@lru_cache(1000)  # drawings on white paper share a few
def _table(paper: int, dark: bool, middle: tuple[int, ...], common: float) -> bytes:
    """The level of ink of every level of grey; `middle` are the levels of a typical stroke."""
    ink = -_change_from(paper) if dark else _change_from(paper)
    full = float(ink[list(middle)].mean())
    return _levels(_Ink(ink[None], full, min(max(common, 0.0), full / 4))).tobytes()


def _between(up_to: list[int], first: int, last: int) -> int:
    """How many pixels have the levels first … last − 1."""
    return (up_to[last - 1] if last else 0) - (up_to[first - 1] if first else 0)


@cache
def _border_mask() -> Image.Image:
    return Image.fromarray(border_of((SIDE, SIDE)))


def _percentile(values: list[float], up_to: list[int], percent: float, negative: bool = False) -> float:
    """NumPy's percentile of sorted values, of which there are so many up to each; or of their negatives."""
    last = up_to[-1] - 1
    place = last * (percent / 100)
    below = int(place)
    above = min(below + 1, last)
    if negative:  # whose order is the other way round
        lower, upper = -values[bisect_right(up_to, last - below)], -values[bisect_right(up_to, last - above)]
    else:
        lower, upper = values[bisect_right(up_to, below)], values[bisect_right(up_to, above)]
    return lower + (upper - lower) * (place - below)


def _comes_in_from_outside(mask: Mask, half_width: float) -> bool:
    """Whether something thicker than a stroke reaches the edge: a shadow, or the ground under a sheet."""
    thick = half_width * max(mask.shape)
    edge = np.ones(mask.shape, bool)
    edge[1:-1, 1:-1] = False
    if mask[edge].sum() <= thick:
        return False
    return bool(ndimage.distance_transform_edt(mask)[edge].max() > thick)


def _ink_in_photograph(grey: Grey) -> _Ink | None:
    """Strokes on paper of any light and shade; None where there are none."""
    if np.ptp(np.percentile(grey, [0.05, 99.95])) < _LEAST_CONTRAST:
        return None
    corners = find_sheet(grey)
    on_sheet = None if corners is None else _strokes_on(flatten_sheet(grey, corners))
    return on_sheet or _strokes_on(grey)


def _strokes_on(grey: Grey) -> _Ink | None:
    """Strokes on paper that fills the picture; None where there are none."""
    amount = _strokes(np.log(ndimage.gaussian_filter(grey, 1.0) + _DARK))
    amount = amount - np.median(amount)
    noise = 1.4826 * np.median(np.abs(amount))
    strongest = np.percentile(amount, 99.95)
    if strongest < max(_LEAST_CONTRAST, 5 * noise):
        return None
    full = float(np.median(amount[amount > strongest / 2]))
    return _Ink(amount, full, full / 4)


def _strokes(levels: Grey) -> Grey:
    """How much darker than its paper each pixel is; or lighter, if the strokes are lighter than the paper.

    The paper's level is a closing (opening) by a square that no stroke can hold: it follows light and the
    straight edge of a shadow as they are, and passes over strokes.
    """
    widest = _WIDEST if _has_hard_shadow(levels) else _WIDEST_AREA
    dark, light = _dark_lines(levels, widest), _dark_lines(-levels, widest)
    # In a light drawing the gaps between strokes are dark lines as well, but as dark as everything around.
    excess = levels - _surroundings(levels)
    return dark if np.median(-excess[_strong(dark)]) >= np.median(excess[_strong(light)]) else light


def _has_hard_shadow(levels: Grey) -> bool:
    coarse = levels[::4, ::4]
    change = coarse - np.median(coarse)
    return any(_comes_in_from_outside(mask, _WIDEST / 2) for mask in (change < -_SHADE, change > _SHADE))


def _dark_lines(levels: Grey, widest: float) -> Grey:
    """By how much each pixel is darker than its surroundings, within what is narrower than `widest`."""
    return ndimage.grey_closing(levels, round(widest * max(levels.shape)) | 1, mode="nearest") - levels


def _strong(amount: Grey) -> Mask:
    return amount >= np.percentile(amount, 99.95) / 2


def _surroundings(levels: Grey) -> Grey:
    """The median level within a quarter of the picture: that of the paper, since ink is the lesser part."""
    height, width = levels.shape
    scale = 80 / max(height, width)
    small = Image.fromarray(levels).resize(
        (max(1, round(width * scale)), max(1, round(height * scale))), Image.Resampling.BOX
    )
    median = ndimage.median_filter(np.asarray(small), 21, mode="nearest")
    return np.asarray(Image.fromarray(median).resize((width, height), Image.Resampling.BILINEAR))


def _without_specks(mask: Mask) -> Mask:
    """The drawing alone: no dust, and nothing small that the edge of the picture cuts off."""
    labels, count = ndimage.label(mask, np.ones((3, 3)))
    if count <= 1:
        return mask
    sizes = np.bincount(labels.ravel(), minlength=count + 1)[1:]
    keep = sizes >= 0.02 * sizes.max()
    at_edge = np.unique(np.concatenate([labels[0], labels[-1], labels[:, 0], labels[:, -1]]))
    for label in at_edge[at_edge > 0]:
        keep[label - 1] &= sizes[label - 1] >= 0.5 * sizes.max()
    return np.concatenate([[False], keep])[labels]


def _levels(ink: _Ink) -> UInt8[np.ndarray, "height width"]:
    return np.rint(255 * np.clip((ink.amount - ink.faint) / (ink.full - ink.faint), 0, 1)).astype(np.uint8)


def _frame(ink: _Ink) -> UInt8[np.ndarray, "105 105"]:
    """Centre the drawing, scale it, and bring its strokes to the width of a pen."""
    mask = _without_specks(ink.amount > (ink.full + ink.faint) / 2)
    (top, bottom), (left, right) = (_span(np.asarray(mask.any(axis=axis))) for axis in (1, 0))
    extent = max(bottom - top, right - left)
    solid = mask[top:bottom, left:right].mean() > 0.6
    dot = solid and extent <= 0.05 * max(mask.shape)  # a dot stays a dot
    window = max(mask.shape) if dot else extent * SIDE / EXTENT
    corner = np.array([left + right - window, top + bottom - window]) / 2
    whole = np.floor(corner).astype(int), np.ceil(corner + window).astype(int)
    within = corner - whole[0]
    levels = np.where(mask, np.clip((ink.amount - ink.faint) / (ink.full - ink.faint), 0, 1), 0)
    fine = Image.fromarray(levels).crop((*whole[0].tolist(), *whole[1].tolist()))
    side = _FINE * SIDE
    scaled = fine.resize((side, side), Image.Resampling.BICUBIC, (*within, *(within + window)))
    cover = np.asarray(scaled)  # hairlines lost contrast: half of what a typical stroke has is its edge
    return _redraw(cover > np.median(cover[cover > cover.max() / 2]) / 2)


def _span(any_ink: Bool[np.ndarray, "length"]) -> tuple[int, int]:
    places = np.nonzero(any_ink)[0]
    return int(places[0]), int(places[-1]) + 1


def _redraw(mask: Mask) -> UInt8[np.ndarray, "105 105"]:
    """Widen or thin the strokes of a drawing of `_FINE` times the size, and average."""
    rows, columns = (_span(np.asarray(mask.any(axis=axis))) for axis in (1, 0))
    margin = math.ceil(_FINE * STROKE[0] / 2) + 1  # as far as strokes can be widened: all beyond stays paper
    near = tuple(slice(max(first - margin, 0), last + margin) for first, last in (rows, columns))
    drawn = mask[near]
    inside = ndimage.distance_transform_edt(drawn) - 0.5
    # Of a band, the mean distance to its edge is a quarter of its width.
    width = 4 * inside[drawn].mean() / _FINE
    filled = width > 2 * STROKE[1]  # no stroke at all
    change = 0 if filled else (np.clip(width, *STROKE) - width) / 2 * _FINE
    # Distances take most of the time: those from paper to ink matter only where strokes become wider.
    outside = ndimage.distance_transform_edt(~drawn) - 0.5 if change > 0 else 0.5
    levels = np.zeros(mask.shape, np.uint8)
    levels[near] = np.rint(255 * np.clip(np.where(drawn, inside, -outside) + change + 0.5, 0, 1))
    return np.asarray(Image.fromarray(levels).reduce(_FINE))
