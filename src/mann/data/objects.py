"""Things made by rules, photographed: a body with marks on it, each of a colour or a pattern of two.

Twelve classes are of one *kind*: they have the same outline, and differ in colours, patterns and marks, so that
neither form nor colour alone tells all classes apart. A picture shows the thing somewhat turned, larger or smaller,
out of the middle, on another ground, with the light from another side.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, UInt8
from numpy.random import Generator, default_rng
from tqdm import tqdm

from mann.data.images import ImageSet
from mann.data.light import Colours, take_photographs
from mann.errors import check_range, check_seed

HEIGHT = 48  # pixels per side
MAX_CLASSES = 20_000
MAX_PICTURES = 400_000  # 2.8 GB in memory
_KIND = 12  # classes of a kind
_WAVES = np.arange(2, 7)  # lobes of an outline
_EDGE = 0.05  # of half the side, over which an outline ends

Planes = Float32[np.ndarray, "pictures side side"]


@dataclass(frozen=True)
class _Outline:
    """A closed line about a place: the distance from there by the angle."""

    amplitudes: Float[np.ndarray, "waves"]
    phases: Float[np.ndarray, "waves"]
    aspect: float
    size: float
    place: tuple[float, float] = (0.0, 0.0)

    def inside(self, x: Planes, y: Planes) -> Planes:
        """1 inside, 0 outside, and between them near the line."""
        x, y = (x - np.float32(self.place[0])) * np.float32(self.aspect), y - np.float32(self.place[1])
        angle = np.arctan2(y, x)
        line = np.ones_like(angle)
        for wave, amplitude, phase in zip(_WAVES, self.amplitudes, self.phases, strict=True):
            line += np.float32(amplitude) * np.cos(np.float32(wave) * angle + np.float32(phase))
        return np.clip(
            (np.float32(self.size) * line - np.hypot(x, y)) / np.float32(_EDGE) + np.float32(0.5), 0, 1
        )


@dataclass(frozen=True)
class _Surface:
    """One colour, or two in stripes, dots or from one side to the other."""

    colours: Float[np.ndarray, "2 3"]
    pattern: str
    cycles: float
    angle: float

    def paint(self, x: Planes, y: Planes) -> Colours:
        along = np.float32(np.cos(self.angle)) * x + np.float32(np.sin(self.angle)) * y
        aside = np.float32(np.cos(self.angle)) * y - np.float32(np.sin(self.angle)) * x
        waves = np.float32(np.pi * self.cycles)
        ways: dict[str, Callable[[], Planes]] = {
            "plain": lambda: np.zeros_like(along),
            "stripes": lambda: 0.5 + 0.5 * np.tanh(3 * np.cos(waves * along)),
            "dots": lambda: 0.5 + 0.5 * np.tanh(4 * np.cos(waves * along) * np.cos(waves * aside) - 1.2),
            "fading": lambda: np.clip(along + 0.5, 0, 1),
        }
        share = ways[self.pattern]()[..., None]
        first, second = self.colours.astype(np.float32)
        return (1 - share) * first + share * second


def make_objects(classes: int, pictures: int, seed: int) -> UInt8[np.ndarray, "{classes} {pictures} 48 48 3"]:
    """Invent things and photograph them. The first n classes are the same however many are asked for.

    Raises:
        MannError: for numbers that cannot be meant.
    """
    check_range("The number of objects", classes, 2, MAX_CLASSES)
    check_range("The pictures of each object", pictures, 2, MAX_PICTURES // classes)
    check_seed(seed)
    images = np.empty((classes, pictures, HEIGHT, HEIGHT, 3), np.uint8)
    for index in tqdm(range(classes), desc="objects", unit="class", delay=2, leave=False, disable=None):
        body = _invent_outline(default_rng([seed, 0, index // _KIND]), 0.62)
        rng = default_rng([seed, 1, index])
        parts = [(body, _invent_surface(rng))]
        for _ in range(rng.integers(0, 3)):
            place = tuple(float(shift) for shift in rng.uniform(-0.32, 0.32, 2))
            parts.append((_invent_outline(rng, rng.uniform(0.14, 0.26), place), _invent_surface(rng)))
        images[index] = _photograph(parts, pictures, rng)
    return images


def load_objects(classes: int, pictures: int, seed: int) -> ImageSet:
    """`make_objects` as an image set, whose alphabets are the kinds."""
    images = make_objects(classes, pictures, seed)
    labels = tuple(f"object {index + 1:04d}" for index in range(classes))
    kinds = tuple(f"kind {index // _KIND + 1}" for index in range(classes))
    return ImageSet("objects", images, np.full(classes, pictures), labels, ink=255, alphabets=kinds)


def _invent_outline(rng: Generator, size: float, place: tuple[float, ...] = (0.0, 0.0)) -> _Outline:
    amplitudes = rng.normal(0, 0.28, len(_WAVES)) / np.sqrt(_WAVES) * (rng.random(len(_WAVES)) < 0.5)
    return _Outline(
        amplitudes, rng.uniform(0, 2 * np.pi, len(_WAVES)), rng.uniform(1.0, 1.6), size, (place[0], place[1])
    )


def _invent_surface(rng: Generator) -> _Surface:
    """Colours that differ: two points of the cube, away from each other."""
    first = rng.uniform(0.05, 0.95, 3)
    second = (first + rng.uniform(0.3, 0.7, 3)) % 1
    pattern = str(rng.choice(["plain", "stripes", "dots", "fading"], p=[0.4, 0.25, 0.2, 0.15]))
    return _Surface(np.stack([first, second]), pattern, rng.uniform(2, 5), rng.uniform(0, np.pi))


def _photograph(
    parts: list[tuple[_Outline, _Surface]], pictures: int, rng: Generator
) -> UInt8[np.ndarray, "pictures 48 48 3"]:
    down, right = (np.indices((HEIGHT, HEIGHT), np.float32) * np.float32(2 / HEIGHT) - 1)[:, None]

    def chance(low: float, high: float) -> Planes:
        return rng.uniform(low, high, (pictures, 1, 1)).astype(np.float32)

    turn, scale = chance(-0.3, 0.3), np.exp(chance(-0.2, 0.2))
    stretch, shift_x, shift_y = np.exp(chance(-0.12, 0.12)), chance(-0.15, 0.15), chance(-0.15, 0.15)
    x = scale * stretch * (np.cos(turn) * (right - shift_x) - np.sin(turn) * (down - shift_y))
    y = scale / stretch * (np.sin(turn) * (right - shift_x) + np.cos(turn) * (down - shift_y))
    light = chance(0.0, 2 * np.pi)
    towards = np.cos(light) * right + np.sin(light) * down
    scene = _ground(right, down, pictures, rng)
    body, _ = parts[0]
    cast = body.inside(x + np.float32(0.12) * np.cos(light), y + np.float32(0.12) * np.sin(light))
    scene *= 1 - (chance(0.2, 0.5) * cast)[..., None]
    covered = body.inside(x, y)
    for outline, surface in parts:
        here = (outline.inside(x, y) * covered)[..., None]  # marks end where the body ends
        scene = here * surface.paint(x, y) + (1 - here) * scene
    round_off = 1 + covered * chance(0.1, 0.4) * towards  # lighter where the body faces the light
    return take_photographs(scene * round_off[..., None], rng)


def _ground(right: Planes, down: Planes, pictures: int, rng: Generator) -> Colours:
    """What the thing lies on, in every picture something else: two colours in broad waves."""
    angle, phase = (rng.uniform(0, 2 * np.pi, (pictures, 1, 1)).astype(np.float32) for _ in range(2))
    cycles = rng.uniform(0.3, 6, (pictures, 1, 1)).astype(np.float32)
    wave = 0.5 + 0.5 * np.sin(cycles * (np.cos(angle) * right + np.sin(angle) * down) + phase)
    first = rng.uniform(0.1, 0.9, (pictures, 1, 1, 3)).astype(np.float32)
    second = np.clip(first + rng.normal(0, 0.12, (pictures, 1, 1, 3)), 0, 1).astype(np.float32)
    return first + wave[..., None] * (second - first)
