"""What the human experiment shows: never a class that the network was trained on."""

import numpy as np
import pytest

from mann.data.images import ImageSet
from mann.web import experiment
from mann.web.experiment import load_material


def test_with_omniglot_at_hand_its_test_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.arange(1623) % 251  # every class has a picture that says which it is
    images = np.broadcast_to(numbers.astype(np.uint8)[:, None, None, None], (1623, 1, 105, 105))
    characters = ImageSet("omniglot", images, np.ones(1623, int), ("",) * 1623)
    monkeypatch.setattr("mann.data.omniglot.load_omniglot", lambda path: characters)
    monkeypatch.setenv("MANN_DATA", "somewhere")
    material = load_material()
    assert (material.name, material.dataset) == ("Omniglot, classes 1201–1623", "omniglot")
    np.testing.assert_array_equal(material.bitmaps[:, 0, 0, 0], numbers[1200:])


def test_without_it_glyphs_and_no_download(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("it was asked to load Omniglot")

    monkeypatch.setattr("mann.data.omniglot.load_omniglot", refuse)
    monkeypatch.setattr(experiment, "GLYPHS", 7)
    monkeypatch.delenv("MANN_DATA", raising=False)
    monkeypatch.setenv("MANN_CACHE", str(tmp_path))
    material = load_material()
    assert material.dataset == "glyphs"
    assert "Omniglot is not on this machine" in material.name
    assert material.bitmaps.shape[0] == 7
    assert material.bitmaps.any(axis=(2, 3)).all()  # no empty paper
