"""Omniglot: against the real archives where they are at hand, and against small fakes written with PIL."""

import hashlib
import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pooch
import pytest
from PIL import Image

from mann.data import omniglot
from mann.data.omniglot import is_at_hand, load_omniglot
from mann.errors import MannError

SHARED = Path(__file__).parents[3] / "shared" / "data" / "omniglot"
REAL = Path(os.environ.get("MANN_DATA") or SHARED)
if not (REAL / "images_background.zip").is_file():
    REAL = REAL / "omniglot"
needs_data = pytest.mark.skipif(
    not all((REAL / f"images_{part}.zip").is_file() for part in ("background", "evaluation")),
    reason="Omniglot's two zips are neither in $MANN_DATA nor in ../shared/data/omniglot",
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees the user's cache, data or network."""

    def offline(*_: object, **__: object) -> str:
        raise OSError("Name or service not known")

    monkeypatch.setenv("MANN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MANN_DATA", raising=False)
    monkeypatch.setattr(pooch, "retrieve", offline)
    return tmp_path / "cache"


def png(bitmap: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray((1 - bitmap) * np.uint8(255)).convert("1").save(stream, "PNG")
    return stream.getvalue()


# A fake of 3 classes × 2 drawings; ids are given out across the two archives, as in the real one.
PLACES = {
    1: "images_evaluation/Angelic/character07",
    2: "images_background/Greek/character01",
    3: "images_evaluation/Angelic/character02",
}
BITMAPS = (np.random.default_rng(0).random((3, 2, 105, 105)) < 0.1).astype(np.uint8)


def fake_members() -> dict[str, bytes]:
    return {
        f"{place}/{character:04d}_{drawing:02d}.png": png(BITMAPS[character - 1, drawing - 1])
        for character, place in PLACES.items()
        for drawing in (2, 1)
    }


def write_zips(folder: Path, members: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("images_background", "images_evaluation"):
        with zipfile.ZipFile(folder / f"{part}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"__MACOSX/{part}/Greek/._0001_01.png", b"resource fork")
            for name, content in members.items():
                if name.startswith(part):
                    archive.writestr(name, content)
    return folder


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(omniglot, "CLASSES", 3)
    monkeypatch.setattr(omniglot, "DRAWINGS", 2)
    monkeypatch.setattr(omniglot, "SHA256", hashlib.sha256(BITMAPS.tobytes()).hexdigest())
    return write_zips(tmp_path / "data" / "omniglot", fake_members())


def forbid_zips(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*_: object, **__: object) -> None:
        raise AssertionError("the source was read again")

    monkeypatch.setattr(zipfile, "ZipFile", opened)


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(bytes(content))


@needs_data
def test_the_real_archives(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_omniglot(REAL)
    assert loaded.name == "omniglot"
    assert loaded.images.shape == (1623, 20, 105, 105)
    expected = "b3a28d0e34c4daf19fe5d04f6f68f58a2de755709c5a8715faf93a512b0a81e7"
    assert hashlib.sha256(loaded.images.data).hexdigest() == expected
    assert loaded.counts.tolist() == [20] * 1623
    assert loaded.labels[708] == "Alphabet_of_the_Magi/character01"
    assert len(set(loaded.labels)) == 1623
    assert len({label.split("/")[0] for label in loaded.labels}) == 50  # alphabets, 30 + 20
    assert len(loaded.subset(0, omniglot.TRAIN_CLASSES)) == 1200
    assert len(loaded.subset(omniglot.TRAIN_CLASSES, 1623)) == 423
    with zipfile.ZipFile(REAL / "images_background.zip") as archive:
        content = archive.read("images_background/Alphabet_of_the_Magi/character01/0709_13.png")
    paper = np.asarray(Image.open(io.BytesIO(content)))
    np.testing.assert_array_equal(loaded.images[708, 12], 1 - paper)

    # The second load comes from the cache.
    forbid_zips(monkeypatch)
    again = load_omniglot(REAL)
    assert again.labels == loaded.labels
    np.testing.assert_array_equal(again.images[::50], loaded.images[::50])

    # One altered pixel of the real data is refused.
    flip_a_bit(cache / "omniglot" / "packed.bits")
    with pytest.raises(MannError, match=r"packed\.bits is damaged \(wrong SHA-256\)"):
        load_omniglot()


@pytest.mark.parametrize("depth", ["data", "data/omniglot"])
@pytest.mark.parametrize("unpacked", [False, True])
def test_zips_or_folders_in_the_path_or_its_sub_folder(fake: Path, depth: str, unpacked: bool) -> None:
    if unpacked:
        for file in list(fake.glob("*.zip")):
            with zipfile.ZipFile(file) as archive:
                archive.extractall(fake)
            file.unlink()
    loaded = load_omniglot(str(fake.parents[1] / depth))
    np.testing.assert_array_equal(loaded.images, BITMAPS)
    assert loaded.labels == ("Angelic/character07", "Greek/character01", "Angelic/character02")
    assert loaded.ink == 1
    assert loaded.counts.tolist() == [2, 2, 2]


def test_order_of_search(fake: Path, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setenv("MANN_DATA", str(empty))
    with pytest.raises(
        MannError, match=r"empty \(from the environment variable MANN_DATA\) holds no Omniglot"
    ):
        load_omniglot()
    np.testing.assert_array_equal(load_omniglot(fake).images, BITMAPS)  # a path comes before MANN_DATA
    shutil.rmtree(cache)
    monkeypatch.setenv("MANN_DATA", str(fake))
    np.testing.assert_array_equal(load_omniglot().images, BITMAPS)
    shutil.rmtree(cache)
    monkeypatch.delenv("MANN_DATA")
    write_zips(cache, fake_members())  # the zips put into the cache folder by hand
    np.testing.assert_array_equal(load_omniglot().images, BITMAPS)


def test_it_is_at_hand_where_it_can_be_loaded_without_a_download(
    fake: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_at_hand()
    cache.mkdir()
    shutil.copy(fake / "images_background.zip", cache)
    assert not is_at_hand()  # one of two
    shutil.copy(fake / "images_evaluation.zip", cache)
    assert is_at_hand()
    assert len(load_omniglot()) == 3
    for archive in cache.glob("*.zip"):
        archive.unlink()
    assert is_at_hand()  # what was unpacked is kept
    assert len(load_omniglot()) == 3
    shutil.rmtree(cache)
    assert not is_at_hand()
    monkeypatch.setenv("MANN_DATA", str(fake))
    assert is_at_hand()
    assert len(load_omniglot()) == 3


def test_cache_is_used_and_a_changed_source_is_read_again(
    fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_omniglot(fake)
    with monkeypatch.context() as patch:
        forbid_zips(patch)
        np.testing.assert_array_equal(load_omniglot(fake).images, BITMAPS)
        assert load_omniglot().labels[0] == "Angelic/character07"
        os.utime(fake / "images_background.zip", ns=(0, 1))  # looks changed: the cache must not answer for it
        with pytest.raises(AssertionError, match="read again"):
            load_omniglot(fake)
    with zipfile.ZipFile(fake / "images_background.zip", "w"):
        pass
    with pytest.raises(MannError, match="hold 4 of Omniglot's 6 drawings"):
        load_omniglot(fake)
    shutil.rmtree(fake)
    np.testing.assert_array_equal(load_omniglot().images, BITMAPS)


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def shorten_labels(file: Path) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), "labels": ["one"]}))


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("packed.bits", flip_a_bit),
        ("packed.bits", truncate),
        ("packed.json", truncate),
        ("packed.json", shorten_labels),
    ],
)
def test_damaged_cache_is_refused_but_repaired_from_a_given_source(
    fake: Path, cache: Path, name: str, damage: Callable[[Path], None]
) -> None:
    load_omniglot(fake)
    damage(cache / "omniglot" / name)
    with pytest.raises(MannError, match=name):
        load_omniglot()
    np.testing.assert_array_equal(load_omniglot(fake).images, BITMAPS)
    np.testing.assert_array_equal(load_omniglot().images, BITMAPS)


def test_a_cache_that_cannot_be_written_is_no_error(fake: Path, cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    np.testing.assert_array_equal(load_omniglot(fake).images, BITMAPS)


@pytest.mark.parametrize("name", ["nowhere", "file.txt", "half"])
def test_path_without_omniglot(tmp_path: Path, name: str) -> None:
    (tmp_path / "file.txt").write_text("no data")
    (tmp_path / "half" / "images_background").mkdir(parents=True)
    with pytest.raises(
        MannError, match=rf"{name} (holds no Omniglot|does not exist).*images_evaluation\.zip"
    ):
        load_omniglot(tmp_path / name)


def test_small_fake_is_refused(tmp_path: Path) -> None:
    write_zips(tmp_path / "small", fake_members())
    with pytest.raises(MannError, match="hold 6 of Omniglot's 32460 drawings"):
        load_omniglot(tmp_path / "small")


VICTIM = "images_background/Greek/character01/0002_01.png"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({VICTIM: b""}, "0002_01.png.*not a PNG of 105×105"),
        ({VICTIM: b"\0" * 1_000_001}, "0002_01.png.*larger than 1000000 bytes"),
        ({VICTIM: png(np.zeros((105, 104), np.uint8))}, "0002_01.png.*not a PNG of 105×105"),
        ({VICTIM: png(BITMAPS[1, 0])[:200]}, "0002_01.png.*not a sound copy"),
        ({VICTIM: b"x" * 16 + png(BITMAPS[1, 0])[16:]}, "0002_01.png.*not a sound copy"),
        ({"images_background/Greek/character02/0002_01.png": png(BITMAPS[1, 0])}, "the same drawing twice"),
        ({"images_background/Greek/character09/0004_01.png": png(BITMAPS[1, 0])}, "no such drawing"),
        ({"images_background/Greek/character09/0000_01.png": png(BITMAPS[1, 0])}, "no such drawing"),
        ({VICTIM: png(BITMAPS[0, 0])}, "wrong SHA-256"),
    ],
)
def test_altered_members_are_refused(fake: Path, changes: dict[str, bytes], message: str) -> None:
    write_zips(fake, fake_members() | changes)
    with pytest.raises(MannError, match=rf"images_background\.zip.*{message}"):
        load_omniglot(fake)


def test_damaged_zip_is_named(fake: Path) -> None:
    whole = (fake / "images_evaluation.zip").read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 3] ^= 0xFF
    for content in (whole[: len(whole) // 2], b"", b"<html>not found</html>", bytes(flipped)):
        (fake / "images_evaluation.zip").write_bytes(content)
        with pytest.raises(MannError, match=r"images_evaluation\.zip.*not a sound copy"):
            load_omniglot(fake)


def test_without_network_the_message_names_every_way(cache: Path) -> None:
    with pytest.raises(MannError) as caught:
        load_omniglot()
    message = str(caught.value)
    assert "Name or service not known" in message
    for way in ("Pass the path", "set MANN_DATA", f"into {cache / 'omniglot'}", "allow the download"):
        assert way in message
    assert caught.value.__suppress_context__


def test_download(fake: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def retrieve(url: str, known_hash: str, fname: str, path: Path, progressbar: bool) -> str:
        asked.append((url, known_hash))
        path.mkdir(parents=True, exist_ok=True)
        return str(shutil.copy(fake / fname, path / fname))

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    np.testing.assert_array_equal(load_omniglot().images, BITMAPS)
    base = "https://github.com/brendenlake/omniglot/raw/master/python/"
    assert asked == [
        (f"{base}images_background.zip", "md5:68d2efa1b9178cc56df9314c21c6e718"),
        (f"{base}images_evaluation.zip", "md5:6b91aef0f799c5bb55b94e3f2daec811"),
    ]
    load_omniglot()  # cached: nothing more is asked for
    assert len(asked) == 2
