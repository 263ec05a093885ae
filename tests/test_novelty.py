"""Known or new: what a learner compares, against NumPy; how it is calibrated, against scikit-learn."""

import math

import jax
import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression, QuantileRegressor

from mann.data import Glyphs
from mann.errors import MannError
from mann.memory import KeyValueConfig
from mann.models import ModelConfig, build_model
from mann.online import OneShotLearner
from mann.tasks import ManyThings
from mann.teaching import calibrate_novelty, fit_novelty, novelty_rates
from mann.teaching.once import picture_of
from mann.trained import Novelty, Trained, load_trained
from mann.training.config import Config

CONFIG = Config(
    task=ManyThings(classes=8, length=20, labels="strings"),
    model=ModelConfig(memory=KeyValueConfig(slots=32, width=16), reads_to_controller=False),
    data=Glyphs(classes=40, validation=6),
    batch=2,
)
NOVELTY = Novelty(
    stated=0.5,
    alike=-7.0,
    constant=5.0,
    things=0.3,
    shows=-0.6,
    both=0.2,
    again=0.7,
    again_things=-0.25,
    threshold=0.4,
)


@pytest.fixture(autouse=True)
def _cache(shared_cache, monkeypatch):
    monkeypatch.setenv("MANN_CACHE", str(shared_cache))


@pytest.fixture(scope="module")
def trained():
    model = build_model(CONFIG.model, CONFIG.task, key=jax.random.key(0))
    return Trained("tiny", model, CONFIG, {"novelty": NOVELTY._asdict()}, np.zeros(0, np.uint64))


def taught(trained, **options):
    """Three things, shown once, twice and three times; and what was shown."""
    images = CONFIG.data.load()
    learner = OneShotLearner(trained, seed=1, **options)
    examples = [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (2, 2)]
    for number, drawing in examples:
        learner.learn_one(picture_of(images, number, drawing), f"c{number}")
    return images, learner, [picture_of(images, *one) for one in examples]


@pytest.mark.parametrize("keep", ["pixels", "nothing"])
def test_the_odds_of_something_new_by_hand(trained, keep):
    """The largest cosine between the picture and those shown, and how often the thing it is taken for was shown."""
    images, learner, shown = taught(trained, keep=keep)
    again = OneShotLearner.from_json(learner.to_json())
    keys = learner.embed(shown)
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    plain = OneShotLearner(trained._replace(description={}), seed=1)
    for picture, number in zip(shown, (0, 1, 2, 1, 2, 2), strict=True):
        plain.learn_one(picture, f"c{number}")
    counts = set()
    for number in range(8):
        asked = picture_of(images, number, 3)
        query = learner.embed([asked])[0]
        alike = (keys @ query).max() / np.linalg.norm(query)
        stated = plain.predict_proba_one(asked)[None]  # as the network has it
        chances = learner.predict_proba_one(asked)
        new = chances.pop(None)
        shows = {"c0": 1, "c1": 2, "c2": 3}[max(chances, key=chances.__getitem__)]
        counts.add(shows)
        odds = 0.5 * math.log(stated / (1 - stated)) - 7 * alike + 5 + 0.3 * math.log(3)
        odds += -0.6 * math.log(shows) + 0.2 * math.log(3) * math.log(shows)
        odds += 0.7 - 0.25 * math.log(3) if shows > 1 else 0
        assert new == pytest.approx(expit(odds), abs=1e-4)
        assert learner.predict_one(asked) == (None if new >= 0.4 else max(chances, key=chances.__getitem__))
        assert learner.predict_proba_many([asked])[0][None] == pytest.approx(new, abs=1e-5)
        assert again.predict_proba_one(asked)[None] == pytest.approx(new, abs=1e-6)
    assert counts >= {1, 2} or counts >= {1, 3}


def test_names_and_counts_go_together(trained):
    images, learner, _ = taught(trained)
    asked = picture_of(images, 2, 4)
    before = learner.predict_proba_one(asked)[None]
    learner.rename("c2", "another")
    assert learner.predict_proba_one(asked)[None] == before


def test_the_calibration_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    count = 1200
    known = np.arange(2 * count) < count
    things = np.tile([2.0, 20.0], count)
    shows = np.tile([1.0, 1.0, 2.0, 2.0, 5.0, 5.0], count // 3)  # every pair of numbers as often
    stated = rng.normal(np.where(known, -2, 2) + np.log(things), 2)
    alike = rng.normal(np.where(known, 0.8, 0.5) + 0.05 * np.log(shows), 0.1)
    found = fit_novelty(np.stack([stated, alike, things, shows], axis=1), known, 0.05)
    much, often, again = np.log(things), np.log(shows), shows > 1
    usual = np.stack([much, often, much * often], axis=1)
    statistics = np.stack([stated, alike], axis=1)
    logistic = LogisticRegression(C=1e6, max_iter=10_000, tol=1e-8)
    logistic.fit(np.hstack([statistics, usual, np.stack([again, again * much], axis=1)]), ~known)
    assert found[:2] == pytest.approx(logistic.coef_[0, :2], rel=2e-2)
    scores = statistics @ np.array(found[:2])

    def limits(which, inputs):
        fitted = QuantileRegressor(quantile=0.95, alpha=0, solver="highs")
        fitted.fit(inputs[which], scores[which])
        return [-fitted.intercept_, *-fitted.coef_]

    assert [found.constant, found.things] == pytest.approx(limits(known, usual)[:2], abs=0.05)
    more = [found.constant + found.again, found.shows]
    assert more == pytest.approx(limits(known & again, often[:, None]), abs=0.05)
    assert found.things + found.again_things == pytest.approx(0, abs=1e-3)
    assert found.both == 0
    odds = found.log_odds(stated, alike, things, shows)
    assert (odds[known & ~again] >= 0).mean() == pytest.approx(0.05, abs=0.02)
    assert (odds[known & again] >= 0).mean() == pytest.approx(0.05, abs=0.01)
    assert found.threshold == 0.5


def test_a_memory_without_likeness_is_calibrated_by_what_it_states():
    rng = np.random.default_rng(1)
    known = np.arange(400) < 200
    numbers = np.stack(
        [rng.normal(np.where(known, -1, 1)), np.full(400, -1.0), np.full(400, 5.0), np.ones(400)], axis=1
    )
    found = fit_novelty(numbers, known, 0.1)
    assert found.stated > 0.5
    assert found.alike == 0
    assert (found.log_odds(numbers[known, 0], -1, 5, 1) >= 0).mean() == pytest.approx(0.1, abs=0.02)


def test_calibrated_and_counted_on_the_classes_meant_for_it(trained):
    done = []
    novelty = calibrate_novelty(
        trained, things=(2, 5, 50), questions=60, progress=lambda *state: done.append(state)
    )
    assert done == [(0, 2), (1, 2), (2, 2)]  # six held-out classes: there is no teaching fifty
    assert novelty.alike < 0 or novelty.stated > 0
    ready = trained._replace(description={"novelty": novelty._asdict()})
    rows = novelty_rates(ready, (2, 6), (1, 2), held_out=True, questions=60)
    assert [(row.things, row.shows) for row in rows] == [(2, 1), (6, 1), (2, 2), (6, 2)]
    assert rows[1].new is None  # all six are known
    assert rows[0].new.samples == rows[0].known.samples == 60
    assert all(row.known.value + row.right.value <= 1 for row in rows)
    assert rows[0].known.value < 0.3
    assert novelty_rates(ready, (2,), (1,), questions=20)[0].new.samples == 40  # at least 20 trials


@pytest.mark.parametrize("novelty", [{"stated": "x"}, {"unknown": 1.0}, {"alike": math.inf}, "high"])
def test_weights_that_say_nonsense_of_novelty_are_refused(trained, novelty):
    with pytest.raises(MannError, match="makes no sense"):
        _ = trained._replace(description={"novelty": novelty}).novelty


def test_a_threshold_alone_is_read_as_before(trained):
    assert trained._replace(description={"novelty": 0.86}).novelty == Novelty(threshold=0.86)
    assert load_trained("omniglot-5").novelty == Novelty()


def test_weights_calibrated_before_things_shown_again_had_numbers_of_their_own(trained):
    """What they say of one show and of several is one line, as it was."""
    before = {"stated": 0.5, "alike": -7.0, "constant": 5.0, "things": 0.3, "shows": -0.6, "both": 0.2}
    novelty = trained._replace(description={"novelty": before}).novelty
    assert novelty.log_odds(1.0, 0.5, 3, 2) == pytest.approx(
        0.5 - 3.5 + 5 + 0.3 * math.log(3) - 0.6 * math.log(2) + 0.2 * math.log(3) * math.log(2)
    )
