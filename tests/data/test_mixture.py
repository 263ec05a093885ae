"""A mixture: what trains, watches and tests, one format for all, and the one left out never met."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from mann.data import Digits, Folder, Glyphs, Mixture, NoData, Objects, Split, Textures
from mann.data.seen import training_fingerprints, unseen_images
from mann.errors import MannError
from mann.parts import from_dict, to_dict
from mann.tasks import Classification

GLYPHS, TEXTURES = Glyphs(classes=12), Textures(classes=8, drawings=4)
MIXED = Mixture(sources=(GLYPHS, TEXTURES), validation=2)


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MANN_CACHE", str(tmp_path))


def test_the_classes_that_train_come_first_then_those_that_watch_then_those_that_test():
    images = MIXED.load()
    # 1200 of 1623 train or watch: 9 of 12 glyphs, 6 of 8 textures; of these 2, or a quarter if that is less, watch.
    assert MIXED.divide(len(images)) == Split(train=7 + 5, validation=9 + 6, classes=20)
    kinds = [label.partition("/")[0] for label in images.labels]
    assert kinds == 7 * ["glyphs"] + 5 * ["textures"] + 2 * ["glyphs"] + ["textures"] + 3 * ["glyphs"] + 2 * [
        "textures"
    ]
    glyphs, textures = GLYPHS.load(), TEXTURES.load()
    np.testing.assert_array_equal(images.images[7, :4], textures.images[0])
    np.testing.assert_array_equal(images.images[12:14], 255 * glyphs.images[7:9])
    np.testing.assert_array_equal(images.images[18:, :4], textures.images[6:])
    assert images.counts.tolist() == [{"glyphs": 20, "textures": 4}[kind] for kind in kinds]
    assert images.labels[7] == "textures/grain 0001"
    # Where fewer are held out than an episode needs, they train.
    assert MIXED.divide(len(images), needed=4) == Split(15, 15, 20)


def test_it_is_divided_without_being_read_first():
    fresh = Mixture(sources=(Glyphs(classes=13), TEXTURES), validation=2)
    assert fresh.divide(21).validation == 10 + 6


def test_alphabets_are_those_of_the_sources_or_the_sources():
    images = MIXED.load()
    assert set(images.alphabets) == {
        "glyphs/alphabet 1",
        "textures/grain",
        "textures/lattice",
        "textures/cells",
    }
    whole = dataclasses.replace(MIXED, groups="sources").load()
    assert [name.partition("/")[0] for name in images.alphabets] == list(whole.alphabets)
    assert images.alphabets[7] == "textures/grain"


def test_one_is_left_out_and_can_be_tested_on():
    without = dataclasses.replace(MIXED, without="textures")
    images = without.load()
    assert len(images) == 12
    seen = training_fingerprints(images, without)
    unseen, first = unseen_images(TEXTURES, without, seen, "it")
    assert (len(unseen), first) == (2, 6)
    # Trained on all, it has met the first classes of either, however they are called.
    seen = training_fingerprints(MIXED.load(), MIXED)
    assert len(unseen_images(GLYPHS, MIXED, seen, "it")[0]) == 3

    class AllOfThem(Glyphs, kind="all of them"):
        def trained_classes(self, classes):
            return 0

    with pytest.raises(MannError, match="9 of the 12 classes of 'glyphs'"):
        unseen_images(AllOfThem(classes=12), MIXED, seen, "it")
    del Glyphs.members["all of them"]


def test_in_colour_drawings_are_black_on_white_and_all_have_one_size():
    mixture = Mixture(sources=(GLYPHS, Objects(classes=4, pictures=2)), side=32, validation=1, drawings=3)
    images = mixture.load()
    assert mixture.format.channels == 3
    assert not mixture.has_paper
    assert images.images.shape == (16, 3, 48, 48, 3)
    drawn = Image.fromarray(255 * GLYPHS.load().images[0, 0]).resize((48, 48), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(images.images[0, 0], 255 - np.asarray(drawn)[..., None].repeat(3, 2))
    alone = Mixture(sources=(GLYPHS,), colour=True)
    assert alone.format.channels == 3
    assert alone.load().images.shape[2:] == (105, 105, 3)


def test_grey_and_colour_are_not_tested_on_each_other():
    with pytest.raises(MannError, match=r"pictures that are grey, and those of 'objects' are in colour"):
        unseen_images(Objects(), GLYPHS, None, "it")


def test_it_goes_to_json_and_back():
    assert from_dict(type(MIXED), to_dict(MIXED)) == MIXED
    assert to_dict(MIXED)["sources"][1]["kind"] == "textures"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sources": ()}, "at least one source"),
        ({"sources": (GLYPHS,), "without": "glyphs"}, "at least one source"),
        ({"without": "runes"}, "no source 'runes' to leave out: it has omniglot, glyphs, letters, textures"),
        ({"sources": (NoData(),)}, "'none' has none: take it out"),
        ({"drawings": 1}, r"data\.drawings must be at least 2"),
    ],
)
def test_what_cannot_be_mixed_gets_a_sentence(options, message):
    with pytest.raises(MannError, match=message):
        Mixture(**options)


def test_a_set_without_training_classes_is_refused_for_training():
    with pytest.raises(MannError, match="digits has no classes to train on"):
        Classification(classes=3).load(Digits(drawings=2))


def test_a_folder_in_colour(tmp_path):
    colours = {"red": (200, 20, 20), "blue": (20, 20, 200)}
    for name, colour in colours.items():
        (tmp_path / "things" / name).mkdir(parents=True)
        for number in range(2):
            Image.new("RGB", (80, 100), colour).save(tmp_path / "things" / name / f"{number}.png")
    folder = Folder(path=str(tmp_path / "things"), colour=True, side=32)
    images = folder.load()
    assert images.images.shape == (2, 2, 64, 64, 3)
    assert (images.images[0] == colours["blue"]).all()  # sorted by name
    assert folder.format.channels == 3
    assert not images.has_paper
