"""The one-shot learner as a scikit-learn classifier, for pipelines, searches and scores.

It needs scikit-learn, which mann itself does not: whoever uses this module has it.
"""

import math
from functools import partial
from typing import Any

import numpy as np
from PIL import Image
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from mann.data.images import SIDE
from mann.errors import MannError
from mann.online import OneShotLearner, Picture


class OneShotClassifier(ClassifierMixin, BaseEstimator):
    """`OneShotLearner` with `fit`, `partial_fit`, `predict` and `predict_proba`.

    A row of X is a picture. Each is shown once, in order; no weight changes. Unlike other classifiers it may meet
    new classes at any `partial_fit`. It never says that something is new.

    Args:
        model: shipped weights, a run folder, or a file of weights; empty for the shipped model with string labels.
        picture: a function that makes a picture of a row, an array or whatever `OneShotLearner` takes; None for
            rows that are flattened square pictures themselves, of any size and range.
        random_state: of the labels' codes.

    Examples:
        >>> from sklearn.datasets import load_digits
        >>> X, y = load_digits(return_X_y=True)  # rows of 8×8 pixels
        >>> first = [int((y == digit).argmax()) for digit in range(10)]
        >>> classifier = OneShotClassifier(random_state=0).fit(X[first], y[first])  # one example of each digit
        >>> classifier.predict_proba(X[:5]).shape
        (5, 10)
        >>> classifier.partial_fit(X[first], y[first]).classes_.tolist()
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """

    classes_: np.ndarray
    learner_: OneShotLearner

    def __init__(
        self,
        model: Any = "",  # what is wrong is said by `fit`, as scikit-learn wants it
        *,
        picture: Any = None,
        random_state: Any = None,
    ) -> None:
        self.model, self.picture, self.random_state = model, picture, random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # on rows that are no pictures
        return tags

    def fit(self, X: Any, y: Any) -> "OneShotClassifier":
        """Show every row once, to a new learner.

        Args:
            X: pictures, one per row.
            y: their labels.

        Raises:
            ValueError: for rows that are no pictures, or more classes than the model can tell apart.
        """
        return self._learn(X, y, None, anew=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> "OneShotClassifier":
        """Show further rows.

        Args:
            X: pictures, one per row.
            y: their labels, known or new.
            classes: in the first call, labels that are known in advance; others may come at any time.

        Raises:
            ValueError: as in `fit`.
        """
        return self._learn(X, y, classes, anew=not hasattr(self, "learner_"))

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of every class, in the order of `classes_`, one row per picture.

        Args:
            X: pictures, one per row.

        Raises:
            ValueError: for rows that are no pictures.
        """
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        chances = self.learner_.predict_proba_many(self._prepare(rows, self.learner_))
        labels = self.classes_.tolist()
        return np.array([[chance[label] for label in labels] for chance in chances])

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each picture.

        Args:
            X: pictures, one per row.

        Raises:
            ValueError: for rows that are no pictures.
        """
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def _learn(self, X: Any, y: Any, classes: Any, anew: bool) -> "OneShotClassifier":
        rows, labels = validate_data(self, X, y, dtype=np.float64, reset=anew)
        check_classification_targets(labels)
        known = np.unique(labels if classes is None else np.concatenate([classes, labels]))
        announced = [] if classes is None else np.unique(classes).tolist()
        learner = self._start(announced) if anew else self.learner_
        try:
            learner.learn_many(self._prepare(rows, learner), labels.tolist())
        except MannError as error:
            raise ValueError(str(error)) from None
        self.learner_ = learner
        self.classes_ = known if anew else np.union1d(self.classes_, known)
        return self

    def _start(self, labels: list[Any]) -> OneShotLearner:
        seed = int(check_random_state(self.random_state).randint(2**31))
        return OneShotLearner.from_pretrained(
            self.model, labels=labels, seed=seed, novelty=False, keep="nothing"
        )

    def _prepare(self, rows: np.ndarray, learner: OneShotLearner) -> list[Picture]:
        picture = self.picture or partial(_square, channels=learner.format.channels)
        try:
            return [learner.prepare(picture(row), f"row {place} of X") for place, row in enumerate(rows)]
        except MannError as error:
            raise ValueError(str(error)) from None


def _square(row: np.ndarray, channels: int) -> np.ndarray:
    """A row as a square picture from 0 to 1."""
    side = math.isqrt(len(row) // channels)
    if side * side * channels != len(row):
        raise ValueError(
            f"A row of {len(row)} features is no square picture of {channels} channel{'s' * (channels > 1)}: "
            "give `picture`, which makes one of a row."
        )
    low, high = row.min(), row.max()
    picture = ((row - low) / max(high - low, np.finfo(float).tiny)).reshape(side, side, channels)
    if channels == 1 and side < SIDE:
        picture = _enlarge(picture[:, :, 0])
    return picture


def _enlarge(picture: np.ndarray) -> np.ndarray:
    """A small picture as strokes with room around them: blurred ones would be taken for a photograph."""
    border = np.concatenate([picture[0], picture[-1], picture[:, 0], picture[:, -1]])
    image = Image.fromarray(picture.astype(np.float32)).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    return np.pad(np.asarray(image) > 0.5, SIDE // 8, constant_values=bool(np.median(border) > 0.5))
