"""The data set that needs no download: characters of invented scripts, drawn by a jittery hand.

Three steps, in this order below. `_compose` invents a class: a few pen strokes, each attached to an earlier
one, in the manner of the alphabet that the class belongs to. `_perform` draws it many times over: the same
strokes with other control points, slant, size and place. `_rasterise` inks the pen's paths. The constants
were set by measurement so that stroke width, size and variability resemble Omniglot's; none of its drawings
is used.
"""

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int, UInt8
from numpy.random import Generator, default_rng
from tqdm import tqdm

from mann.data.cache import digest, load_bitmaps, store_bitmaps
from mann.data.images import SIDE, ImageSet
from mann.errors import MannError
from mann.files import cache_dir, write_atomically

FORMAT = 1  # part of the cached file's name: raise it whenever the same seed would give other drawings
MAX_CLASSES = 100_000
MAX_DRAWINGS = 400_000  # 4.4 GB in memory, one byte per pixel

# How round the pen takes a stroke (0: straight from point to point, 1: a smooth curve through all), how
# common it is, and its control points in tenths of a unit (x to the right, y down). The number of intervals
# between control points must divide _INTERVALS, so that corners stay sharp.
_SHAPES: dict[str, tuple[float, float, list[tuple[float, float]]]] = {
    "line": (0, 7, [(-5, 0), (5, 0)]),
    "bow": (1, 3, [(-5, 1), (0, -1.5), (5, 1)]),
    "corner": (0, 2.5, [(-3.5, -5), (-3.5, 5), (3.5, 5)]),
    "cup": (1, 3, [(-4, -5), (-3.8, 2), (0, 5), (3.8, 2), (4, -5)]),
    "hook": (1, 3, [(2, -5), (2, 0), (1.5, 4), (-1, 5), (-3, 3)]),
    "crescent": (1, 2.5, [(3.5, -4), (-2, -4.5), (-4, 0), (-2, 4.5), (3.5, 4)]),
    "ring": (1, 3, [(0, -3.5), (3, -1.8), (3, 1.8), (0, 3.5), (-3, 1.8), (-3, -1.8), (0, -3.5)]),
    "loop": (1, 1.5, [(-5, 5), (0, 2), (3, -2), (0.5, -5), (-2, -2), (0.5, 2.5), (5, 5)]),
    "curl": (1, 1.5, [(1, 1), (-1.5, 1), (-1, -2), (2.5, -2), (4, 1.5), (1, 5), (-5, 4)]),
    "wave": (1, 1.5, [(3, -4), (-0.5, -5), (-3, -2.5), (0, 0), (3, 2.5), (0.5, 5), (-3, 4)]),
    "three": (1, 1, [(-3, -4.5), (2, -4.5), (2, -1), (-1, 0), (3, 1.5), (2, 5), (-3, 4)]),
    "omega": (1, 1, [(-5, -4), (-4.5, 3.5), (-1, 3), (0, -2), (1, 3), (4.5, 3.5), (5, -4)]),
    "zigzag": (0, 1.5, [(-4, -5), (4, -5), (-4, 5), (4, 5)]),
    "step": (0, 1, [(-4, -5), (1, -5), (0, 5), (4.5, 5)]),
    "bracket": (0, 1, [(-3.5, 5), (-3.5, -5), (3.5, -5), (3.5, 5)]),
    "peak": (0, 1, [(-4, 5), (0, -5), (4, 5)]),
    "box": (0, 1, [(-4, -4), (4, -4), (4, 4), (-4, 4), (-4, -4)]),
    "triangle": (0, 0.7, [(0, -4.5), (4.5, 4), (-4.5, 4), (0, -4.5)]),
    "dot": (1, 1, [(0.3, 0), (-0.3, 0.2), (0, -0.3)]),
}
_ALPHABET = 30  # classes to an alphabet
_TRIES = 16  # strokes proposed for a class, most of them rejected
_INTERVALS = 12  # a path is 13 points, few as a mouse's: large curves come out as polygons, as in Omniglot
_STAMPS = 16  # touches of the pen from one point to the next
_PEN_WIDTHS, _PEN_SHARES = (4, 5, 6), (0.25, 0.7, 0.05)  # pixels; how often
_MARGIN = 3  # pixels around the frame while inking: half of the widest pen
_MIDDLE, _REACH = 51.0, 49.0  # pixels: where characters are centred, and how far from there the pen may go

Paths = Float[np.ndarray, "drawings points 2"]
Jitter = Callable[..., Float[np.ndarray, "..."]]  # (standard deviation, *shape) -> noise for every drawing


@dataclass(frozen=True)
class _Stroke:
    """One pen stroke of a class, and where it belongs: its point `by` lies at the point `at` of `parent`,
    `gap` away. `at` and `by` run from 0 (where the pen went down) to 1 (where it was lifted)."""

    controls: Float[np.ndarray, "controls 2"]
    roundness: float
    parent: int = 0  # index of an earlier stroke; without meaning for the first
    at: float = 0.5
    by: float = 0.5
    gap: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class _Alphabet:
    """What the characters of one script have in common."""

    shares: Float[np.ndarray, "shapes"]  # how often each shape is chosen
    length: float  # typical length of all strokes of a character, for a larger side of 1
    size: float  # typical larger side of a character, in pixels
    headline: float  # how often a character begins with a horizontal bar
    spine: float  # how often with a vertical one
    echoes: float  # how often a stroke repeats or mirrors an earlier one


def _invent_alphabet(rng: Generator) -> _Alphabet:
    common = np.array([weight for _, weight, _ in _SHAPES.values()])
    return _Alphabet(
        shares=rng.dirichlet(0.5 * common),
        length=rng.normal(2.75, 0.35),
        size=rng.normal(62, 5),
        headline=rng.choice([0, 0.8], p=[0.85, 0.15]),
        spine=rng.choice([0.05, 0.5], p=[0.8, 0.2]),
        echoes=rng.uniform(0.05, 0.35),
    )


def _invent_stroke(rng: Generator, alphabet: _Alphabet) -> _Stroke:
    """A shape of the alphabet, deformed, stretched, and turned; still unattached."""
    shape = rng.choice(list(_SHAPES), p=alphabet.shares)
    roundness, _, tenths = _SHAPES[shape]
    controls = np.array(tenths) / 10 * np.exp(rng.normal(0, 0.2, 2)) * rng.choice([-1, 1], 2)
    controls += rng.normal(0, 0.02 if shape in ("line", "dot") else 0.25 / len(controls), controls.shape)
    # Scripts prefer level and upright strokes: turn by quarters, and only sometimes by much else.
    turn = rng.integers(4) * np.pi / 2 + rng.choice([0.04, 0.5], p=[0.8, 0.2]) * rng.standard_normal()
    # An intricate shape must not be small, or it would end as a blot.
    size = 1.0 if shape == "dot" else max(np.exp(rng.normal(-0.25, 0.35)), 0.1 * len(controls))
    return _Stroke(controls @ _rotation(turn) * size, abs(roundness - 0.15 * rng.random()))


def _attach(rng: Generator, stroke: _Stroke, parent: int) -> _Stroke:
    """Join a new stroke to an earlier one at a start, an end or along it, across it, or leave it apart."""
    end, along = float(rng.integers(2)), rng.choice([0.25, 0.5, 0.75]) + rng.normal(0, 0.08)
    manners = {
        "continue": (1.0, 0.0),
        "fork": (end, end),
        "branch": (along, end),
        "cross": (along, rng.uniform(0.3, 0.7)),
        "apart": (0.5, 0.5),
    }
    manner = rng.choice(list(manners), p=[0.3, 0.15, 0.3, 0.1, 0.15])
    angle, distance = rng.integers(8) * np.pi / 4, rng.uniform(0.35, 0.8) * (manner == "apart")
    at, by = manners[manner]
    gap = (distance * np.cos(angle), distance * np.sin(angle))
    return replace(stroke, parent=parent, at=at, by=by, gap=gap)


def _echo(rng: Generator, strokes: list[_Stroke]) -> _Stroke:
    """The last stroke once more: at the other side of what it is attached to, or beside itself."""
    last = strokes[-1]
    mirrored = replace(last, controls=last.controls * rng.choice([[1, 1], [-1, 1], [1, -1]]))
    if len(strokes) > 1 and abs(last.at - 0.5) > 0.1:
        return replace(mirrored, at=1 - last.at)
    beside = rng.choice([[0.3, 0.0], [0.6, 0.0], [0.0, 0.3]])
    return replace(mirrored, parent=len(strokes) - 1, at=0.5, by=0.5, gap=tuple(beside))


def _compose(seed: int, index: int) -> tuple[list[_Stroke], float]:
    """The class `index`: its strokes in the order they are written, and its size in pixels per unit."""
    alphabet = _invent_alphabet(default_rng([seed, 0, index // _ALPHABET]))
    rng = default_rng([seed, 1, index])
    first = _invent_stroke(rng, alphabet)
    bar, chance = np.array([(-0.5, 0.0), (0.5, 0.0)]), rng.random()
    if chance < alphabet.headline:
        first = _Stroke(bar, 0.0)
    elif chance < alphabet.headline + alphabet.spine:
        first = _Stroke(bar[:, ::-1], 0.0)
    strokes, path = [first], _draw(first, [], _still_hand)
    paths, extent, written = [path], _extent(path), _length(path)
    length = rng.normal(alphabet.length, 0.55)
    for _ in range(_TRIES):
        if written > (length - 0.3) * extent:
            break
        if rng.random() < alphabet.echoes:
            stroke = _echo(rng, strokes)
        else:
            stroke = _attach(rng, _invent_stroke(rng, alphabet), int(rng.integers(len(strokes))))
        path, earlier = _draw(stroke, paths, _still_hand), np.concatenate(paths, axis=1)
        whole = _extent(np.concatenate([earlier, path], axis=1))
        # Only what can be read: not too much ink for the size, and no stroke that runs along earlier ones.
        near = np.linalg.norm(path[0][:, None] - earlier[0], axis=-1).min(axis=1) < 0.12 * whole
        if written + _length(path) < (length + 0.4) * whole and near.mean() < 0.35 and whole < 1.8:
            strokes.append(stroke)
            paths.append(path)
            extent, written = whole, written + _length(path)
    size = rng.normal(alphabet.size, 7.5) * min(1.0, extent**0.7)
    return strokes, float(np.clip(size, 2, 90)) / extent


def _extent(path: Paths) -> float:
    return float(np.ptp(path, axis=1).max())


def _length(path: Paths) -> float:
    return float(np.linalg.norm(np.diff(path, axis=1), axis=-1).sum())


def _still_hand(sd: float, *shape: int) -> Float[np.ndarray, "..."]:
    """The jitter of a class as it was meant."""
    return np.zeros((1, *shape))


def _rotation(angle: float | Float[np.ndarray, "..."]) -> Float[np.ndarray, "... 2 2"]:
    cos, sin = np.cos(angle), np.sin(angle)
    return np.moveaxis(np.array([[cos, sin], [-sin, cos]]), (0, 1), (-2, -1))


@functools.cache
def _interpolation(controls: int) -> Float[np.ndarray, "2 points controls"]:
    """Matrices that take control points to the path through them: smooth (Catmull-Rom) and straight."""
    smooth, straight = matrices = np.zeros((2, _INTERVALS + 1, controls))
    for row, t in enumerate(np.linspace(0, controls - 1, _INTERVALS + 1)):
        i = min(int(t), controls - 2)
        u = t - i
        straight[row, [i, i + 1]] = 1 - u, u
        weights = (-u + 2 * u**2 - u**3, 2 - 5 * u**2 + 3 * u**3, u + 4 * u**2 - 3 * u**3, u**3 - u**2)
        for k, weight in zip(range(i - 1, i + 3), weights, strict=True):
            smooth[row, min(max(k, 0), controls - 1)] += weight / 2
    return matrices


def _point(path: Paths, where: Float[np.ndarray, "drawings"]) -> Float[np.ndarray, "drawings 1 2"]:
    """The point at the fraction `where` of each path."""
    position = np.clip(where, 0, 1) * _INTERVALS
    before = np.minimum(position.astype(int), _INTERVALS - 1)
    rows, rest = np.arange(len(path)), (position - before)[:, None]
    return ((1 - rest) * path[rows, before] + rest * path[rows, before + 1])[:, None]


def _draw(stroke: _Stroke, paths: list[Paths], jitter: Jitter) -> Paths:
    """The pen's path for one stroke, given those for the earlier ones."""
    size = np.ptp(stroke.controls, axis=0).max()
    controls = stroke.controls + jitter(min(0.05, 0.2 / len(stroke.controls)) * size, *stroke.controls.shape)
    controls = controls * np.exp(jitter(0.16, 1, 2)) @ _rotation(jitter(0.1))
    roundness = np.clip(stroke.roundness + jitter(0.2, 1, 1), 0, 1)
    smooth, straight = _interpolation(len(stroke.controls))
    path = roundness * (smooth @ controls) + (1 - roundness) * (straight @ controls)
    if not paths:
        return path
    anchor = _point(paths[stroke.parent], stroke.at + jitter(0.05))
    return path - _point(path, stroke.by + jitter(0.02)) + anchor + np.array(stroke.gap) + jitter(0.03, 1, 2)


def _perform(strokes: list[_Stroke], scale: float, drawings: int, rng: Generator) -> Paths:
    """Draw a class anew `drawings` times: the pen's paths in pixels, 13 points to a stroke."""

    def jitter(sd: float, *shape: int) -> Float[np.ndarray, "..."]:
        # Every quantity has its own stream, so that a drawing does not depend on how many are made.
        return rng.spawn(1)[0].normal(0, sd, (drawings, *shape))

    paths: list[Paths] = []
    for stroke in strokes:
        paths.append(_draw(stroke, paths, jitter))
    points = np.concatenate(paths, axis=1)
    points[..., 0] -= jitter(0.12, 1) * points[..., 1]  # slant
    points = points @ _rotation(jitter(0.05)) * (scale * np.exp(jitter(0.08, 1, 1) + jitter(0.05, 1, 2)))
    points += jitter(0.35, 1, 1) * jitter(1.0, points.shape[1], 2)  # some hands tremble more than others
    # Into the frame: centre, shrink what is too large, and move about no farther than there is room.
    low, high = points.min(axis=1, keepdims=True), points.max(axis=1, keepdims=True)
    half = (high - low) / 2
    shrink = np.minimum(1, _REACH / half.max(axis=2, keepdims=True))
    slack = _REACH - half * shrink
    return (points - (low + high) / 2) * shrink + _MIDDLE + np.clip(jitter(5.0, 1, 2), -slack, slack)


def _rasterise(points: Paths, widths: Int[np.ndarray, "drawings"]) -> UInt8[np.ndarray, "drawings 105 105"]:
    """Ink the paths with round pens of the given widths in pixels."""
    drawings = len(points)
    ends = points.reshape(drawings, -1, _INTERVALS + 1, 2)
    fractions = np.linspace(0, 1, _STAMPS)[:, None]
    dense = ends[:, :, :-1, None] * (1 - fractions) + ends[:, :, 1:, None] * fractions
    columns, rows = np.rint(dense.reshape(drawings, -1, 2)).astype(int).transpose(2, 0, 1)
    side = SIDE + 2 * _MARGIN
    canvas = np.zeros((drawings, side, side), np.uint8)
    canvas[np.arange(drawings)[:, None], rows + _MARGIN, columns + _MARGIN] = 1
    for width in _PEN_WIDTHS:
        chosen = widths == width
        canvas[chosen] = _thicken(canvas[chosen], width)
    return canvas[:, _MARGIN:-_MARGIN, _MARGIN:-_MARGIN]


def _thicken(
    canvas: UInt8[np.ndarray, "drawings side side"], width: int
) -> UInt8[np.ndarray, "drawings side side"]:
    """Put a disc `width` pixels across in place of every inked pixel."""
    thin = canvas.ravel()
    thick = thin.copy()
    for dy, dx in np.ndindex(width, width):
        if np.hypot(dy - (width - 1) / 2, dx - (width - 1) / 2) <= width / 2:
            # On the flattened canvas a shift is one fast pass; the margin keeps ink from wrapping around.
            thick |= np.roll(thin, (dy - width // 2) * canvas.shape[-1] + dx - width // 2)
    return thick.reshape(canvas.shape)


def make_glyphs(classes: int, drawings: int, seed: int) -> UInt8[np.ndarray, "{classes} {drawings} 105 105"]:
    """Invent and draw the classes, ink = 1. The first n classes, and the first n drawings of a class, are the
    same however many are asked for."""
    _check(classes, drawings, seed)
    bitmaps = np.empty((classes, drawings, SIDE, SIDE), np.uint8)
    for index in tqdm(range(classes), desc="glyphs", unit="class", delay=2, leave=False, disable=None):
        strokes, scale = _compose(seed, index)
        rng = default_rng([seed, 2, index])
        widths = rng.choice(_PEN_WIDTHS, drawings, p=_PEN_SHARES)
        bitmaps[index] = _rasterise(_perform(strokes, scale, drawings, rng), widths)
    return bitmaps


def load_glyphs(classes: int = 1623, drawings: int = 20, seed: int = 0) -> ImageSet:
    """`make_glyphs` as an image set, kept in the user's cache; a damaged cache is made anew."""
    _check(classes, drawings, seed)
    path = cache_dir() / f"glyphs-{FORMAT}-{seed}-{classes}x{drawings}.bits"
    sidecar = path.with_suffix(".sha256")
    try:
        bitmaps = load_bitmaps(path, classes, drawings, sidecar.read_text("ascii"))
    except (OSError, UnicodeDecodeError, MannError):
        bitmaps = make_glyphs(classes, drawings, seed)
        store_bitmaps(path, bitmaps)
        with contextlib.suppress(OSError):  # as in `store_bitmaps`: without a cache it is only slower
            write_atomically(sidecar, digest(bitmaps).encode("ascii"))
    labels = tuple(f"glyph {index + 1:04d}" for index in range(classes))
    alphabets = tuple(f"alphabet {index // _ALPHABET + 1}" for index in range(classes))
    return ImageSet("glyphs", bitmaps, np.full(classes, drawings), labels, alphabets=alphabets)


def _check(classes: int, drawings: int, seed: int) -> None:
    if not 2 <= classes <= MAX_CLASSES:
        raise MannError(f"{classes} classes of glyphs were asked for: ask for 2 to {MAX_CLASSES}.")
    if not 2 <= drawings <= MAX_DRAWINGS // classes:
        raise MannError(
            f"{drawings} drawings of each of {classes} glyphs were asked for: ask for 2 or more of each, and "
            f"at most {MAX_DRAWINGS} in all, which is what fits in memory."
        )
    if seed < 0:
        raise MannError(f"The seed of the glyphs was {seed}: give 0 or a positive whole number.")
