"""What looks like the training data, and what does not."""

import numpy as np
import pytest

from mann.data.familiarity import why_unfamiliar
from mann.data.glyphs import make_glyphs
from mann.data.omniglot import load_omniglot
from tests.data.test_omniglot import REAL, needs_data


def false_alarms(bitmaps: np.ndarray) -> float:
    return float(np.mean([why_unfamiliar(255 * bitmap) != "" for bitmap in bitmaps]))


def test_glyphs_are_familiar() -> None:
    assert false_alarms(make_glyphs(50, 10, seed=3).reshape(-1, 105, 105)) < 0.02


@needs_data
def test_test_classes_of_omniglot_are_familiar() -> None:
    """Other classes than those from which the limits were taken."""
    drawings = load_omniglot(REAL).images[1200:, ::10].reshape(-1, 105, 105)
    assert false_alarms(drawings) < 0.02


ROWS, COLUMNS = np.mgrid[:105, :105]


@pytest.mark.parametrize(
    ("mask", "reason"),
    [
        ((ROWS % 6 < 3) & (COLUMNS > 10), "ink covers"),
        ((ROWS == 50) & (COLUMNS == 50), "ink covers"),
        (np.hypot(ROWS - 50, COLUMNS - 50) < 15, "filled in"),
        ((ROWS % 20 < 4) & (COLUMNS % 20 < 4), "pieces"),
    ],
)
def test_what_no_drawing_is_like(mask: np.ndarray, reason: str) -> None:
    assert reason in why_unfamiliar((255 * mask).astype(np.uint8))
