"""Many learners asked at once: against each of them asked alone."""

import time

import numpy as np
import pytest
from PIL import Image, ImageDraw

from mann import OneShotLearner
from mann.data import ink
from mann.data.decode import plain_grey, read_grey
from mann.errors import MannError
from mann.online import together
from mann.online.page import from_levels, read_page, to_levels, to_page
from mann.online.sight import WRITTEN
from mann.online.together import Together
from tests.sketches import SYMBOLS, sketch
from tests.test_online import GLYPHS, tiny


def assert_same(learners, pictures, parent):
    glances = Together(parent).look(learners, [picture.pixels for picture in pictures])
    for learner, picture, glance in zip(learners, pictures, glances, strict=True):
        look = learner.look(picture)
        assert list(glance.probabilities) == list(look.probabilities)
        expected = list(look.probabilities.values())
        assert list(glance.probabilities.values()) == pytest.approx(expected, abs=1e-4)
        assert glance.threshold == look.threshold
        if look.memory is None:
            assert glance.memory is None
            continue
        slots = glance.memory.shares.shape[1]
        reads, writes = (np.asarray(look.memory.read_weights), np.asarray(look.memory.write_weights))
        used = np.abs(np.asarray(look.memory.memory)).max(axis=1)
        if look.memory.usage is not None:
            used = np.asarray(look.memory.usage)
        shares = np.stack([reads.mean(axis=0), writes.sum(axis=0), used / max(used.max(), 1e-9)])
        np.testing.assert_allclose(glance.memory.shares, shares[:, :slots], atol=1e-5)
        levels = 255 * np.minimum(shares[:, :slots], 1)
        np.testing.assert_allclose(glance.memory.levels, levels, atol=0.51)
        assert not shares[:2, slots:].any()
        assert shares[0, glance.memory.slot] == pytest.approx(shares[0].max(), abs=1e-5)
        assert glance.memory.share == pytest.approx(shares[0].max(), abs=1e-5)
        sure = np.abs(shares[1] - WRITTEN) > 1e-4
        assert {slot for slot in glance.memory.written if sure[slot]} == set(
            np.flatnonzero(sure & (shares[1] > WRITTEN)).tolist()
        )
        for head, (slot, share, wrote) in enumerate(glance.memory.heads):
            assert reads[head, slot] == pytest.approx(reads[head].max(), abs=1e-5)
            assert share == pytest.approx(reads[head].max(), abs=1e-5)
            writing = writes[min(head, len(writes) - 1)]
            assert writing[wrote] == pytest.approx(writing.max(), abs=1e-5)
        if look.memory.usage is not None:
            np.testing.assert_allclose(glance.memory.writes, writes[:, :slots], atol=1e-5)


@pytest.mark.parametrize("labels", ["strings", "onehot"])
def test_any_number_of_learners_with_any_number_of_labels(labels, monkeypatch):
    """Dense memory, all slots; with one-hot labels also where every code is in use."""
    monkeypatch.setattr(together, "BATCHES", (2, 4))
    parent = OneShotLearner(tiny(labels), seed=0)
    pictures = [parent.prepare(GLYPHS[glyph, 1]) for glyph in range(6)]
    learners = []
    for count in range(6):
        learner = parent.sibling(seed=count, novelty=count % 2 == 0 or 0.3)
        for number in range(min(count, parent.capacity)):
            learner.learn_one(GLYPHS[number, 0], f"{number}")
        learners.append(learner)
    learners.append(parent.sibling(novelty=False))
    learners[-1].learn_one(GLYPHS[0, 0], "a")
    assert_same(learners, [pictures[place % 6] for place in range(7)], parent)


def test_what_a_learner_was_taught_meanwhile_counts():
    parent = OneShotLearner(tiny("strings"), seed=0)
    learner, asker = parent.sibling(), Together(parent)
    picture = parent.prepare(GLYPHS[0, 1])
    assert list(asker.look([learner], [picture.pixels])[0].probabilities) == [None]
    learner.learn_one(GLYPHS[0, 0], "a")
    assert list(asker.look([learner], [picture.pixels])[0].probabilities) == ["a", None]


def test_what_is_asked_or_taken_back_waits_for_no_compiler(monkeypatch):
    monkeypatch.setattr(together, "BATCHES", (2, 4))
    parent = OneShotLearner(tiny("strings"), seed=0)
    asker = Together(parent)
    for _ in asker.compile():
        pass
    compiled = parent._network.compiled
    before = [program._cache_size() for program in (compiled.glance, compiled.unroll)]
    learner = parent.sibling()
    for number in range(6):
        learner.learn_one(GLYPHS[number, 0], f"{number}")
    learner.unlearn_one()  # shows five again: four and one
    asker.look([learner], [parent.prepare(GLYPHS[0, 1]).pixels])
    assert [program._cache_size() for program in (compiled.glance, compiled.unroll)] == before
    assert min(before) > 0


def test_few_slots_of_a_memory_that_holds_little_answer_the_same(monkeypatch):
    """With the default model, whose memory has 1024 slots: of 3 and of 20 examples in one batch."""
    monkeypatch.setattr(together, "BATCHES", (4,))
    parent = OneShotLearner.from_pretrained(seed=0)
    pictures = [parent.prepare(sketch(symbol, 1)) for symbol in list(SYMBOLS)[:3]]
    learners = []
    for count in (0, 3, 20):
        learner = parent.sibling(seed=count)
        shown = [sketch(list(SYMBOLS)[number % 3], number) for number in range(count)]
        learner.learn_many(shown, [f"{number % 7}" for number in range(count)])
        learners.append(learner)
    assert_same(learners, pictures, parent)
    assert [parent._network.fit(needed).slots for needed in (1, 16, 17, 257)] == [16, 16, 64, 1024]
    # `predict_many` takes few slots as well.
    assert learners[2].predict_many(pictures) == [learners[2].predict_one(picture) for picture in pictures]
    for many, one in zip(learners[2].predict_proba_many(pictures), pictures, strict=True):
        assert many == pytest.approx(learners[2].predict_proba_one(one), abs=1e-4)


def test_many_at_once_take_less_than_half_of_the_time():
    """In processor time, the least of several rounds; checks of types would count for the single calls alone."""
    learner = OneShotLearner.from_pretrained(seed=0)
    pictures = [learner.prepare(sketch("ring", seed % 8)) for seed in range(256)]
    learner.learn_many(pictures[:8], list("abcdefgh"))
    alone, together_ = [], []
    learner.predict_many(pictures)
    for _ in range(3):
        began = time.process_time()
        for picture in pictures[:8]:
            learner.predict_one(picture)
        alone.append((time.process_time() - began) / 8)
        began = time.process_time()
        learner.predict_many(pictures)
        together_.append((time.process_time() - began) / 256)
    # 4 measured, since the products of the encoder are the same; other tests may share the cores.
    assert min(alone) > 2 * min(together_)


def drawings():
    rng = np.random.default_rng(0)
    for number, symbol in enumerate(SYMBOLS):
        drawing = sketch(symbol, number).convert("L").resize((105, 105))
        yield drawing
        yield drawing.convert("RGBA")
        yield Image.fromarray(255 - np.asarray(drawing))
        noise = np.asarray(drawing).astype(int) * 0.6 + rng.integers(-8, 9, (105, 105))
        yield Image.fromarray(np.clip(noise, 0, 255).astype(np.uint8))
        coloured = np.array(drawing.convert("RGB"))
        coloured[..., 0] //= 2
        yield Image.fromarray(coloured)
        thick = Image.new("RGBA", (105, 105), "white")
        ImageDraw.Draw(thick).line(
            rng.integers(0, 105, 8).tolist(), (20, 60, 90, 255), int(rng.integers(1, 40))
        )
        yield thick
    yield Image.new("L", (105, 105), 128)


def test_counting_levels_finds_the_same_ink():
    """As the general way does, pixel by pixel; and leaves to it what it cannot judge."""
    found = 0
    for drawing in drawings():
        general = ink._ink_on_plain_paper(read_grey(drawing))
        counted = ink._ink_of_drawing(plain_grey(drawing, 105, "it"))
        if general is None:
            assert counted is None
        else:
            np.testing.assert_array_equal(counted, ink._levels(general))
            found += 1
    assert found >= 12


def test_arrays_and_files_of_a_drawing_have_the_same_ink(tmp_path):
    """As the general way finds it; also where ink is 1, and where an array is turned or of booleans."""
    for number, drawing in enumerate(drawings()):
        levels = np.asarray(drawing.convert("L"))
        drawing.save(tmp_path / f"{number}.png")
        marks = levels < np.median(levels)
        for given in (levels, levels.T, marks, marks.astype(np.uint8), tmp_path / f"{number}.png"):
            general = ink._ink_on_plain_paper(read_grey(given))
            if general is not None:
                assert plain_grey(given, 105) is not None
                np.testing.assert_array_equal(ink.normalise_image(given), ink._levels(general))
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(MannError, match="not a readable image"):
        ink.normalise_image(tmp_path / "text.png")


def test_what_is_not_a_plain_drawing_is_left_to_the_general_way():
    transparent = Image.new("RGBA", (105, 105), (0, 0, 0, 0))
    assert plain_grey(transparent, 105, "it") is None
    assert plain_grey(Image.new("L", (104, 105)), 105, "it") is None
    turned = sketch("ring", 0).resize((105, 105)).convert("L")
    turned.info["exif"] = b"x"
    assert plain_grey(turned, 105, "it") is None


def test_levels_are_the_pixels():
    parent = OneShotLearner(tiny("strings"), seed=0)
    prepared = parent.prepare(GLYPHS[0, 0])
    again = from_levels(to_levels(prepared.pixels), parent.format)
    np.testing.assert_array_equal(again.pixels, prepared.pixels)
    parent.learn_one(again, "a")
    page = to_page(parent)
    assert page["codes"] == [["a", parent.codes["a"]]]
    import json

    assert read_page(json.dumps(page), 1) == ([("a", to_levels(prepared.pixels))], True)
