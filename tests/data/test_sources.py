"""Textures, letters, digits, objects and photographs: the same for a seed, different by class, and legible."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont
from scipy import ndimage, spatial

from mann.cli import main
from mann.data import DataConfig, Digits, Letters, Objects, Photographs, Textures, data_config
from mann.data import textures as textures_module
from mann.data.images import SIDE, ImageSet
from mann.data.letters import load_letters
from mann.data.light import take_photographs
from mann.data.objects import make_objects
from mann.data.textures import make_textures
from mann.errors import MannError

FONTS = Path(__import__("matplotlib").get_data_path()) / "fonts" / "ttf"


def nearest_class(features: np.ndarray) -> float:
    """How often the mean of the other drawings of a class is nearest to its last one."""
    means, last = features[:, :-1].mean(axis=1), features[:, -1]
    return float(np.mean(spatial.distance.cdist(last, means).argmin(axis=1) == np.arange(len(features))))


@pytest.fixture(scope="module")
def textures() -> np.ndarray:
    return make_textures(30, 5, 0)


@pytest.fixture(scope="module")
def objects() -> np.ndarray:
    return make_objects(24, 5, 0)


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> ImageSet:
    """Of two fonts, to be quick."""
    folder = tmp_path_factory.mktemp("fonts")
    for name in ("STIXGeneral.ttf", "STIXGeneralBol.ttf"):
        (folder / name).symlink_to(FONTS / name)
    return load_letters(str(folder), 3, 0)


def test_more_classes_change_nothing_and_another_seed_everything(textures, objects):
    np.testing.assert_array_equal(make_textures(4, 5, 0), textures[:4])
    np.testing.assert_array_equal(make_objects(3, 5, 0), objects[:3])
    assert (make_textures(4, 5, 1) != textures[:4]).any(axis=(2, 3)).all()
    assert (make_objects(3, 5, 1) != objects[:3]).any(axis=(2, 3, 4)).all()


def test_swatches_lie_on_paper_and_no_two_are_alike(textures):
    down, right = np.indices((SIDE, SIDE)) - SIDE // 2
    outside = np.hypot(down, right) > 49
    assert not textures[:, :, outside].any()
    inside = textures[:, :, np.hypot(down, right) < 45]
    assert inside.min() > 0  # a swatch is never paper
    assert (inside.std(axis=2) > 10).all()
    for swatches in textures:
        assert len({swatch.tobytes() for swatch in swatches}) == len(swatches)


def test_a_material_is_known_by_its_spectrum(textures):
    """Waves stay when a swatch is cut elsewhere: chance is 1 in 30."""
    middle = textures[:, :, 26:79, 26:79].astype(float)
    middle -= middle.mean(axis=(2, 3), keepdims=True)
    power = np.log(np.abs(np.fft.rfft2(middle))[:, :, :14, :14] + 100)
    assert nearest_class(power.reshape(30, 5, -1)) > 0.4


def test_nearest_points_against_a_tree():
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-3, 3, (2, 1, 40, 40)).astype(np.float32)
    nearest, second, _ = textures_module._nearest(x, y, 0.4, np.random.default_rng(5))
    points = np.random.default_rng(5).uniform(-0.5, 0.5, (3, 1, 32, 32)).astype(np.float32)
    squares = np.stack(np.meshgrid(np.arange(-6, 6), np.arange(-6, 6), indexing="ij"), -1).reshape(-1, 2)
    rows, columns = squares.T % 32
    jitter = 0.4 * points[:2, 0, rows, columns].T
    tree = spatial.cKDTree(squares[:, ::-1] + 0.5 + jitter)
    distances, _ = tree.query(np.stack([x[0], y[0]], -1), k=2)
    np.testing.assert_allclose(nearest[0], distances[..., 0], atol=1e-5)
    np.testing.assert_allclose(second[0], distances[..., 1], atol=1e-5)


def test_a_field_is_enlarged_as_scipy_does():
    field = np.random.default_rng(0).normal(size=(2, 53, 53)).astype(np.float32)
    expected = ndimage.zoom(field, (1, 105 / 53, 105 / 53), order=1)
    np.testing.assert_allclose(textures_module._enlarge(field), expected, atol=1e-5)


def test_things_of_a_kind_have_one_outline_and_other_colours(objects):
    """Their mean colour tells them apart more often than chance, 1 in 24, in spite of light and ground."""
    middle = objects[:, :, 16:32, 16:32].astype(float)
    shares = middle.mean(axis=(2, 3))
    shares /= shares.sum(axis=2, keepdims=True)
    assert nearest_class(shares) > 0.3
    assert objects.dtype == np.uint8
    assert len(set(Objects(classes=24, pictures=2).load().alphabets)) == 2


def test_light_leaves_what_is_there_and_changes_how_bright_it_is():
    scene = np.full((200, 8, 8, 3), 0.4, np.float32)
    taken = take_photographs(scene, np.random.default_rng(0)).astype(float) / 255
    levels = np.median(taken, axis=(1, 2, 3))
    assert 0.25 < np.median(levels) < 0.5
    assert levels.std() > 0.05
    ends = taken[:, :, 0].mean(axis=(1, 2)) / taken[:, :, -1].mean(axis=(1, 2))
    assert np.log(ends).std() > 0.3  # from one side to the other


def test_letters_are_those_of_the_font(letters):
    """Against PIL's own drawing, centred: the mean over the accidents of a few drawings overlaps with it."""
    assert letters.images.shape[1:] == (3, SIDE, SIDE)
    place = letters.labels.index("latin capital letter h")
    font = ImageFont.truetype(str(FONTS / "STIXGeneral.ttf"), 80)
    left, top, right, bottom = font.getbbox("H")
    page = Image.new("L", (SIDE, SIDE))
    ImageDraw.Draw(page).text((52 - (left + right) / 2, 52 - (top + bottom) / 2), "H", fill=255, font=font)
    drawn = np.asarray(page) > 127
    near = ndimage.binary_dilation(drawn, iterations=9)
    for drawing in letters.images[place].astype(bool):
        assert (drawing & near).sum() > 0.9 * drawing.sum()
        assert 0.5 < drawing.sum() / drawn.sum() < 2.5
    assert {"latin", "greek", "cyrillic"} <= set(letters.alphabets)
    assert "greek capital letter alpha" not in letters.labels  # it looks like A
    assert "latin capital letter a with acute" not in letters.labels
    assert len({drawing.tobytes() for drawing in letters.images[:, 0]}) == len(letters)


def test_folders_without_fonts_get_a_sentence(tmp_path):
    with pytest.raises(MannError, match=r"There are no fonts \(\.ttf, .*leave the path out"):
        load_letters(str(tmp_path), 3, 0)
    (tmp_path / "broken.ttf").write_bytes(b"not a font")
    with pytest.raises(MannError, match=r"broken\.ttf cannot be read"):
        load_letters(str(tmp_path), 3, 0)


def test_digits_are_scikit_learns():
    from sklearn import datasets

    found = datasets.load_digits()
    digits = Digits(drawings=3).load()
    assert digits.labels == tuple("0123456789")
    for digit in range(10):
        drawn = Image.fromarray(digits.images[digit, 2]).crop((18, 18, 86, 86))
        small = np.asarray(drawn.resize((8, 8), Image.Resampling.BOX))
        theirs = found.images[found.target == digit][2]
        assert np.corrcoef(small.ravel(), theirs.ravel())[0, 1] > 0.95
        assert not digits.images[digit, :, :18].any()


def test_photographs_are_places_of_scikit_learns():
    """The middle of a picture has the colours of the place that its label names, up to light."""
    from sklearn import datasets

    found = datasets.load_sample_images()
    photographs = Photographs(pictures=2).load()
    assert len(photographs) > 40
    by_name = {
        str(name).rpartition("/")[2]: image for name, image in zip(found.filenames, found.images, strict=True)
    }
    likeness = []
    for label, pictures in zip(photographs.labels, photographs.images, strict=True):
        name, _, place = label.partition(" at ")
        x, y = map(int, place.split(", "))
        theirs = by_name[name][y - 45 : y + 45, x - 45 : x + 45]
        small = np.asarray(Image.fromarray(theirs).resize((12, 12), Image.Resampling.BOX), float)
        ours = np.asarray(Image.fromarray(pictures[0]).resize((12, 12), Image.Resampling.BOX), float)
        likeness.append(np.corrcoef(small.ravel(), ours.ravel())[0, 1])
    assert np.median(likeness) > 0.5


@pytest.mark.parametrize("data", [Digits(), Photographs()], ids=lambda data: data.kind)
def test_small_sets_are_for_tests_alone(data: DataConfig):
    assert data.divide(10) == (0, 0, 10)
    assert data.first_test_class(10, data) == 0


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Textures(classes=1), "The number of textures must be at least 2"),
        (Textures(drawings=1), "The swatches of each texture must be at least 2"),
        (Textures(seed=-1), "The seed must lie"),
        (Objects(classes=10**6), "The number of objects must be at most"),
        (Objects(pictures=1), "The pictures of each object must be at least 2"),
        (Letters(drawings=1), "The drawings of each letter must be at least 2"),
        (Digits(drawings=175), "The drawings of each digit must be at most 174"),
        (Photographs(pictures=0), "The pictures of each place must be at least 2"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.kind,
)
def test_numbers_that_cannot_be_meant_get_a_sentence(data, message):
    with pytest.raises(MannError, match=message):
        data.load()


def test_without_scikit_learn_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sklearn", None)
    for kind in ("digits", "photographs"):
        with pytest.raises(MannError, match="come with scikit-learn: pip install scikit-learn"):
            data_config(kind).load()


def test_a_sheet_of_a_colour_source(tmp_path, capsys):
    path = tmp_path / "sheet.png"
    words = ["data", "objects", "--classes", "4", "--rows", "2", "--columns", "2", "--sheet", str(path)]
    assert main(words) == 0
    assert "48×48 pixels, colour" in capsys.readouterr().out
    with Image.open(path) as sheet:
        assert sheet.mode == "RGB"
