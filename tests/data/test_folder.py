"""Folders of a user's own images: expected values are worked out by hand or with plain numpy."""

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mann.data import folder
from mann.data.folder import load_folder, normalise_image
from mann.errors import MannError

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


def test_shape_is_kept_by_padding_with_paper() -> None:
    """A 210×420 image of a black 100×100 square becomes 52×105 with a 25×25 square, centred."""
    array = np.full((210, 420), 255, np.uint8)
    array[50:150, 100:200] = 0
    got = normalise_image(array)
    assert got.shape == (105, 105)
    rows, columns = np.nonzero(got > 127)
    assert abs((rows.max() - rows.min() + 1) - 25) <= 1
    assert abs((columns.max() - columns.min() + 1) - 25) <= 1
    # Its centre was at (100, 150) of 210×420: a quarter of that, 26 rows of padding further down.
    assert rows.mean() == pytest.approx(100 / 4 + 26, abs=1)
    assert columns.mean() == pytest.approx(150 / 4, abs=1)
    assert got[:26].max() == 0
    assert got[-26:].max() == 0
    np.testing.assert_array_equal(normalise_image(array.T), got.T)


def test_area_is_kept_when_scaled_down() -> None:
    """Anti-aliased: 12 stripes of 35×850 pixels fall between pixels; their area stays 12 × 3.5 × 85."""
    array = np.ones((1050, 1050), np.float32)
    array[100:950, [200 + 55 * stripe + column for stripe in range(12) for column in range(35)]] = 0
    got = normalise_image(array)
    assert got.sum(dtype=float) / 255 == pytest.approx(12 * 3.5 * 85, rel=0.01)
    assert len(np.unique(got)) > 2


def test_small_images_are_scaled_up() -> None:
    array = np.zeros((7, 7), bool)
    array[2:5, 3] = True
    got = normalise_image(array)  # each pixel becomes 15×15 and fades within another 7.5
    assert got[52, 52] == 255
    assert got[:22].max() == 0
    assert got[:, :37].max() == 0
    assert got.sum(dtype=float) / 255 == pytest.approx(3 * 225, rel=0.15)


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
    stroke = (np.abs(rows - 300 - 200 * np.sin(columns / 200)) < 14) & (columns > 300)
    photo = np.where(stroke, 0.25 * photo, photo) + rng.normal(0, 0.02, photo.shape)
    photo = (255 * photo.clip(0, 1)).astype(np.uint8)
    got = normalise_image(255 - photo if inverted else photo)
    # The same stroke by averaging, independently: 1200×900 becomes 105×79, 13 rows of padding above.
    truth = np.asarray(Image.fromarray(stroke.astype(np.float32)).resize((105, 79), Image.Resampling.BOX))
    within = got[13:92]
    assert np.median(within[truth > 0.9]) > 220
    assert within[truth > 0.9].min() > 150
    assert np.median(within[truth == 0]) < 15
    assert within[truth == 0].max() < 100
    assert got[:13].max() == 0
    assert got[92:].max() == 0


def test_thin_strokes_in_a_large_image_become_full_ink() -> None:
    array = np.full((840, 840), 255, np.uint8)
    array[200:640, 400:402] = 0  # a quarter of a pixel wide after scaling by 8
    got = normalise_image(array)
    assert got[30:75, 50].min() > 200
    assert got[:, :48].max() == 0


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


def test_too_large_an_array_and_an_extreme_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MannError, match="more than 40 million pixels"):
        normalise_image(np.broadcast_to(np.uint8(0), (8_000, 8_000)))
    strip = np.full((1, 1_000_000), 255, np.uint8)
    strip[0, 500_000:600_000] = 0
    got = normalise_image(strip)  # one row of 105 pixels in the middle, ink from 52.5 to 63
    assert np.nonzero(got.any(1))[0].tolist() == [52]
    assert got[52].sum(dtype=float) / 255 == pytest.approx(10.5, abs=0.6)


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


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Classes "a" (3 images, one of them inverted) and "b" (2), among things that are not images."""
    root = tmp_path / "my letters"
    for name, inverted in {"b/2.png": 0, "b/1.bmp": 0, "a/10.png": 1, "a/9.PNG": 0, "a/z.jpeg": 0}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(GREY.T if name == "b/1.bmp" else 255 - GREY if inverted else GREY).save(root / name)
    for name in ("a/Thumbs.db", "a/.DS_Store", "a/._9.png", "b/notes.txt", "README.md", ".git/x.png"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("not an image")
    (root / "a" / "folder.png").mkdir()
    return root


def test_load_folder(root: Path) -> None:
    loaded = load_folder(root)
    assert loaded.name == "my letters"
    assert loaded.labels == ("a", "b")
    assert loaded.ink == 255
    assert loaded.counts.tolist() == [3, 2]
    assert loaded.images.shape == (2, 3, 105, 105)
    np.testing.assert_array_equal(loaded.images[0, :2], [EXPECTED, EXPECTED])
    assert np.abs(loaded.images[0, 2].astype(int) - EXPECTED).max() < 60  # the JPEG
    np.testing.assert_array_equal(loaded.images[1], [EXPECTED.T, EXPECTED, 0 * EXPECTED])
    np.testing.assert_array_equal(load_folder(str(root)).images, loaded.images)


def test_links(root: Path, tmp_path: Path) -> None:
    (root / "b" / "3.png").symlink_to(root / "a" / "9.PNG")
    (root / "b" / "4.png").symlink_to(tmp_path / "gone.png")
    (root / "b" / "self").symlink_to(root)
    assert load_folder(root).counts.tolist() == [3, 3]


def test_load_folder_refusals(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MannError, match="nowhere does not exist"):
        load_folder(tmp_path / "nowhere")
    with pytest.raises(MannError, match=r"1 sub folder\(s\): give at least 2"):
        load_folder(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(folder, "MAX_IMAGES", 5)
        with pytest.raises(MannError, match="2 classes of up to 3 images make 6, and at most 5"):
            load_folder(root)
    (root / "b" / "1.bmp").write_bytes(b"BM")
    with pytest.raises(MannError, match=r"b/1\.bmp: it is not a readable image"):
        load_folder(root)
    (root / "b" / "1.bmp").unlink()
    with pytest.raises(MannError, match=r"my letters/b has 1 image\(s\)"):
        load_folder(root)
