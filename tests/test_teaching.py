"""Taught once: against a loop over single calls of the learner, and scikit-learn's average precision."""

import dataclasses
import json
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import average_precision_score

from mann.cli import main
from mann.data import Glyphs
from mann.errors import MannError
from mann.memory import KeyValueConfig
from mann.models import ModelConfig, build_model
from mann.online import OneShotLearner, examples
from mann.statistics import average_precision
from mann.tasks import ManyThings
from mann.teaching import teach_once
from mann.teaching.once import _Answers, picture_of
from mann.trained import Trained, load_trained, save_trained, with_slots
from mann.training.config import Config

CONFIG = Config(
    task=ManyThings(classes=8, length=20, labels="strings"),
    model=ModelConfig(memory=KeyValueConfig(slots=32, width=16), reads_to_controller=False),
    data=Glyphs(classes=40, validation=6),
    batch=2,
)


ANSWERS = _Answers(*(np.ones(3, bool) for _ in range(3)), *(np.ones(3) for _ in range(2)))


@pytest.fixture(autouse=True)
def _cache(shared_cache, monkeypatch):
    monkeypatch.setenv("MANN_CACHE", str(shared_cache))


@pytest.fixture(scope="module")
def trained():
    model = build_model(CONFIG.model, CONFIG.task, key=jax.random.key(0))
    return Trained("tiny", model, CONFIG, {}, np.zeros(0, np.uint64))


def test_average_precision_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    for _ in range(20):
        scores = rng.integers(0, 8, 30) / 8  # many are equal
        positives = int(rng.integers(1, 29))
        truth = np.arange(30) < positives
        assert average_precision(scores, positives) == pytest.approx(average_precision_score(truth, scores))


def test_many_pictures_at_once_are_one_at_a_time(trained):
    images = CONFIG.data.load()
    pictures = [picture_of(images, number, 0) for number in range(6)]
    one, many = (OneShotLearner(trained, seed=3) for _ in range(2))
    for number in (0, 1, 2, 1):
        one.learn_one(pictures[number], f"c{number}")
    many.learn_many(pictures[:2], ["c0", "c1"])
    many.learn_many([pictures[2], pictures[1]], ["c2", "c1"])
    for chances, picture in zip(many.predict_proba_many(pictures), pictures, strict=True):
        assert chances == pytest.approx(one.predict_proba_one(picture), abs=1e-5)
    assert many.predict_many(pictures) == [one.predict_one(picture) for picture in pictures]
    assert many.predict_many(iter(pictures)) == many.predict_many(pictures)
    assert many.predict_many([]) == []
    assert many.embed([]).shape == (0, many.embed(pictures).shape[1])
    again = OneShotLearner(trained, seed=3)
    again.learn_many(iter(pictures[:2]), iter(["c0", "c1"]))
    assert again.labels == ("c0", "c1")
    for single in ("one.png", many.prepare(pictures[0])):
        with pytest.raises(MannError, match="a list of pictures"):
            many.predict_many(single)
    with pytest.raises(MannError, match="need as many labels"):
        many.learn_many(pictures, ["c0"])


def test_pictures_that_take_long_to_prepare_are_prepared_side_by_side(trained, monkeypatch):
    images = CONFIG.data.load()
    drawn = [Image.fromarray(picture_of(images, number, 0)).resize((300, 300)) for number in range(4)]
    learner = OneShotLearner(trained, seed=0)
    apart = [learner.prepare(picture).pixels for picture in drawn]
    both, prepare = threading.Barrier(2), examples.prepare_picture

    def wait_for_another(*args, **kwargs):
        both.wait(timeout=30)  # one after the other would wait in vain
        return prepare(*args, **kwargs)

    monkeypatch.setattr(examples, "usable_cores", lambda: 2)
    with monkeypatch.context() as patched:
        patched.setattr(examples, "prepare_picture", wait_for_another)
        learner.learn_many(drawn, ["a", "b", "c", "d"])
    for example, expected in zip(learner.examples, apart, strict=True):  # in order
        np.testing.assert_array_equal(example.pixels, expected)
    with pytest.raises(MannError, match=r"no-such\.png"):
        learner.predict_many([*drawn, "no-such.png"])


def test_novelty_can_be_off_on_or_a_threshold(trained):
    images = CONFIG.data.load()
    shown, other = picture_of(images, 0, 0), picture_of(images, 1, 0)
    learner = OneShotLearner(trained, seed=0)
    learner.learn_one(shown, "a")
    new = learner.predict_proba_one(other)[None]
    assert learner.predict_one(other) == (None if new >= 0.5 else "a")
    for novelty, expected in ((False, "a"), (new + 0.01, "a"), (new - 0.01, None)):
        sibling = learner.sibling(seed=0, novelty=novelty)
        sibling.learn_one(shown, "a")
        assert sibling.predict_one(other) == expected
    assert learner.sibling(novelty=False).predict_proba_one(other) == {None: 1.0}
    with pytest.raises(MannError, match="between 0 and 1"):
        learner.sibling(novelty=1.5)


def test_a_row_is_a_loop_over_trials(trained):
    """The same things, drawings and codes, one call of the learner at a time."""
    result = teach_once(trained, [3], trials=4, seed=5)[0]
    images = CONFIG.data.load().subset(30, 40)
    rng = np.random.default_rng([5, 3])
    right, forced, known, others = 0, 0, [], []
    for _ in range(4):
        classes = rng.permutation(10)
        pairs = [rng.permutation(images.counts[c])[:2] for c in classes[:3]]
        learner = OneShotLearner(trained, seed=int(rng.integers(2**31)))
        for label, (number, pair) in enumerate(zip(classes, pairs, strict=False)):
            learner.learn_one(picture_of(images, number, pair[0]), label)
        for label, (number, pair) in enumerate(zip(classes, pairs, strict=False)):
            chances = learner.predict_proba_one(picture_of(images, number, pair[1]))
            known.append(1 - chances.pop(None))
            right += learner.predict_one(picture_of(images, number, pair[1])) == label
            forced += max(chances, key=chances.__getitem__) == label
        for number in classes[3:6]:
            drawing = rng.integers(images.counts[number])
            others.append(1 - learner.predict_proba_one(picture_of(images, number, drawing))[None])
    assert result.answered.value == pytest.approx(right / 12)
    assert result.forced.value == pytest.approx(forced / 12)
    truth = [1] * len(known) + [0] * len(others)
    assert result.area == pytest.approx(average_precision_score(truth, known + others), abs=0.05)


def test_all_classes_can_be_taught_and_then_nothing_is_new(trained):
    row = teach_once(trained, [10], trials=1)[0]
    assert (row.answered.samples, row.area) == (10, None)


def test_within_an_alphabet_no_thing_is_of_another(trained, monkeypatch):
    """Ten test classes of two alphabets, 4 and 6 of them."""
    images = dataclasses.replace(CONFIG.data.load().subset(30, 40), alphabets=("a",) * 4 + ("b",) * 6)
    asked = []
    monkeypatch.setattr("mann.teaching.once.unseen_images", lambda *_: (images, 30))
    monkeypatch.setattr(
        "mann.teaching.once._trial", lambda *words: asked.append((words[3], words[2].tolist())) or ANSWERS
    )
    teach_once(trained, [3, 5], alphabets="within", trials=12)
    few = [set(classes) for count, classes in asked if count == 3]
    assert {frozenset(classes) for classes in few} == {frozenset(range(4)), frozenset(range(4, 10))}
    assert all(set(classes) == set(range(4, 10)) for count, classes in asked if count == 5)
    with pytest.raises(MannError, match="at most 6"):
        teach_once(trained, [7], alphabets="within")


def test_slots_are_a_choice_at_test_time(trained):
    larger = with_slots(trained, 100)
    assert larger.model.memory.slots == 100
    assert larger.config.model.memory.slots == 100
    inputs, labels = jnp.ones((5, 400)), jnp.zeros((5, 25))
    ours, theirs = (t.model.unroll(inputs, labels).outputs for t in (trained, larger))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    with pytest.raises(MannError, match="no slots"):
        with_slots(load_trained("gp-1d")._replace(config=_without_memory()), 5)


def _without_memory():
    from tests.networks import network
    from tests.training.tiny import change

    return change(model=network(memory="none"))


def test_the_command_writes_what_scripts_need(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save_trained(tmp_path / "weights.safetensors", trained)
    arguments = ["eval", "weights.safetensors", "--teach-once", "2,4", "--slots", "64", "--json", "out.json"]
    monkeypatch.setattr("mann.teaching.once.QUESTIONS", 10)
    assert main(arguments) == 0
    assert "taught once" in capsys.readouterr().out
    rows = json.loads((tmp_path / "out.json").read_text())["teach_once"]
    assert [row["things"] for row in rows] == [2, 4]
    for row in rows:
        assert 0 <= row["low"] <= row["accuracy"] <= row["high"] <= 1
        assert 0 <= row["accuracy_forced"] <= 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--teach-once", "5,x"], "takes numbers"),
        (["--teach-once", "11"], "at most 10"),
        (["--teach-once", "0"], "least 1"),
        (["--teach-once", "3", "--alphabets", "mixed"], "for episodes"),
    ],
)
def test_mistakes_are_one_sentence(trained, tmp_path, words, message, capsys):
    save_trained(tmp_path / "weights.safetensors", trained)
    assert main(["eval", str(tmp_path / "weights.safetensors"), *words]) == 2
    assert message in capsys.readouterr().err
