"""A sheet of paper that lies on something darker: where it is, and what it looks like from straight above."""

import numpy as np
from jaxtyping import Bool, Float, Float32
from PIL import Image, ImageDraw
from scipy import ndimage

_SIDE = 160  # pixels of the longer side are enough to see a sheet
_PEN = 7  # of those pixels: no stroke is wider, so that a drawing does not tear the sheet apart
_LEAST_STEP = 0.1  # between the sheet and its ground, from black = 0 to white = 1
_INSET = 0.03  # of the sheet, cut off all around: its edge, which is never quite straight

Grey = Float32[np.ndarray, "height width"]


def find_sheet(grey: Grey) -> Float[np.ndarray, "4 2"] | None:
    """The corners (x, y) of a light sheet on a darker ground: top left, and on clockwise.

    None where there is no such thing: the picture shows paper up to its edge, or nothing with four corners.
    """
    scale = max(1.0, max(grey.shape) / _SIDE)
    size = max(1, round(grey.shape[1] / scale)), max(1, round(grey.shape[0] / scale))
    small = np.asarray(Image.fromarray(grey).resize(size, Image.Resampling.BOX))
    plain = ndimage.grey_closing(small, _PEN, mode="nearest")
    if np.ptp(plain) < _LEAST_STEP:
        return None
    light = ndimage.binary_opening(plain > _otsu(plain), iterations=2)
    sheet = _largest(light)
    if sheet is None:
        return None
    whole = ndimage.binary_fill_holes(sheet)
    edge = np.ones(whole.shape, bool)
    edge[1:-1, 1:-1] = False
    if whole.mean() < 0.08 or whole[edge].mean() > 0.1 or _spans(whole) or sheet.sum() < 0.6 * whole.sum():
        return None
    if np.median(plain[whole]) < 1.15 * np.median(plain[~whole]):
        return None  # hardly lighter than its ground: nothing that lies on something else
    corners = _corners(whole)
    if _overlap(corners, whole) < 0.88:
        return None
    return (corners + 0.5) * scale


def flatten_sheet(grey: Grey, corners: Float[np.ndarray, "4 2"]) -> Float32[np.ndarray, "rows columns"]:
    """The sheet alone, as a rectangle, without its edge."""
    inner = corners + _INSET * 2 * (corners.mean(axis=0) - corners)
    sides = np.linalg.norm(inner - np.roll(inner, -1, axis=0), axis=1)
    width, height = (max(2, round((sides[i] + sides[i + 2]) / 2)) for i in (0, 1))
    target = np.array([(0, 0), (width, 0), (width, height), (0, height)])
    flat = Image.fromarray(grey).transform(
        (width, height),
        Image.Transform.PERSPECTIVE,
        _perspective(target, inner),
        Image.Resampling.BILINEAR,
    )
    return np.asarray(flat)


def _otsu(values: Grey) -> float:
    """The threshold that splits the levels into two classes of least variance (Otsu 1979)."""
    counts, edges = np.histogram(values, 64)
    middles = (edges[:-1] + edges[1:]) / 2
    below, total = np.cumsum(counts), np.cumsum(counts * middles)
    above = below[-1] - below
    with np.errstate(divide="ignore", invalid="ignore"):
        between = below * above * (total / below - (total[-1] - total) / above) ** 2
    return float(edges[1 + np.nanargmax(between[:-1])])


def _largest(mask: Bool[np.ndarray, "height width"]) -> Bool[np.ndarray, "height width"] | None:
    labels, count = ndimage.label(mask)
    if count == 0:
        return None
    return labels == 1 + np.argmax(np.bincount(labels.ravel())[1:])


def _spans(mask: Bool[np.ndarray, "height width"]) -> bool:
    """Whether it goes from one edge to the opposite one, as a strip of light does."""
    sides = [line.any() for line in (mask[0], mask[-1], mask[:, 0], mask[:, -1])]
    return bool((sides[0] and sides[1]) or (sides[2] and sides[3]))


def _corners(mask: Bool[np.ndarray, "height width"]) -> Float[np.ndarray, "4 2"]:
    """The points furthest towards the four corners of the picture."""
    y, x = np.nonzero(mask)
    chosen = [np.argmin(x + y), np.argmax(x - y), np.argmax(x + y), np.argmin(x - y)]
    return np.stack([x[chosen], y[chosen]], axis=1).astype(float)


def _overlap(corners: Float[np.ndarray, "4 2"], mask: Bool[np.ndarray, "height width"]) -> float:
    """How much of a mask and of the figure with these corners is common to both."""
    canvas = Image.new("1", mask.shape[::-1])
    ImageDraw.Draw(canvas).polygon([tuple(corner) for corner in corners.tolist()], fill=1)
    drawn = np.asarray(canvas)
    return float((drawn & mask).sum() / (drawn | mask).sum())


def _perspective(places: np.ndarray, sources: np.ndarray) -> list[float]:
    """The coefficients with which PIL fetches each of four places from its source."""
    rows, values = [], []
    for (x, y), (u, v) in zip(places, sources, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        values += [u, v]
    return np.linalg.solve(np.array(rows, float), np.array(values, float)).tolist()
