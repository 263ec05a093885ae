"""Photographs of hand-drawn shapes, made up: paper, pen, light, shadow, desk and camera, each with its accidents.

Two sets of ten shapes. `SHAPES` may be looked at while the way from photograph to ink is being changed; `UNSEEN`,
with lights, pens and papers of its own, is there to measure it afterwards.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

Stroke = list[tuple[float, float]]  # points in a square from 0 to 1, y down


def arc(x: float, y: float, rx: float, ry: float, start: float, stop: float) -> Stroke:
    """Part of an ellipse; angles in degrees, clockwise from the right."""
    turns = np.radians(np.linspace(start, stop, 25))
    return [(x + rx * float(np.cos(turn)), y + ry * float(np.sin(turn))) for turn in turns]


def star() -> Stroke:
    turns = np.radians(np.arange(6) * 144 - 90)
    return [(0.5 + 0.5 * float(np.cos(turn)), 0.52 + 0.5 * float(np.sin(turn))) for turn in turns]


def spiral() -> Stroke:
    turns = np.linspace(0, 5 * np.pi, 60)
    return [(0.5 + t / 33 * float(np.cos(t)), 0.5 + t / 33 * float(np.sin(t))) for t in turns]


SHAPES: dict[str, list[Stroke]] = {
    "ankh": [arc(0.5, 0.22, 0.17, 0.22, 90, 450), [(0.5, 0.44), (0.5, 1)], [(0.2, 0.54), (0.8, 0.54)]],
    "star": [star()],
    "spiral": [spiral()],
    "house": [
        [(0.1, 0.45), (0.1, 1), (0.9, 1), (0.9, 0.45), (0.1, 0.45), (0.5, 0), (0.9, 0.45)],
        [(0.4, 1), (0.4, 0.7), (0.6, 0.7), (0.6, 1)],
    ],
    "heart": [[*arc(0.27, 0.3, 0.25, 0.28, 20, -180), (0.5, 1), *arc(0.73, 0.3, 0.25, 0.28, 0, -200)]],
    "arrow": [[(0, 0.5), (1, 0.5)], [(0.68, 0.2), (1, 0.5), (0.68, 0.8)]],
    "fish": [[*arc(0.42, 0.5, 0.42, 0.28, 20, 340), (1, 0.8), (1, 0.2), *arc(0.42, 0.5, 0.42, 0.28, 20, 21)]],
    "tree": [[(0.5, 1), (0.5, 0.65)], [(0.1, 0.65), (0.9, 0.65), (0.5, 0), (0.1, 0.65)]],
    "key": [
        arc(0.22, 0.5, 0.2, 0.2, 0, 360),
        [(0.42, 0.5), (1, 0.5), (1, 0.68)],
        [(0.82, 0.5), (0.82, 0.66)],
    ],
    "lightning": [[(0.6, 0), (0.25, 0.55), (0.6, 0.5), (0.35, 1)]],
}
UNSEEN: dict[str, list[Stroke]] = {
    "moon": [arc(0.5, 0.5, 0.45, 0.5, 40, 320) + arc(0.75, 0.5, 0.38, 0.36, 265, 95)],
    "umbrella": [
        [*arc(0.5, 0.5, 0.5, 0.45, 180, 360), (0, 0.5)],
        [(0.5, 0.5), (0.5, 0.9), *arc(0.41, 0.9, 0.09, 0.1, 0, 180)],
    ],
    "anchor": [
        arc(0.5, 0.1, 0.09, 0.1, 0, 360),
        [(0.5, 0.2), (0.5, 0.97)],
        [(0.28, 0.36), (0.72, 0.36)],
        arc(0.5, 0.55, 0.42, 0.43, 5, 175),
    ],
    "cup": [
        [(0.1, 0.2), (0.15, 0.9), (0.62, 0.9), (0.7, 0.2), (0.1, 0.2)],
        arc(0.7, 0.5, 0.25, 0.2, -90, 90),
    ],
    "flag": [[(0.15, 1), (0.15, 0), (0.85, 0.05), (0.7, 0.28), (0.85, 0.5), (0.15, 0.5)]],
    "boat": [
        [(0, 0.7), (0.2, 1), (0.8, 1), (1, 0.7), (0, 0.7)],
        [(0.5, 0.7), (0.5, 0), (0.9, 0.55), (0.5, 0.55)],
    ],
    "mushroom": [
        [*arc(0.5, 0.45, 0.48, 0.42, 180, 360), (0.02, 0.45)],
        [(0.36, 0.45), (0.33, 1), (0.67, 1), (0.64, 0.45)],
    ],
    "glasses": [
        arc(0.22, 0.5, 0.2, 0.2, 0, 360),
        arc(0.78, 0.5, 0.2, 0.2, 180, 540),
        arc(0.5, 0.48, 0.08, 0.06, 180, 360),
    ],
    "hourglass": [[(0.1, 0), (0.9, 0), (0.1, 1), (0.9, 1), (0.1, 0)]],
    "question": [
        [*arc(0.5, 0.27, 0.3, 0.27, 190, 400), (0.5, 0.6), (0.5, 0.75)],
        arc(0.5, 0.95, 0.03, 0.03, 0, 360),
    ],
}


@dataclass(frozen=True)
class Accidents:
    """How much the photographs of a set differ from one another; each pair is a range."""

    wobble: float = 0.02  # of the drawing's size
    tilt: float = 6.0  # degrees, either way
    pen: tuple[float, float] = (0.035, 0.055)  # width, of the drawing's size
    size: tuple[float, float] = (0.5, 0.75)  # of the drawing, of the shorter side of the frame
    small: tuple[float, float] = (0.13, 0.2)  # the same, where it is drawn small
    shade: tuple[float, float] = (0.4, 0.6)  # what a hard shadow leaves of the light
    noise: tuple[float, float] = (2, 5)  # of the camera, in levels of 255
    desk: tuple[tuple[int, int, int], ...] = ((120, 82, 50), (95, 90, 88), (150, 110, 75))


SEEN_ACCIDENTS = Accidents()
UNSEEN_ACCIDENTS = Accidents(
    wobble=0.025,
    tilt=7.0,
    pen=(0.03, 0.065),
    size=(0.45, 0.8),
    small=(0.11, 0.18),
    shade=(0.35, 0.65),
    noise=(1, 6),
    desk=((70, 50, 38), (130, 120, 105), (45, 60, 75)),
)

Scene = Callable[["Camera", list[Stroke]], Image.Image]


class Camera:
    """Draws and photographs, with the accidents of one seed."""

    def __init__(self, seed: int, accidents: Accidents = SEEN_ACCIDENTS, width: int = 1000) -> None:
        self.random = np.random.default_rng(seed)
        self.accidents = accidents
        self.width, self.height = width, round(width * 0.75)
        self.rows, self.columns = np.mgrid[: self.height, : self.width] / np.float32(width)

    def between(self, pair: tuple[float, float]) -> float:
        return float(self.random.uniform(*pair))

    def ink(self, strokes: list[Stroke], size: tuple[float, float], pen: float = 1.0) -> np.ndarray:
        """How much of each pixel a hand's drawing covers, from 0 to 1."""
        extent = self.between(size) * self.height
        tilt = np.radians(self.random.uniform(-1, 1) * self.accidents.tilt)
        turn = np.array([[np.cos(tilt), -np.sin(tilt)], [np.sin(tilt), np.cos(tilt)]])
        shape = turn @ (np.eye(2) + self.random.normal(0, 0.05, (2, 2)))
        spare = np.array([self.width, self.height]) - 1.1 * extent
        centre = np.array([self.width, self.height]) / 2 + self.random.uniform(-0.35, 0.35, 2) * spare
        width = 2 * extent * pen * self.between(self.accidents.pen)  # on a canvas of twice the size
        canvas = Image.new("L", (2 * self.width, 2 * self.height))
        brush = ImageDraw.Draw(canvas)
        for stroke in strokes:
            points = self._by_hand(np.array(stroke)) - 0.5
            places = 2 * (centre + extent * points @ shape.T)
            for (x, y), (u, v) in pairwise(places):
                brush.line((x, y, u, v), 255, round(width))
            for x, y in places:
                brush.ellipse((x - width / 2, y - width / 2, x + width / 2, y + width / 2), 255)
        return np.asarray(canvas.reduce(2), np.float32) / 255

    def _by_hand(self, points: np.ndarray) -> np.ndarray:
        """A stroke drawn with an unsteady hand: corners moved, lines bent a little."""
        fine = np.concatenate(
            [np.linspace(a, b, max(2, int(np.hypot(*(b - a)) / 0.03))) for a, b in pairwise(points)]
        )
        length = np.linspace(0, 1, len(fine))[:, None]
        bent = fine + self.random.normal(0, self.accidents.wobble, 2)
        for wave in (1, 2, 3):
            phase = self.random.uniform(0, 2 * np.pi, 2)
            bent = bent + self.accidents.wobble * self.random.normal(0, 1, 2) * np.sin(
                np.pi * wave * length + phase
            )
        return bent

    def paper(self, colour: tuple[int, int, int] = (243, 241, 236), grain: float = 0.008) -> np.ndarray:
        texture = self.random.normal(1, grain, (self.height, self.width, 1)).astype(np.float32)
        return np.float32(colour) * texture

    def cover(self, paper: np.ndarray, ink: np.ndarray, colour: tuple[int, int, int]) -> np.ndarray:
        return paper + ink[..., None] * (np.float32(colour) - paper)

    def lean(self, strength: float) -> np.ndarray:
        """Light that falls off evenly in some direction, and towards the corners."""
        angle = self.random.uniform(0, 2 * np.pi)
        along = np.cos(angle) * (self.columns - 0.5) + np.sin(angle) * (self.rows - 0.375)
        corner = (self.columns - 0.5) ** 2 + (self.rows - 0.375) ** 2
        return (1 - strength * (0.5 + along) - 0.25 * corner)[..., None]

    def shadow(self, blur: float) -> np.ndarray:
        """A straight-edged shadow that covers a third to two thirds of the frame and crosses its middle."""
        angle = self.random.uniform(0, 2 * np.pi)
        along = np.cos(angle) * (self.columns - 0.5) + np.sin(angle) * (self.rows - 0.375)
        dark = 1 / (1 + np.exp(-np.clip((along - self.random.uniform(-0.1, 0.1)) / blur, -50, 50)))
        return (1 - (1 - self.between(self.accidents.shade)) * dark)[..., None]

    def photograph(self, scene: np.ndarray, blur: float = 0.8) -> Image.Image:
        noise = self.random.normal(0, self.between(self.accidents.noise), scene.shape)
        soft = Image.fromarray(scene.clip(0, 255).astype(np.uint8)).filter(ImageFilter.GaussianBlur(blur))
        return Image.fromarray((np.asarray(soft) + noise).clip(0, 255).astype(np.uint8))

    def blue_or_black(self) -> tuple[int, int, int]:
        return ((35, 35, 40), (30, 45, 120))[self.random.integers(2)]

    def drawn(self, strokes: list[Stroke]) -> np.ndarray:
        return self.cover(self.paper(), self.ink(strokes, self.accidents.size), self.blue_or_black())


def scan(camera: Camera, strokes: list[Stroke]) -> Image.Image:
    return camera.photograph(camera.drawn(strokes) * 1.03, blur=0.5)


def even_light(camera: Camera, strokes: list[Stroke]) -> Image.Image:
    return camera.photograph(camera.drawn(strokes) * 0.8 * camera.lean(0.1))


def soft_shadow(camera: Camera, strokes: list[Stroke]) -> Image.Image:
    return camera.photograph(camera.drawn(strokes) * 0.9 * camera.lean(0.2) * camera.shadow(0.08))


def coloured_paper(camera: Camera, strokes: list[Stroke]) -> Image.Image:
    colours = [(240, 215, 90), (150, 200, 235), (245, 170, 185), (160, 215, 150)]
    paper = camera.paper(colours[camera.random.integers(len(colours))])
    ink = camera.ink(strokes, camera.accidents.size)
    return camera.photograph(camera.cover(paper, ink, camera.blue_or_black()) * 0.85 * camera.lean(0.15))


def pencil(camera: Camera, strokes: list[Stroke]) -> Image.Image:
    ink = camera.ink(strokes, camera.accidents.size, pen=0.6)
    grain = np.clip(camera.random.normal(0.75, 0.25, ink.shape), 0, 1)
    return camera.photograph(
        camera.cover(camera.paper(), ink * grain, (120, 120, 122)) * 0.85 * camera.lean(0.15)
    )


def lined_paper(camera: Camera, strokes: list[Stroke]) -> Image.Image:
    gap, slant = camera.between((0.035, 0.06)), camera.random.uniform(-0.04, 0.04)
    offset = (camera.rows + slant * camera.columns) % gap
    margin = np.abs(camera.columns - slant * camera.rows - 0.12) < 0.0015
    paper = camera.cover(camera.paper(), (offset < 0.0025).astype(np.float32), (150, 175, 215))
    paper = camera.cover(paper, margin.astype(np.float32), (225, 120, 120))
    scene = camera.cover(paper, camera.ink(strokes, camera.accidents.size), camera.blue_or_black())
    return camera.photograph(scene * 0.85 * camera.lean(0.15))


def blackboard(camera: Camera, strokes: list[Stroke]) -> Image.Image:
    smear = Image.fromarray(camera.random.normal(0, 1, (12, 16)).astype(np.float32))
    smear = np.asarray(smear.resize((camera.width, camera.height), Image.Resampling.BICUBIC))[..., None]
    board = np.float32((45, 62, 52)) * camera.paper((1, 1, 1), 0.05) + 5 * smear
    ink = camera.ink(strokes, camera.accidents.size, pen=1.1)
    chalk = ink * np.clip(camera.random.normal(0.85, 0.2, ink.shape), 0, 1)
    return camera.photograph(camera.cover(board, chalk, (225, 225, 220)) * camera.lean(0.2))


def small_in_the_frame(camera: Camera, strokes: list[Stroke]) -> Image.Image:
    scene = camera.cover(camera.paper(), camera.ink(strokes, camera.accidents.small), camera.blue_or_black())
    return camera.photograph(scene * 0.85 * camera.lean(0.15))


def hard_shadow(camera: Camera, strokes: list[Stroke]) -> Image.Image:
    return camera.photograph(camera.drawn(strokes) * 0.95 * camera.lean(0.1) * camera.shadow(0.002))


def paper_on_a_desk(camera: Camera, strokes: list[Stroke]) -> Image.Image:
    sheet = camera.drawn(strokes)
    base = np.float32(camera.accidents.desk[camera.random.integers(len(camera.accidents.desk))])
    planks = np.sin(
        camera.columns * camera.between((150, 300)) + 3 * np.sin(camera.rows * camera.between((5, 15)))
    )
    rough = camera.random.normal(0, 0.04, planks.shape)
    seams = (camera.rows % 0.3) < 0.004
    desk = base * (1 + 0.12 * planks + rough - 0.4 * seams)[..., None]
    corners = np.array([(0, 0), (camera.width, 0), (camera.width, camera.height), (0, camera.height)], float)
    middle = corners.mean(0)
    tilt = np.radians(camera.random.uniform(-12, 12))
    turn = np.array([[np.cos(tilt), -np.sin(tilt)], [np.sin(tilt), np.cos(tilt)]])
    shift = camera.random.uniform(-0.06, 0.06, 2) * camera.width
    bent = camera.random.uniform(-0.04, 0.04, (4, 2)) * camera.width
    places = middle + camera.between((0.5, 0.62)) * (corners - middle) @ turn.T + shift + bent
    coefficients = perspective(places, corners)
    whole = (camera.width, camera.height)
    laid = Image.fromarray(sheet.clip(0, 255).astype(np.uint8)).transform(
        whole, Image.Transform.PERSPECTIVE, coefficients, Image.Resampling.BICUBIC
    )
    mask = Image.new("L", whole, 255).transform(
        whole, Image.Transform.PERSPECTIVE, coefficients, Image.Resampling.BILINEAR
    )
    where = np.asarray(mask, np.float32)[..., None] / 255
    cast = np.roll(where, (6, 8), (0, 1))  # the sheet's own shadow on the desk
    scene = desk * (1 - 0.4 * cast) * (1 - where) + where * np.asarray(laid, np.float32)
    return camera.photograph(scene * 0.9 * camera.lean(0.2))


def perspective(places: np.ndarray, sources: np.ndarray) -> list[float]:
    """Coefficients that take each of four places of a picture to its source, as PIL wants them."""
    rows, values = [], []
    for (x, y), (u, v) in zip(places, sources, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        values += [u, v]
    return np.linalg.solve(np.array(rows), np.array(values)).tolist()


CONDITIONS: dict[str, Scene] = {
    scene.__name__.replace("_", " "): scene
    for scene in (
        scan,
        even_light,
        soft_shadow,
        coloured_paper,
        pencil,
        lined_paper,
        blackboard,
        small_in_the_frame,
        hard_shadow,
        paper_on_a_desk,
    )
}
