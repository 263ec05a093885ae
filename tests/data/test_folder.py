"""Folders of a user's own images, as ink."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mann.data import folder
from mann.data.folder import load_folder
from mann.errors import MannError
from tests.data.test_ink import EXPECTED, GREY


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
