"""From any picture to its ink: expected values are worked out by hand or with plain numpy."""

import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFilter
from scipy import ndimage

from mann.data.images import SIDE
from mann.data.ink import STROKE, _redraw, normalise_image
from mann.errors import MannError
from tests.photographs import CONDITIONS, SHAPES, Camera

# A black L on white, 105×105: nothing is scaled, so the expected ink is exact. It has no symmetry at all, so
# that a turned, mirrored or transposed result would be noticed.
L_INK = np.zeros((105, 105), bool)
L_INK[20:80, 30:40] = True
L_INK[70:80, 30:60] = True
EXPECTED = (L_INK * 255).astype(np.uint8)
GREY = np.where(L_INK, 0, 255).astype(np.uint8)


def rgba(ink: tuple[int, ...], paper: tuple[int, ...]) -> np.ndarray:
    return np.where(L_INK[..., None], np.array(ink), np.array(paper)).astype(np.uint8)


@pytest.mark.parametrize(
    "array",
    [
        L_INK,
        ~L_INK,
        L_INK.astype(np.uint8),
        GREY,
        255 - GREY,
        GREY.astype(np.int64),
        GREY.astype(np.uint16) * 257,
        GREY.astype(np.float64),
        (GREY / 255).astype(np.float16),
        GREY / 255,
        GREY[..., None],
        np.stack([GREY, GREY, GREY], -1),
        np.stack([GREY, np.full_like(GREY, 255)], -1),
        rgba((200, 30, 30, 255), (255, 250, 230, 255)),  # red on cream
        rgba((0, 0, 0, 255), (0, 0, 0, 0)),  # black on transparent black, as most drawing programs save it
        rgba((255, 255, 255, 255), (255, 255, 255, 0)),  # white on transparent white
        rgba((0, 0, 0, 255), (255, 255, 255, 0)),
        rgba((255, 255, 0, 255), (0, 0, 0, 0)),  # yellow on transparent
        rgba((20, 20, 20, 128), (0, 0, 0, 0)),  # half transparent ink
        rgba((128, 128, 128, 255), (128, 128, 128, 0)),  # mid-grey on transparent
        np.asfortranarray(GREY),
        GREY[::-1][::-1],
        GREY.astype(">u2"),
    ],
)
def test_arrays_of_every_kind(array: np.ndarray) -> None:
    before = array.copy()
    np.testing.assert_array_equal(normalise_image(array), EXPECTED)
    np.testing.assert_array_equal(array, before)


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_a_matrix_is_an_array() -> None:
    np.testing.assert_array_equal(normalise_image(np.asmatrix(GREY)), EXPECTED)


def palette_with_transparency() -> Image.Image:
    image = Image.fromarray(L_INK.astype(np.uint8), "L").convert("P")
    image.putdata(L_INK.astype(np.uint8).ravel().tolist())
    image.putpalette([10, 20, 200, 200, 20, 10])  # transparent blue paper, red ink
    image.info["transparency"] = bytes([0, 255])
    return image


IMAGES = {
    "1.png": lambda: Image.fromarray(GREY).convert("1"),
    "L.png": lambda: Image.fromarray(GREY),
    "L.bmp": lambda: Image.fromarray(GREY),
    "LA.png": lambda: Image.fromarray(rgba((0, 0, 0, 255), (0, 0, 0, 0))).convert("LA"),
    "P.png": palette_with_transparency,
    "RGB.webp": lambda: Image.fromarray(GREY).convert("RGB"),
    "RGBA.png": lambda: Image.fromarray(rgba((9, 9, 9, 255), (0, 0, 0, 0))),
    "I16.png": lambda: Image.fromarray(GREY.astype(np.uint16) * 257),
    "L.gif": lambda: Image.fromarray(GREY),
    "RGB.tif": lambda: Image.fromarray(GREY).convert("RGB"),
    "I16.tiff": lambda: Image.fromarray(GREY.astype(np.uint16) * 257),
    "CMYK.jpg": lambda: Image.fromarray(GREY).convert("RGB").convert("CMYK"),
    "YCbCr.JPEG": lambda: Image.fromarray(GREY).convert("YCbCr"),
}


@pytest.mark.parametrize("name", IMAGES)
def test_files_and_pil_images_of_every_mode(tmp_path: Path, name: str) -> None:
    image = IMAGES[name]()
    np.testing.assert_array_equal(normalise_image(image), EXPECTED)
    options: dict[str, Any] = {"lossless": True} if name.endswith("webp") else {}
    if name.lower().endswith(("jpg", "jpeg")):
        options = {"quality": 95, "subsampling": 0}
    image.save(tmp_path / name, **options)
    got = normalise_image(tmp_path / name)
    # JPEG rings around edges; everything else is exact.
    tolerance = 25 if options.get("quality") else 0
    assert np.abs(got.astype(int) - EXPECTED).max() <= tolerance
    np.testing.assert_array_equal(normalise_image(str(tmp_path / name)), got)


def test_heic(tmp_path: Path) -> None:
    """As telephones write it: lossy, so that the ink is nearly the same."""
    pytest.importorskip("pillow_heif").register_heif_opener()
    photograph = CONDITIONS["soft shadow"](Camera(3, width=600), SHAPES["house"])
    photograph.save(tmp_path / "photo.heic")
    levels = normalise_image(tmp_path / "photo.heic").astype(int)
    assert np.abs(levels - normalise_image(photograph)).mean() < 5


@pytest.mark.parametrize("mode", ["I", "F", "HSV", "PA", "RGBX"])
def test_pil_modes_that_no_file_has(mode: str) -> None:
    source = Image.fromarray(rgba((0, 0, 0, 255), (0, 0, 0, 0)) if mode == "PA" else GREY)
    image = source if mode in ("I", "F") else source.convert("RGBA" if mode == "PA" else "RGB")
    np.testing.assert_array_equal(normalise_image(image.convert(mode)), EXPECTED)


def test_sixteen_bit_levels_are_kept() -> None:
    """Paper 65535, ink 0, and a patch at 3/4 of the way to paper, which is 1/4 ink: 63.75."""
    levels = np.where(L_INK, 0, 65535).astype(np.uint16)
    levels[85:95, 70:90] = 49151
    got = normalise_image(Image.fromarray(levels))
    assert (got[85:95, 70:90] == 64).all()
    assert (got[L_INK] == 255).all()


@pytest.mark.parametrize(
    "turn",
    [  # the EXIF orientation and how its pixels were stored
        (3, lambda a: a[::-1, ::-1]),
        (6, lambda a: np.rot90(a, 1)),
        (8, lambda a: np.rot90(a, -1)),
        (2, lambda a: a[:, ::-1]),
    ],
)
def test_exif_orientation(tmp_path: Path, turn: tuple) -> None:
    orientation, stored = turn
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.ascontiguousarray(stored(GREY))).save(tmp_path / "turned.png", exif=exif)
    np.testing.assert_array_equal(normalise_image(tmp_path / "turned.png"), EXPECTED)


def box(levels: np.ndarray) -> tuple[int, int, int, int]:
    """First and last row, first and last column of what is at least half ink."""
    rows, columns = np.nonzero(levels > 127)
    return rows.min(), rows.max(), columns.min(), columns.max()


@pytest.mark.parametrize("height", [30, 60, 120])
@pytest.mark.parametrize("corner", [(5, 5), (60, 300), (85, 100)])
def test_a_drawing_is_centred_and_scaled_with_its_shape(height: int, corner: tuple[int, int]) -> None:
    """An upright rectangle twice as high as wide, wherever it is and however large: 68×34 in the middle."""
    array = np.full((210, 420), 255, np.uint8)
    top, left = corner
    array[top : top + height, left : left + height // 2] = 0
    got = normalise_image(array)
    assert np.abs(np.subtract(box(got), (18, 86, 35, 69))).max() <= 1.5
    assert got.sum(dtype=float) / 255 == pytest.approx(68 * 34, rel=0.04)
    assert np.abs(normalise_image(array.T).astype(int) - got.T).max() <= 1


def test_dust_and_cut_off_neighbours_are_no_part_of_the_drawing() -> None:
    array = np.full((400, 600), 255, np.uint8)
    array[150:250, 200:210] = array[240:250, 200:260] = 0
    alone = normalise_image(array)
    array[20:24, 500:504] = 0  # dust
    array[300:320, 590:] = 0  # what the edge cuts off
    np.testing.assert_array_equal(normalise_image(array), alone)


def test_the_dot_of_an_i_is_part_of_it() -> None:
    array = np.full((400, 600), 255, np.uint8)
    array[150:300, 200:212] = array[110:124, 199:213] = 0
    assert np.count_nonzero(np.diff((normalise_image(array)[:, 52] > 127).astype(int))) == 4


def test_a_dot_stays_a_dot() -> None:
    """Ten pixels of 420: a fortieth of the frame, centred."""
    array = np.full((210, 420), 255, np.uint8)
    array[50:60, 100:110] = 0
    top, bottom, left, right = box(normalise_image(array))
    assert (bottom - top, right - left) == (2, 2)
    assert abs(top + bottom - 104) <= 1
    assert abs(left + right - 104) <= 1


def ring(outer: float, pen: float, side: int = 1050) -> np.ndarray:
    rows, columns = np.mgrid[:side, :side]
    radius = np.hypot(rows - 500, columns - 480)
    return ~((radius < outer) & (radius > outer - pen))


def test_a_drawing_is_scaled_without_loss() -> None:
    """A ring of radius 340 and pen 42 at a tenth: radius 34, pen 4.2, within the widths of a pen."""
    got = normalise_image(ring(340, 42))
    assert got.sum(dtype=float) / 255 == pytest.approx(np.pi * (34**2 - 29.8**2), rel=0.03)
    assert len(np.unique(got)) > 2  # anti-aliased
    middle = got[52].astype(float) / 255
    assert middle[:52].sum() == pytest.approx(4.2, abs=0.35)


@pytest.mark.parametrize(("pen", "expected"), [(3, 3.2), (12, 3.2), (80, 5.0)])
def test_strokes_get_the_width_of_a_pen(pen: int, expected: float) -> None:
    got = normalise_image(ring(340, pen))
    assert got[52, :52].sum() / 255 == pytest.approx(expected, abs=0.4)
    assert got.max() == 255


def test_small_images_are_scaled_up() -> None:
    array = np.zeros((7, 7), bool)
    array[2:5, 1] = True
    got = normalise_image(array)  # three pixels become 68×23
    assert np.abs(np.subtract(box(got), (18, 86, 41, 63))).max() <= 3
    assert got.sum(dtype=float) / 255 == pytest.approx(68 * 68 / 3, rel=0.2)


def test_polarity_does_not_matter() -> None:
    rng = np.random.default_rng(1)
    array = np.full((200, 300), 230.0)
    array[40:160, 60:75] = 20
    array[90:105, 60:220] = 60
    array = np.rint(array + rng.normal(0, 4, array.shape)).clip(0, 255).astype(np.uint8)
    light, dark = normalise_image(array), normalise_image(255 - array)
    assert np.abs(light.astype(int) - dark).max() <= 1
    assert light[52, 23] > 200


def test_strokes_may_touch_the_border() -> None:
    """Strokes that leave the image on all four sides, and a frame of two pixels all around."""
    cross = np.ones((105, 105), bool)
    cross[45:60], cross[:, 20:30] = False, False
    for array in (cross, ~cross):
        np.testing.assert_array_equal(normalise_image(array), np.where(cross, 0, 255))
    framed = GREY.copy()
    framed[:2], framed[-2:], framed[:, :2], framed[:, -2:] = 0, 0, 0, 0
    np.testing.assert_array_equal(normalise_image(framed), 255 - framed)


@pytest.mark.parametrize("inverted", [False, True])
def test_photo_of_handwriting(inverted: bool) -> None:
    """Paper in uneven light (0.85 to 0.55), noise, ink at a quarter of it; a stroke that leaves the sheet."""
    rng = np.random.default_rng(2)
    rows, columns = np.mgrid[:900, :1200]
    photo = 0.85 - 0.15 * rows / 900 - 0.15 * columns / 1200
    stroke = (np.abs(rows - 300 - 200 * np.sin(columns / 200)) < 28) & (columns > 300)
    photo = np.where(stroke, 0.25 * photo, photo) + rng.normal(0, 0.02, photo.shape)
    photo = (255 * photo.clip(0, 1)).astype(np.uint8)
    got = normalise_image(255 - photo if inverted else photo)
    # The same stroke by averaging, independently: 899 columns become 68, and its rows in proportion, centred.
    inside = np.nonzero(stroke.any(axis=1))[0]
    cut = stroke[inside[0] : inside[-1] + 1, 301:].astype(np.float32)
    height = round(68 * cut.shape[0] / 899)
    truth = np.zeros((105, 105), np.float32)
    top = (105 - height) // 2
    truth[top : top + height, 18:86] = np.asarray(
        Image.fromarray(cut).resize((68, height), Image.Resampling.BOX)
    )
    near = np.asarray(Image.fromarray((255 * truth).astype(np.uint8)).filter(ImageFilter.MaxFilter(5)))
    assert (got[truth > 0.9] > 127).mean() > 0.85
    assert got[near == 0].max() == 0


def test_hairlines_in_a_large_image_become_full_ink() -> None:
    array = np.full((3000, 3000), 255, np.uint8)
    array[200:2640, 400:402] = 0  # a twentieth of a pixel wide after scaling
    array[2640:2642, 400:2000] = 0
    got = normalise_image(array)
    assert got[20:84, 52 - 22].min() > 200
    assert got[:16].max() == 0


def test_rounded_corners_are_not_ink() -> None:
    """Opaque paper whose corners are transparent takes the paper's colour there."""
    array = rgba((0, 0, 0, 255), (255, 255, 255, 255))
    rows, columns = np.mgrid[:105, :105]
    array[(np.minimum(rows, 104 - rows) + np.minimum(columns, 104 - columns)) < 10] = 0
    np.testing.assert_array_equal(normalise_image(array), EXPECTED)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_pixels_that_are_no_numbers(value: float) -> None:
    array = GREY / 255
    array[3, 3] = value
    with pytest.raises(MannError, match=r"Cannot use drawing 7: .*NaN or infinite"):
        normalise_image(array, "drawing 7")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((0, 0)), "empty"),
        (np.zeros((0, 5, 3)), "empty"),
        (np.zeros((1, 1)), "blank"),
        (np.ones((1, 1, 3), np.uint8), "blank"),
        (np.full((50, 50), 255, np.uint8), "blank"),
        (np.full((50, 50), 0.5), "blank"),
        (np.zeros((50, 50, 4), np.uint8), "blank"),
        (np.random.default_rng(3).integers(250, 256, (400, 400)), "blank"),  # an empty page, scanned
        (np.zeros(105), "shape"),
        (np.zeros(()), "shape"),
        (np.zeros((2, 105, 105, 3)), "shape"),
        (np.zeros((3, 105, 105)), "shape"),
        (np.zeros((5, 5), complex), "complex128"),
        (np.array([["a", "b"]]), "not booleans"),
        (L_INK * 2.0 - 1, r"from -1\.0 to 1\.0"),
        (L_INK * 1e300, r"from 0\.0 to 1e\+300"),
        (L_INK * 70_000, "from 0 to 70000"),
    ],
)
def test_unusable_arrays(array: np.ndarray, message: str) -> None:
    with pytest.raises(MannError, match=f"Cannot use the image: .*{message}"):
        normalise_image(array)


def bomb_png(side: int) -> bytes:
    """A header alone: side × side pixels, and hardly any data."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0"))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    "side", [6_400, 10_000, 50_000]
)  # below PIL's own limit, where it warns, where it refuses
def test_decompression_bombs_are_refused_before_decoding(tmp_path: Path, side: int) -> None:
    (tmp_path / "bomb.png").write_bytes(bomb_png(side))
    with pytest.raises(MannError, match=r"bomb\.png: it has more than 40 million pixels"):
        normalise_image(tmp_path / "bomb.png")


def test_too_large_an_array_and_an_extreme_shape() -> None:
    with pytest.raises(MannError, match="more than 40 million pixels"):
        normalise_image(np.broadcast_to(np.uint8(0), (8_000, 8_000)))
    strip = np.full((1, 1_000_000), 255, np.uint8)
    strip[0, 500_000:600_000] = 0
    got = normalise_image(strip)  # a line of 68 pixels in the middle
    assert np.abs(np.subtract(box(got), (51, 53, 18, 86))).max() <= 1


def test_forty_megapixels_are_judged_at_once(tmp_path: Path) -> None:
    """A few bytes that say 6300×6300: nothing the size of the whole picture is computed in floats."""
    Image.new("L", (6300, 6300)).save(tmp_path / "large.png", compress_level=1)
    tracemalloc.start()
    with pytest.raises(MannError, match="blank"):
        normalise_image(tmp_path / "large.png")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6


@pytest.mark.parametrize("content", ["empty", "text", "cut png", "cut jpeg"])
def test_unreadable_files_are_named(tmp_path: Path, content: str) -> None:
    file = tmp_path / "bad.png"
    noise = Image.fromarray(np.random.default_rng(4).integers(0, 256, (100, 100), np.uint8))
    if content.startswith("cut"):
        noise.save(file, content[4:])
        file.write_bytes(file.read_bytes()[:2000])
    else:
        file.write_text("" if content == "empty" else "not an image")
    with pytest.raises(MannError, match=r"bad\.png: it is not a readable image") as caught:
        normalise_image(file)
    assert caught.value.__suppress_context__


def test_missing_file_and_folder_as_image(tmp_path: Path) -> None:
    for path in (tmp_path / "none.png", tmp_path):
        with pytest.raises(MannError, match=f"Cannot use {path}: it is not a readable image"):
            normalise_image(path)


def test_the_ink_of_a_picture_is_a_picture_with_that_ink() -> None:
    for seed, photograph in enumerate(CONDITIONS.values()):
        ink = normalise_image(photograph(Camera(seed, width=500), SHAPES["key"]))
        np.testing.assert_array_equal(normalise_image(ink), ink)


@pytest.mark.parametrize("thickness", [1, 4, 9, 40])
@pytest.mark.parametrize("place", [(0.2, 0.3), (0.0, 0.0)])
def test_strokes_are_redrawn_as_by_distances_over_the_whole_picture(thickness, place):
    """Only the surroundings of the ink are measured, and paper only where strokes become wider: twice as quick."""
    side = 3 * SIDE
    mask = np.zeros((side, side), bool)
    top, left = (int(part * side) for part in place)
    mask[top : top + 170, left : left + thickness] = True
    mask[top + 160 - thickness : top + 160, left : left + 200] = True
    inside, outside = (ndimage.distance_transform_edt(part) - 0.5 for part in (mask, ~mask))
    width = 4 * inside[mask].mean() / 3
    change = 0 if width > 2 * STROKE[1] else 3 * (np.clip(width, *STROKE) - width) / 2
    cover = np.clip(np.where(mask, inside, -outside) + change + 0.5, 0, 1)
    expected = Image.fromarray(np.rint(255 * cover).astype(np.uint8)).reduce(3)
    np.testing.assert_array_equal(_redraw(mask), np.asarray(expected))
