"""Textures made by rules: swatches of a material on paper, every one cut from another place.

A class is a material of one of three families. *Grain* is noise of some frequencies and directions, and what
becomes of its levels; *lattices* are waves that cross, on a cloth that was not laid out flat; *cells* are what is
nearest to points strewn about. A drawing has noise of its own, and is somewhat larger, turned, darker or lighter.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Float32, UInt8
from numpy.random import Generator, default_rng
from scipy import fft
from tqdm import tqdm

from mann.data.images import SIDE, ImageSet
from mann.errors import check_range, check_seed

MAX_CLASSES = 20_000
MAX_DRAWINGS = 400_000  # 4.4 GB in memory, one byte per pixel
_GRID = (SIDE + 1) // 2  # materials are made at every other pixel, and interpolated
_PERIOD = _GRID + 1  # of noise in grid points: a number that has small factors
_RADIUS, _EDGE = 47.0, 2.0  # pixels: of a swatch, and over which it ends
_COARSEST, _FINEST = (
    2.5,
    8.0,
)  # waves across a picture: of the finest, a network that sees 28 pixels has 3.5 for each
_JITTER = 0.06  # standard deviation of the logarithm of a drawing's scale, and of its turn in radians
_FOLDS = 0.06  # of the side, by which a cloth is moved where it is folded most
_STREWN = 32  # points per side after which a strewn pattern repeats itself, far beyond a picture

Fields = Float32[np.ndarray, "drawings grid grid"]
Material = Callable[[int, Generator], Fields]  # so many swatches, before light and paper


def make_textures(
    classes: int, drawings: int, seed: int
) -> UInt8[np.ndarray, "{classes} {drawings} 105 105"]:
    """Invent the materials and cut swatches from them: 0 is paper, 255 full ink. The first n classes are the same
    however many are asked for.

    Raises:
        MannError: for numbers that cannot be meant.
    """
    check_range("The number of textures", classes, 2, MAX_CLASSES)
    check_range("The swatches of each texture", drawings, 2, MAX_DRAWINGS // classes)
    check_seed(seed)
    pictures = np.empty((classes, drawings, SIDE, SIDE), np.uint8)
    frame = _frame()
    for index in tqdm(range(classes), desc="textures", unit="class", delay=2, leave=False, disable=None):
        rng = default_rng([seed, index])
        material = _FAMILIES[_family(index)](rng)
        dark, contrast = rng.uniform(0.35, 0.65), rng.uniform(0.6, 1.0)
        fields = _enlarge(_standardise(material(drawings, rng)))
        light = rng.normal(0, 0.05, (2, drawings, 1, 1)).astype(np.float32)
        levels = np.float32(dark) + light[0] + np.float32(0.22) * (np.float32(contrast) + light[1]) * fields
        pictures[index] = np.rint(255 * np.clip(levels, 0.05, 1) * frame)
    return pictures


def load_textures(classes: int, drawings: int, seed: int) -> ImageSet:
    """`make_textures` as an image set, whose alphabets are the families."""
    pictures = make_textures(classes, drawings, seed)
    families = tuple(_family(index) for index in range(classes))
    labels = tuple(f"{family} {index + 1:04d}" for index, family in enumerate(families))
    return ImageSet("textures", pictures, np.full(classes, drawings), labels, ink=255, alphabets=families)


def _frame() -> Float32[np.ndarray, "105 105"]:
    """1 on the swatch and 0 on the paper around it."""
    down, right = np.indices((SIDE, SIDE)) - (SIDE - 1) / 2
    return np.clip((_RADIUS - np.hypot(down, right)) / _EDGE + 0.5, 0, 1).astype(np.float32)


def _enlarge(fields: Fields) -> Float32[np.ndarray, "drawings 105 105"]:
    """Every other pixel is one of the grid; those between them are means."""
    rows = np.empty((len(fields), SIDE, _GRID), np.float32)
    rows[:, ::2] = fields
    rows[:, 1::2] = (fields[:, :-1] + fields[:, 1:]) / 2
    whole = np.empty((len(fields), SIDE, SIDE), np.float32)
    whole[:, :, ::2] = rows
    whole[:, :, 1::2] = (rows[:, :, :-1] + rows[:, :, 1:]) / 2
    return whole


def _standardise(fields: Fields) -> Fields:
    """Levels about 0, of which most lie within ±2, whatever the material."""
    centred = fields - fields.mean(axis=(1, 2), keepdims=True)
    return centred / (centred.std(axis=(1, 2), keepdims=True) + np.float32(1e-6))


def _coordinates(drawings: int, rng: Generator) -> tuple[Fields, Fields]:
    """Right and down in pictures, for each drawing: scaled and turned a little, and moved anywhere."""
    down, right = (np.indices((_GRID, _GRID), np.float32) / _GRID - np.float32(0.5))[:, None]
    angle = rng.normal(0, _JITTER, (drawings, 1, 1)).astype(np.float32)
    scale = np.exp(rng.normal(0, _JITTER, (drawings, 1, 1))).astype(np.float32)
    x = scale * (np.cos(angle) * right - np.sin(angle) * down)
    y = scale * (np.sin(angle) * right + np.cos(angle) * down)
    move = rng.uniform(-1, 1, (2, drawings, 1, 1)).astype(np.float32)
    return x + move[0], y + move[1]


def _frequencies() -> tuple[Float[np.ndarray, "period half"], Float[np.ndarray, "period half"]]:
    """Waves across the period of noise, and their direction, as `_noise` takes their amplitudes."""
    down, right = fft.fftfreq(_PERIOD, 1 / _PERIOD)[:, None], fft.rfftfreq(_PERIOD, 1 / _PERIOD)[None]
    return np.hypot(down, right), np.arctan2(down, right)


def _noise(drawings: int, amplitude: Float[np.ndarray, "*each period half"], rng: Generator) -> Fields:
    """Gaussian noise with the given amplitudes of its waves, of standard deviation 1."""
    shape = (drawings, _PERIOD, _PERIOD // 2 + 1)
    waves = rng.standard_normal(shape, np.float32) + 1j * rng.standard_normal(shape, np.float32)
    field = fft.irfft2(waves * amplitude.astype(np.float32), (_PERIOD, _PERIOD))
    return _standardise(field[:, :_GRID, :_GRID].astype(np.float32))


def _grain(rng: Generator) -> Material:
    """Noise of one or two ranges of frequencies and directions, and what becomes of its levels."""
    manner = rng.choice(["plain", "patches", "veins", "ridges"])
    finest = _FINEST if manner in ("plain", "patches") else _FINEST / 2  # folded levels have finer waves
    bumps = [
        (
            np.exp(rng.uniform(np.log(_COARSEST), np.log(finest))),  # waves across
            rng.uniform(0, np.pi),  # their direction
            rng.choice([0.12, 0.3, 3.0]),  # its spread: in the last case, every direction
            rng.uniform(0.1, 0.35),  # spread of the logarithm of their number
            rng.uniform(0.4, 1.0),
        )
        for _ in range(rng.integers(1, 3))
    ]

    def swatches(drawings: int, rng: Generator) -> Fields:
        frequency, direction = _frequencies()
        frequency = np.maximum(frequency, 0.5)
        turns, scales = rng.normal(0, _JITTER, (2, drawings, 1, 1))
        amplitude = np.zeros((drawings, *frequency.shape))
        for waves, angle, angle_spread, spread, height in bumps:
            away = (direction - angle - turns + np.pi / 2) % np.pi - np.pi / 2
            far = np.log(frequency / waves) - scales
            amplitude += height * np.exp(-((away / angle_spread) ** 2) - (far / spread) ** 2) / frequency
        field = _noise(drawings, amplitude, rng)
        if manner == "patches":
            return np.tanh(4 * field)
        if manner == "veins":
            return np.exp(-((2 * field) ** 2))
        return np.cos(np.float32(2.5) * field) if manner == "ridges" else field

    return swatches


def _lattice(rng: Generator) -> Material:
    """Two or three waves that cross, each sharp or soft, on folded cloth."""
    count = rng.integers(2, 4)
    angles = rng.uniform(0, np.pi) + np.cumsum(rng.uniform(0.5, 1.4, count))
    cycles = np.exp(rng.uniform(np.log(_COARSEST), np.log(_FINEST), count))
    sharpness = rng.choice([0.5, 2.0, 5.0], count)
    offsets = rng.uniform(-0.6, 0.6, count)  # how much of each is dark
    joined = rng.choice(["sum", "product", "most"])
    folds = rng.uniform(0.1, 0.5) * _FOLDS

    def swatches(drawings: int, rng: Generator) -> Fields:
        frequency, _ = _frequencies()
        smooth = np.exp(-((frequency / 2) ** 2)) * (frequency > 0)
        x, y = (
            axis + np.float32(folds) * _noise(drawings, smooth, rng) for axis in _coordinates(drawings, rng)
        )
        waves = []
        for angle, cycle, sharp, offset in zip(angles, cycles, sharpness, offsets, strict=True):
            along = np.float32(2 * np.pi * cycle) * (
                np.float32(np.cos(angle)) * x + np.float32(np.sin(angle)) * y
            )
            waves.append(np.tanh(np.float32(sharp) * (np.cos(along) + np.float32(offset))))
        if joined == "product":
            return np.prod(waves, axis=0)
        return np.max(waves, axis=0) if joined == "most" else np.sum(waves, axis=0)

    return swatches


def _cells(rng: Generator) -> Material:
    """What is nearest to points strewn about: pebbles, the cracks between them, bubbles, patchwork."""
    across = np.exp(rng.uniform(np.log(_COARSEST), np.log(0.8 * _FINEST)))  # points
    spread = rng.choice([0.1, 0.4, 1.0])  # from laid out in rows to strewn at random
    stretch, angle = np.exp(rng.uniform(0, 0.4)), rng.uniform(0, np.pi)
    manner = rng.choice(["pebbles", "cracks", "bubbles", "patchwork"])

    def swatches(drawings: int, rng: Generator) -> Fields:
        x, y = _coordinates(drawings, rng)
        cos, sin = np.float32(np.cos(angle)), np.float32(np.sin(angle))
        along, aside = (
            np.float32(across / stretch) * (cos * x + sin * y),
            np.float32(across * stretch) * (cos * y - sin * x),
        )
        nearest, second, level = _nearest(along, aside, spread, rng)
        if manner == "patchwork":
            return level
        if manner == "cracks":
            return -np.exp(-(((second - nearest) / 0.15) ** 2))
        return np.exp(-(((nearest - 0.3) / 0.1) ** 2)) if manner == "bubbles" else -nearest

    return swatches


def _nearest(x: Fields, y: Fields, spread: float, rng: Generator) -> tuple[Fields, Fields, Fields]:
    """How far the two nearest points are, of which every unit square has one, and a random level of the nearest."""
    points = rng.uniform(-0.5, 0.5, (3, len(x), _STREWN, _STREWN)).astype(np.float32)
    drawing = np.arange(len(x))[:, None, None]
    nearest, second = np.full_like(x, 9.0), np.full_like(x, 9.0)
    level = np.zeros_like(x)
    for down, right in np.ndindex(3, 3):
        square_x, square_y = np.floor(x) + (right - 1), np.floor(y) + (down - 1)
        at = (drawing, square_y.astype(int) % _STREWN, square_x.astype(int) % _STREWN)
        distance = np.hypot(
            square_x + np.float32(0.5) + np.float32(spread) * points[0][at] - x,
            square_y + np.float32(0.5) + np.float32(spread) * points[1][at] - y,
        )
        second = np.minimum(second, np.maximum(nearest, distance))
        level = np.where(distance < nearest, points[2][at], level)
        nearest = np.minimum(nearest, distance)
    return nearest, second, level


_FAMILIES: dict[str, Callable[[Generator], Material]] = {
    "grain": _grain,
    "lattice": _lattice,
    "cells": _cells,
}


def _family(index: int) -> str:
    return tuple(_FAMILIES)[index % len(_FAMILIES)]
