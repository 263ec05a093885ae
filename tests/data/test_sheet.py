"""Finding a sheet of paper: corners that are known because the sheet was laid there."""

import numpy as np
import pytest
from PIL import Image, ImageDraw

from mann.data.sheet import find_sheet, flatten_sheet
from tests.photographs import SHAPES, Camera, hard_shadow, small_in_the_frame

CORNERS = [(150, 80), (640, 120), (600, 500), (90, 430)]


def desk(corners: list[tuple[int, int]] = CORNERS) -> np.ndarray:
    canvas = Image.new("L", (800, 600), 90)
    brush = ImageDraw.Draw(canvas)
    brush.polygon(corners, fill=230)
    brush.line([(300, 200), (400, 300), (300, 350)], fill=40, width=12)
    noise = np.random.default_rng(0).normal(0, 3, (600, 800))
    return ((np.asarray(canvas) + noise) / 255).clip(0, 1).astype(np.float32)


def test_corners() -> None:
    corners = find_sheet(desk())
    assert corners is not None
    assert np.abs(corners - CORNERS).max() < 20  # of 800: they come out a little rounded


def test_seen_from_above() -> None:
    """No desk is left, the sides keep their lengths, and a point goes where the perspective takes it."""
    flat = flatten_sheet(desk(), np.array(CORNERS, float))
    assert (flat > 0.8).mean() > 0.95
    assert np.abs(np.array(flat.shape) - 0.94 * np.array([368, 501])).max() < 15
    dark = np.argwhere(flat < 0.3)
    # The bend of the drawn line, at (400, 300), by the cross-ratio along the sheet's diagonals: the middle
    # of the sheet is where they meet, at (373, 285), so that the bend lies a little right of and below it.
    rows, columns = dark[dark[:, 1].argmax()] - np.array(flat.shape) / 2
    assert 10 < columns < 50
    assert -5 < rows < 35


@pytest.mark.parametrize("seed", range(4))
def test_there_is_no_sheet_where_paper_fills_the_picture(seed: int) -> None:
    for photograph in (hard_shadow, small_in_the_frame):
        picture = photograph(Camera(seed, width=500), SHAPES["house"]).convert("L")
        assert find_sheet(np.asarray(picture, np.float32) / 255) is None


def test_a_strip_of_light_is_no_sheet() -> None:
    assert find_sheet(desk([(300, -1), (450, -1), (400, 601), (250, 601)])) is None


def test_an_outline_is_no_sheet() -> None:
    """A box in chalk has four corners, and is not light inside."""
    canvas = Image.new("L", (800, 600), 60)
    ImageDraw.Draw(canvas).polygon(CORNERS, outline=230, width=14)
    assert find_sheet(np.asarray(canvas, np.float32) / 255) is None
