"""The scikit-learn classifier: scikit-learn's own checks, and its conventions with pictures."""

import copy
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import estimator_checks_generator

from mann import OneShotLearner
from mann.online import Prepared
from mann.sklearn import OneShotClassifier
from mann.trained import save_trained
from tests.sketches import sketch
from tests.test_online import tiny


class Bars:
    """The checks bring numbers of any kind and count: each is a bar of a chart."""

    def __call__(self, row: np.ndarray) -> Prepared:
        picture = np.zeros((20, 20), np.uint8)
        for place, value in enumerate(row[:19]):
            picture[1 : 10 + int(8 * np.tanh(value / 3)), place] = 255
        return Prepared(picture.ravel() / np.float32(255), picture)

    def __repr__(self) -> str:  # the tests are named after it
        return "bars"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    save_trained(path, tiny("strings"))
    return str(path)


@pytest.fixture(scope="module")
def parent(model) -> OneShotLearner:
    return OneShotLearner.from_pretrained(model)


ELSEWHERE = {  # checks that skip themselves
    "check_array_api_input": "wants a setting of SciPy; no claim is made to support it",
    "check_classifier_data_not_an_array": "wants pandas, which mann does not use",
}


def checks() -> list:
    """All of them, but for those that skip themselves."""
    found = list(estimator_checks_generator(OneShotClassifier(picture=Bars())))
    return [pair for pair in found if _name(pair[1]) not in ELSEWHERE]


def _name(check) -> str:
    while hasattr(check, "func"):  # functools.partial
        check = check.func
    return check.__name__


@pytest.mark.parametrize(
    ("estimator", "check"), checks(), ids=[f"{n}-{_name(check)}" for n, (_, check) in enumerate(checks())]
)
def test_scikit_learns_checks(estimator, check, parent, monkeypatch):
    """With weights that were read once."""
    monkeypatch.setattr(OneShotLearner, "from_pretrained", lambda name, **options: parent.sibling(**options))
    check(estimator)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    return load_digits(return_X_y=True)


def test_one_of_each_digit_is_enough_for_a_good_guess(digits):
    """Rows of 8×8 pixels from 0 to 16: far above chance after one example of each."""
    X, y = digits
    first = [int((y == digit).argmax()) for digit in range(5)]
    classifier = OneShotClassifier(random_state=0).fit(X[first], y[first])
    others = np.setdiff1d(np.flatnonzero(y < 5), first)[:25]
    assert classifier.score(X[others], y[others]) > 0.5
    np.testing.assert_allclose(classifier.predict_proba(X[others]).sum(axis=1), 1)


def test_the_answers_are_those_of_the_learner():
    """For pictures that are large enough to be taken as they are, whatever their range."""
    pictures = np.stack([np.asarray(sketch(symbol, 0)) for symbol in ("ring", "cross", "zigzag")])
    X, y = pictures.reshape(3, -1) / 10.0, np.array(["ring", "cross", "zigzag"])
    classifier = OneShotClassifier("omniglot-5", random_state=0).fit(X, y)
    others = [sketch(symbol, seed) for symbol in y for seed in range(1, 4)]
    answers = classifier.predict(np.stack([np.ravel(picture) for picture in others]))
    assert answers.tolist() == [symbol for symbol in y for _ in range(3)]
    assert answers.tolist() == classifier.learner_.predict_many(others)


def test_new_classes_may_come_at_any_time(digits, model):
    X, _ = digits
    names = np.array(["zero", "one", "two", "three", "four", "five"])
    classifier = OneShotClassifier(model, random_state=1)
    classifier.partial_fit(X[:2], names[:2])
    assert classifier.classes_.tolist() == ["one", "zero"]
    classifier.partial_fit(X[2:4], names[2:4])
    assert classifier.classes_.tolist() == sorted(names[:4].tolist())
    assert set(classifier.predict(X[:6])) <= set(names[:4])
    together = clone(classifier).fit(X[:4], names[:4])
    np.testing.assert_allclose(together.predict_proba(X[:9]), classifier.predict_proba(X[:9]), atol=1e-5)
    announced = clone(classifier).partial_fit(X[:2], names[:2], classes=names[:3])
    assert announced.classes_.tolist() == sorted(names[:3].tolist())
    assert announced.predict_proba(X[:1]).shape == (1, 3)
    announced.fit(X[:2], names[:2])
    assert announced.classes_.tolist() == sorted(names[:2].tolist())


def test_rows_that_are_no_pictures_are_refused(digits, model):
    X, y = digits
    classifier = OneShotClassifier(model)
    with pytest.raises(ValueError, match="5 features is no square picture of 1 channel: give"):
        classifier.fit(X[:3, :5], y[:3])
    blank = np.concatenate([X[:2], np.zeros((1, 64))])
    with pytest.raises(ValueError, match=r"row 2 of X.*blank"):
        classifier.fit(blank, y[:3])
    save_trained(path := Path(model.replace("tiny", "onehot")), tiny())
    with pytest.raises(ValueError, match="3 labels apart"):
        OneShotClassifier(str(path)).fit(X[:4], y[:4])


def test_in_a_pipeline_with_scores(digits, model):
    X, y = digits
    pipeline = make_pipeline(FunctionTransformer(np.sqrt), OneShotClassifier(model, random_state=0))
    scores = cross_val_score(pipeline, X[:20], y[:20], cv=2)
    assert scores.shape == (2,)
    assert np.isfinite(scores).all()


def test_copies_go_their_own_ways(digits, model):
    X, y = digits
    classifier = OneShotClassifier(model, random_state=0).fit(X[:3], y[:3])
    before = classifier.predict_proba(X[:4])
    other = copy.deepcopy(classifier)
    np.testing.assert_array_equal(other.predict_proba(X[:4]), before)
    other.partial_fit(X[3:5], y[3:5])
    np.testing.assert_array_equal(classifier.predict_proba(X[:4]), before)
    learner = OneShotLearner.from_pretrained(model, seed=0)
    learner.learn_one(Bars()(np.arange(4.0)), "a")
    assert [one.label for one in copy.deepcopy(learner).examples] == ["a"]
