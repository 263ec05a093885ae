"""Forget, rename, relabel, unlearn, merge: against a learner that was taught so from the start, by single calls."""

import jax
import numpy as np
import pytest

from mann import Folder, MannError, OneShotLearner
from mann.online import Example
from mann.online.examples import check_keep
from mann.online.network import LENGTHS, _parts
from tests.sketches import sketch
from tests.test_online import GLYPHS, tiny

SEED = 7


@pytest.fixture(scope="module")
def parent() -> OneShotLearner:
    return OneShotLearner(tiny("strings"), labels=["announced"], seed=SEED)


@pytest.fixture(scope="module")
def shipped() -> OneShotLearner:
    return OneShotLearner.from_pretrained("omniglot-5")


def fresh(parent: OneShotLearner, announced: list, shown: list) -> OneShotLearner:
    """Taught one call at a time; what was shown are pairs of label and picture."""
    learner = parent.sibling(labels=announced, seed=SEED)
    for label, (glyph, drawing) in shown:
        learner.learn_one(GLYPHS[glyph, drawing], label)
    return learner


def assert_same(one: OneShotLearner, two: OneShotLearner) -> None:
    ours, theirs = one._knowledge, two._knowledge
    assert ours.labels == theirs.labels
    assert list(ours.labels) == list(theirs.labels)
    assert ours.announced == theirs.announced
    assert ours.random == theirs.random
    np.testing.assert_array_equal(ours.encoded, theirs.encoded)
    np.testing.assert_array_equal(ours.pending, theirs.pending)
    for a, b in zip(jax.tree.leaves(ours.state), jax.tree.leaves(theirs.state), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    assert [example.label for example in one.examples] == [example.label for example in two.examples]
    for a, b in zip(one.examples, two.examples, strict=True):
        np.testing.assert_array_equal(a.pixels, b.pixels)


@pytest.mark.parametrize("seed", range(4))
def test_any_changes_leave_what_would_have_been_taught(parent, seed):
    """A list of pairs, changed by hand, against the learner after every change."""
    rng = np.random.default_rng(seed)
    announced, shown = ["announced", "b"], []
    learner = fresh(parent, announced, [])
    for number in range(25):
        labels = list(learner.labels)
        action = rng.choice(["learn", "learn", "learn", "forget", "rename", "relabel", "unlearn", "many"])
        picture = (int(rng.integers(6)), int(rng.integers(4)))
        label = str(rng.choice(list("abcdef")))
        if action == "learn":
            learner.learn_one(GLYPHS[picture], label)
            shown.append((label, picture))
        elif action == "many":
            learner.learn_many([GLYPHS[picture]] * 3, [label, "g", label])
            shown += [(label, picture), ("g", picture), (label, picture)]
        elif action == "forget" and labels:
            gone = labels[int(rng.integers(len(labels)))]
            learner.forget(gone)
            announced = [one for one in announced if one != gone]
            shown = [pair for pair in shown if pair[0] != gone]
        elif action == "rename" and labels:
            old, new = labels[int(rng.integers(len(labels)))], f"new {number}"
            learner.rename(old, new)
            announced = [new if one == old else one for one in announced]
            shown = [(new if one == old else one, picture) for one, picture in shown]
        elif action == "relabel" and shown:
            place = int(rng.integers(-len(shown), len(shown)))
            learner.relabel(place, label)
            shown[place] = (label, shown[place][1])
        elif action == "unlearn" and shown:
            place = int(rng.integers(len(shown)))
            learner.unlearn_one(learner.examples[place])
            del shown[place]
    assert shown
    assert_same(learner, fresh(parent, announced, shown))
    learner.reset()
    assert_same(learner, fresh(parent, announced, []))


def test_the_last_example_is_undone(parent):
    learner = fresh(parent, [], [("a", (0, 0)), ("b", (1, 0))])
    learner.unlearn_one()
    assert_same(learner, fresh(parent, [], [("a", (0, 0))]))


def test_it_knows_a_mended_symbol_and_no_longer_a_forgotten_one(shipped):
    """With the shipped weights, by what it answers."""
    learner = shipped.sibling(seed=0)
    for symbol, label in (("ring", "ring"), ("cross", "ring"), ("zigzag", "zigzag")):
        learner.learn_one(sketch(symbol, 0), label)
    learner.relabel(1, "cross")
    assert [learner.predict_one(sketch("cross", seed)) for seed in range(1, 4)] == 3 * ["cross"]
    learner.forget("zigzag")
    assert set(learner.predict_proba_one(sketch("zigzag", 1))) == {"ring", "cross", None}
    learner.rename("ring", "circle")
    assert [learner.predict_one(sketch("ring", seed)) for seed in range(1, 4)] == 3 * ["circle"]


def test_merging_is_teaching_what_the_other_was_taught(parent):
    first, second = [("a", (0, 0)), ("b", (1, 0))], [("c", (2, 0)), ("a", (0, 1))]
    learner, other = fresh(parent, ["announced"], first), parent.sibling(keep="pictures")
    for label, (glyph, drawing) in second:
        other.learn_one(GLYPHS[glyph, drawing], label)
    before = other._knowledge
    learner.merge(other)
    assert_same(learner, fresh(parent, ["announced"], first + second))
    assert other._knowledge is before
    assert all(example.picture is None for example in learner.examples)
    with pytest.raises(MannError, match="same format"):
        learner.merge(OneShotLearner(tiny("strings", data=Folder(path="x", side=28))))


def test_what_is_kept(parent):
    for keep in ("pixels", "pictures"):
        learner = parent.sibling(keep=keep)
        learner.learn_one(GLYPHS[0, 0], "a")
        (example,) = learner.examples
        prepared = learner.prepare(GLYPHS[0, 0])
        np.testing.assert_array_equal(example.pixels, prepared.pixels)
        assert example.pixels.nbytes == 1600
        if keep == "pictures":
            np.testing.assert_array_equal(example.picture, prepared.picture)
            assert example.picture.nbytes == 105 * 105
        else:
            assert example.picture is None
        with pytest.raises(ValueError, match="read-only"):
            example.pixels[0] = 1


def test_without_anything_kept_a_sentence_says_so(parent):
    learner = parent.sibling(keep="nothing")
    learner.learn_one(GLYPHS[0, 0], "a")
    before = learner._knowledge
    for call in (
        lambda: learner.examples,
        lambda: learner.forget("a"),
        lambda: learner.relabel(0, "b"),
        lambda: learner.unlearn_one(),
        lambda: parent.sibling().merge(learner),
    ):
        with pytest.raises(MannError, match="kept nothing of its examples"):
            call()
    assert learner._knowledge is before
    learner.rename("a", "b")  # needs nothing
    assert learner.labels == ("b",)
    with pytest.raises(MannError, match="not 'everything'"):
        check_keep("everything")


def test_mistakes_change_nothing(parent):
    learner = fresh(parent, [], [("a", (0, 0)), ("b", (1, 0))])
    before = learner._knowledge
    for call, message in (
        (lambda: learner.forget("c"), "'c' is no label"),
        (lambda: learner.forget(([],)), "hashable"),
        (lambda: learner.rename("c", "d"), "'c' is no label"),
        (lambda: learner.rename("a", "b"), "'b' is known already"),
        (lambda: learner.rename("a", None), "something new"),
        (lambda: learner.relabel(2, "b"), "no such example among the 2"),
        (lambda: learner.relabel(0, None), "something new"),
        (lambda: learner.unlearn_one(-3), "no such example"),
        (lambda: learner.unlearn_one(Example("a", np.zeros(400, np.float32), None)), "no such example"),
    ):
        with pytest.raises(MannError, match=message):
            call()
    assert learner._knowledge is before
    learner.rename("a", "a")
    assert_same(learner, fresh(parent, [], [("a", (0, 0)), ("b", (1, 0))]))


def test_a_failed_call_draws_no_code():
    """Nor does it change which codes later labels get."""
    parent = OneShotLearner(tiny(), seed=SEED)
    learner = parent.sibling(seed=SEED)
    with pytest.raises(MannError, match="3 labels apart"):
        learner.learn_many([GLYPHS[0, 0]] * 4, list("abcd"))
    learner.learn_one(GLYPHS[0, 0], "a")
    assert_same(learner, fresh(parent, [], [("a", (0, 0))]))


@pytest.mark.parametrize("count", [0, 1, 5, 37, 300, 800])
def test_any_number_is_made_up_of_few_lengths(count):
    covered = [place for part in _parts(count, LENGTHS) for place in range(count)[part]]
    assert covered == list(range(count))
    assert {part.stop - part.start for part in _parts(count, LENGTHS)} <= set(LENGTHS)


def test_many_at_once_are_what_single_calls_give(parent):
    """For a number that needs every batch, some of it filled up, with as many rows as pictures."""
    learner = fresh(parent, [], [("a", (0, 0)), ("b", (1, 0)), ("c", (2, 0))])
    pictures = [learner.prepare(GLYPHS[i % 6, i % 4]) for i in range(256 + 32 + 8 + 3)]
    together = learner.predict_proba_many(pictures)
    assert len(together) == len(pictures)
    for place in (0, 255, 256, 290, 298):
        assert together[place] == pytest.approx(learner.predict_proba_one(pictures[place]), abs=1e-3)
    assert learner.predict_proba_many([]) == []
