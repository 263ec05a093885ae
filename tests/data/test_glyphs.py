"""Glyphs: the same for a seed whatever else is asked for, legible, learnable, and safe in the cache."""

from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage

from mann.data import glyphs
from mann.data.glyphs import load_glyphs, make_glyphs
from mann.data.images import SIDE
from mann.errors import MannError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees the user's cache."""
    monkeypatch.setenv("MANN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def many() -> np.ndarray:
    return make_glyphs(150, 20, 0)


def test_same_seed_same_drawings_and_other_seed_others(many: np.ndarray) -> None:
    np.testing.assert_array_equal(make_glyphs(4, 20, 0), many[:4])
    other = make_glyphs(4, 20, 1)
    assert all((other[c, d] != many[c, d]).any() for c, d in np.ndindex(4, 20))


def test_asking_for_more_changes_nothing_that_was_there(many: np.ndarray) -> None:
    np.testing.assert_array_equal(make_glyphs(35, 3, 0), many[:35, :3])  # beyond one alphabet of 30


def test_bitmaps(many: np.ndarray) -> None:
    assert many.shape == (150, 20, SIDE, SIDE)
    assert many.dtype == np.uint8
    assert set(np.unique(many)) == {0, 1}


def test_as_much_ink_as_omniglot(many: np.ndarray) -> None:
    # Omniglot, measured over its 32,460 drawings: mean 0.081, standard deviation 0.028, from 0.009 (1 %) to
    # 0.153 (99 %); larger side of a drawing 66.6 ± 13.8 pixels.
    ink = many.mean(axis=(2, 3))
    assert ink.min() > 12 / SIDE**2  # one touch of the thinnest pen
    assert ink.max() < 0.3
    assert abs(ink.mean() - 0.081) < 0.015
    assert abs(ink.std() - 0.028) < 0.01
    boxes = [ndimage.find_objects(drawing)[0] for drawing in many[:, 0]]
    sides = [max(rows.stop - rows.start, columns.stop - columns.start) for rows, columns in boxes]
    assert abs(np.mean(sides) - 66.6) < 6


def test_pen_is_about_five_pixels_wide(many: np.ndarray) -> None:
    # A stroke of w pixels has its middle w / 2 from paper. Erosion with a 3×3 square takes a pixel off each
    # side: a stroke of 4 to 6 pixels is nearly gone after three rounds, and still there after one.
    square = np.ones((3, 3))
    drawings = many[:, 0].astype(bool)
    once = np.mean([ndimage.binary_erosion(drawing, square).sum() for drawing in drawings])
    thrice = np.mean([ndimage.binary_erosion(drawing, square, 3).sum() for drawing in drawings])
    inked = np.mean(drawings.sum(axis=(1, 2)))
    assert once > 0.3 * inked
    assert thrice < 0.05 * inked


def test_drawings_of_a_class_differ(many: np.ndarray) -> None:
    for drawings in many:
        assert len({drawing.tobytes() for drawing in drawings}) == 20


def five_way(features: np.ndarray, rng: np.random.Generator) -> float:
    """Accuracy of the nearest neighbour in pixels, one example for each of five classes."""
    correct = []
    for _ in range(1000):
        classes = rng.choice(len(features), 5, replace=False)
        example, query = rng.choice(features.shape[1], 2, replace=False)
        distances = np.linalg.norm(
            features[classes, query][:, None] - features[classes, example][None], axis=-1
        )
        correct.append(np.mean(distances.argmin(axis=1) == np.arange(5)))
    return float(np.mean(correct))


def test_as_hard_as_omniglot(many: np.ndarray) -> None:
    # Raw pixels, boxes of 5×5 averaged: 0.455 on Omniglot, chance is 0.2.
    boxes = many[:, :, 2:102, 2:102].reshape(150, 20, 20, 5, 20, 5).mean(axis=(3, 5)).reshape(150, 20, 400)
    assert 0.38 < five_way(boxes, np.random.default_rng(0)) < 0.54


def test_a_drawing_is_nearest_to_its_own_class(many: np.ndarray) -> None:
    # Centred and blurred, since pixels do not forgive a shift. Chance is 1 / 150.
    prepared = np.empty((150, 20, SIDE * SIDE), np.float32)
    for c, d in np.ndindex(150, 20):
        centre = ndimage.center_of_mass(many[c, d])
        move = (round(SIDE // 2 - centre[0]), round(SIDE // 2 - centre[1]))
        prepared[c, d] = ndimage.uniform_filter(
            np.roll(many[c, d], move, (0, 1)).astype(np.float32), 9
        ).ravel()
    means, queries = prepared[:, :15].mean(axis=1), prepared[:, 15:].reshape(-1, SIDE * SIDE)
    distances = (means**2).sum(axis=1) - 2 * queries @ means.T
    assert np.mean(distances.argmin(axis=1) == np.repeat(np.arange(150), 5)) > 0.5


def test_image_set() -> None:
    loaded = load_glyphs(3, 4, seed=5)
    assert loaded.name == "glyphs"
    assert loaded.labels == ("glyph 0001", "glyph 0002", "glyph 0003")
    assert loaded.counts.tolist() == [4, 4, 4]
    assert loaded.ink == 1
    np.testing.assert_array_equal(loaded.images, make_glyphs(3, 4, 5))


def test_second_time_comes_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_glyphs(3, 4)
    monkeypatch.setattr(glyphs, "make_glyphs", lambda *_: pytest.fail("made anew in spite of the cache"))
    np.testing.assert_array_equal(load_glyphs(3, 4).images, first.images)


@pytest.mark.parametrize("suffix", [".bits", ".sha256"])
@pytest.mark.parametrize("damage", ["truncated", "altered", "binary", "missing"])
def test_damaged_cache_is_made_anew(cache: Path, suffix: str, damage: str) -> None:
    first = load_glyphs(3, 4)
    (path,) = cache.glob(f"*{suffix}")
    good = path.read_bytes()
    if damage == "truncated":
        path.write_bytes(good[:-1])
    elif damage == "altered":
        path.write_bytes(bytes([good[0] ^ 1]) + good[1:])
    elif damage == "binary":
        path.write_bytes(b"\xff" * len(good))
    else:
        path.unlink()
    np.testing.assert_array_equal(load_glyphs(3, 4).images, first.images)
    assert path.read_bytes() == good


def test_unusable_cache_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("MANN_CACHE", str(tmp_path / "file"))
    assert len(load_glyphs(2, 2)) == 2


@pytest.mark.parametrize(
    ("classes", "drawings", "seed", "message"),
    [
        (1, 20, 0, "1 classes of glyphs were asked for: ask for 2 to 100000"),
        (100_001, 2, 0, "100001 classes"),
        (5, 1, 0, "1 drawings of each of 5 glyphs were asked for: ask for 2 or more"),
        (100_000, 20, 0, "at most 400000 in all"),
        (5, 20, -1, "seed of the glyphs was -1"),
    ],
)
def test_bad_arguments(classes: int, drawings: int, seed: int, message: str) -> None:
    for function in (make_glyphs, load_glyphs):
        with pytest.raises(MannError, match=message):
            function(classes, drawings, seed)
