"""Known or new: how often a learner says so, and how it is told to."""

import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy import optimize, sparse
from scipy.special import expit

from mann.data.images import ImageSet
from mann.data.seen import unseen_images
from mann.online import Label, OneShotLearner, Prepared
from mann.statistics import Interval, wilson_by_episode
from mann.teaching.once import QUESTIONS, prepared
from mann.trained import Novelty, Trained

MOST_QUESTIONS = 50  # about known things, in one trial
TRIALS = (20, 400)  # at least and at most, for a number of things
THINGS = (1, 2, 5, 10, 20, 50, 100)
SHOWS = (1, 2, 3, 5, 8)  # examples of a thing
MISTAKES = 0.02  # of the known, called new on held-out classes


class NoveltyRates(NamedTuple):
    """What a learner called new, of things that it knew and of things that it did not."""

    things: int
    shows: int
    """Examples of each thing."""
    new: Interval | None
    """Of pictures of things never taught; None if there was no other thing."""
    known: Interval
    """Of other pictures of what was taught: mistakes."""
    right: Interval
    """Of the same pictures, those that were given their own label."""


def novelty_rates(
    trained: Trained,
    things: Sequence[int] = THINGS,
    shows: Sequence[int] = (1, 3),
    *,
    held_out: bool = False,
    questions: int = QUESTIONS,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[NoveltyRates]:
    """How often "something new" is the answer, by the number of things known and of examples of each.

    Args:
        trained: a network that names things.
        things: how many are taught.
        shows: how many examples of each.
        held_out: on the classes held out from training, for tuning; else on classes never used before.
        questions: about known things, and about others, for each row.
        seed: which things, drawings and codes of labels.
        progress: called with how many rows are done, and how many there are.

    Returns:
        One result per number of things and of shows, with 95 % intervals over trials.
    """
    if held_out:
        images = _held_out(trained)
    else:
        images, _ = unseen_images(trained.config.data, trained.config.data, trained.seen, trained.name)
    learner, results = OneShotLearner(trained), []
    prepare = _Pictures(learner, images)
    rows = [(count, often) for often in shows for count in things if count <= len(images)]
    for done, (count, often) in enumerate(rows):
        progress(done, len(rows))
        rng = np.random.default_rng([seed, count, often])
        asked = [
            _ask(learner, prepare, count, [often] * count, rng) for _ in range(_trials(count, questions))
        ]
        results.append(_rates(count, often, asked, learner))
    progress(len(rows), len(rows))
    return results


def _rates(things: int, shows: int, asked: "list[_Asked]", learner: OneShotLearner) -> NoveltyRates:
    def share(counts: list[tuple[int, int]]) -> Interval:
        hits, totals = np.array(counts, float).T
        return wilson_by_episode(hits, totals)

    answers = [[learner.choose(chance) for chance in one.chances] for one in asked]
    known = [
        (sum(answer is None for answer in row[: len(one.labels)]), len(one.labels))
        for row, one in zip(answers, asked, strict=True)
    ]
    right = [
        (sum(map(operator.eq, row, one.labels)), len(one.labels))
        for row, one in zip(answers, asked, strict=True)
    ]
    new = [
        (sum(answer is None for answer in row[len(one.labels) :]), len(row) - len(one.labels))
        for row, one in zip(answers, asked, strict=True)
    ]
    return NoveltyRates(things, shows, share(new) if new[0][1] else None, share(known), share(right))


def calibrate_novelty(
    trained: Trained,
    *,
    things: Sequence[int] = THINGS,
    mistakes: float = MISTAKES,
    questions: int = 4000,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Novelty:
    """How a learner with this network should tell what is new, found on the classes held out from training.

    How much what the network states counts, and how much likeness, is a logistic regression on known things against
    new ones. What is usual depends on the number of things and on how often the one that a picture is taken for was
    shown: the limit above which only so many of the known things lie, by quantile regression. At even odds, the
    threshold, a learner calls that share of what it knows new, whatever it knows.

    Args:
        trained: a network that states how likely it is that something is new.
        things: numbers of things; those that the held-out classes allow.
        mistakes: the share of known things that may be called new; other classes than those held out may be
            harder, so that it is less than one would put up with.
        questions: about known things, for each number.
        seed: which things, drawings and codes of labels.
        progress: called with how many numbers of things are done, and how many there are.

    Raises:
        MannError: if no class was held out.
    """
    images = _held_out(trained)
    learner = OneShotLearner(trained)
    prepare = _Pictures(learner, images)
    counts = [count for count in things if count <= len(images)]
    asked = []
    for done, count in enumerate(counts):
        progress(done, len(counts))
        rng = np.random.default_rng([seed, count])
        for trial in range(_trials(count, questions)):  # shown equally often, or each as it comes
            shows = rng.choice(SHOWS, count) if trial % 2 else np.full(count, rng.choice(SHOWS))
            asked.append(_ask(learner, prepare, count, shows.tolist(), rng))
    progress(len(counts), len(counts))
    return fit_novelty(
        np.concatenate([one.numbers for one in asked]),
        np.concatenate([one.is_known for one in asked]),
        mistakes,
    )


def fit_novelty(
    numbers: Float[np.ndarray, "questions 4"],
    known: Bool[np.ndarray, "questions"],
    mistakes: float = MISTAKES,
) -> Novelty:
    """Weights of what the network states and of likeness, and what is usual.

    Args:
        numbers: of every question, what the network states, the likeness, the number of things, and the examples of
            the one that it was taken for.
        known: which of them were known.
        mistakes: the share of known ones that may be called new.
    """
    stated, alike, things, shows = numbers.T
    much, often, again = np.log(things), np.log(shows), shows > 1
    usual = np.stack([np.ones_like(much), much, often, much * often], axis=1)
    # Every number of things and of shows counts the same, and so do known and new ones.
    groups = np.unique(np.stack([things, shows, known], axis=1), axis=0, return_inverse=True)[1].ravel()
    weights = 1 / np.bincount(groups)[groups]
    statistics = np.stack([stated, alike], axis=1)
    useful = np.ptp(statistics, axis=0) > 0  # a memory without a likeness says the same of all
    factors = np.zeros(2)
    signs = [sign for sign, use in zip(((0.0, None), (None, 0.0)), useful, strict=True) if use]
    expected = np.hstack([statistics[:, useful], usual, again[:, None] * usual[:, :2]])
    factors[useful] = _logistic(expected, ~known, weights, signs)[: len(signs)]
    scores = statistics @ factors

    def limits(which: Bool[np.ndarray, "questions"], terms: list[int]) -> list[float]:
        return _quantile(usual[which][:, terms], scores[which], 1 - mistakes, weights[which]).tolist()

    # Things shown once are judged by a line through all: by themselves they are too few for so rare a mistake.
    # Of those shown more often, what is usual hardly depends on the number of things.
    start, slope, _, _ = limits(known, [0, 1, 2, 3])
    again_start, again_slope, more = start, slope, 0.0
    if (known & again).any():
        again_start, more = limits(known & again, [0, 2])
        again_slope = 0.0
    found = Novelty(
        stated=float(factors[0]),
        alike=float(factors[1]),
        constant=-start,
        things=-slope,
        shows=-more,
        again=start - again_start,
        again_things=slope - again_slope,
    )
    return Novelty(*(round(number, 4) for number in found))


def _logistic(
    inputs: Float[np.ndarray, "n d"],
    target: Bool[np.ndarray, "n"],
    weights: Float[np.ndarray, "n"],
    signs: Sequence[tuple[float | None, float | None]],
) -> Float[np.ndarray, "d"]:
    """Coefficients of a weighted logistic regression, with next to no penalty; the first ones within bounds."""
    sign = np.where(target, -1.0, 1.0)

    def loss(coefficients: np.ndarray) -> tuple[float, np.ndarray]:
        margin = sign * (inputs @ coefficients)
        value = weights @ np.logaddexp(0, margin) + 1e-6 * coefficients @ coefficients
        return float(value), inputs.T @ (weights * sign * expit(margin)) + 2e-6 * coefficients

    bounds = [*signs, *[(None, None)] * (inputs.shape[1] - len(signs))]
    options = {"maxiter": 10_000, "ftol": 1e-12, "gtol": 1e-10}
    found = optimize.minimize(
        loss, np.zeros(inputs.shape[1]), jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )
    return np.asarray(found.x)


def _quantile(
    inputs: Float[np.ndarray, "n d"],
    values: Float[np.ndarray, "n"],
    share: float,
    weights: Float[np.ndarray, "n"],
) -> Float[np.ndarray, "d"]:
    """Coefficients of a line under which this share of the values lies, by weight, whatever the inputs."""
    count, size = inputs.shape
    residuals = sparse.hstack([sparse.csc_array(inputs), sparse.eye_array(count), -sparse.eye_array(count)])
    found = optimize.linprog(
        np.concatenate([np.zeros(size), share * weights, (1 - share) * weights]),
        A_eq=residuals,
        b_eq=values,
        bounds=[(None, None)] * size + [(0, None)] * (2 * count),
        method="highs",
    )
    return np.asarray(found.x[:size])


def _trials(things: int, questions: int) -> int:
    """For about so many questions about known things."""
    return int(np.clip(-(-questions // min(things, MOST_QUESTIONS)), *TRIALS))


class _Asked(NamedTuple):
    labels: list[Label]  # of the questions about known things, which come first
    chances: list[dict[Label, float]]
    numbers: Float[np.ndarray, "questions 4"]  # what the network states, likeness, things, shows

    @property
    def is_known(self) -> Bool[np.ndarray, "questions"]:
        return np.arange(len(self.chances)) < len(self.labels)


class _Pictures:
    """Drawings as the network sees them, each prepared once."""

    def __init__(self, learner: OneShotLearner, images: ImageSet) -> None:
        self.counts = images.counts
        self._learner, self._images = learner, images
        self._prepared: dict[tuple[int, int], Prepared] = {}

    def __call__(self, number: int | np.integer, drawing: int | np.integer) -> Prepared:
        place = int(number), int(drawing)
        if place not in self._prepared:
            self._prepared[place] = prepared(self._images, number, drawing, self._learner.format.side)
        return self._prepared[place]


def _ask(
    parent: OneShotLearner,
    prepare: _Pictures,
    things: int,
    shows: Sequence[int],
    rng: np.random.Generator,
) -> _Asked:
    """Teach things in random order, then ask about other drawings of some of them and about as many others."""
    classes = rng.permutation(len(prepare.counts))
    drawings = [rng.permutation(prepare.counts[c]) for c in classes[:things]]
    learner = parent.sibling(seed=int(rng.integers(2**31)))
    examples = [(thing, drawings[thing][show]) for thing in range(things) for show in range(shows[thing])]
    taught = [examples[place] for place in rng.permutation(len(examples))]
    asked = rng.permutation(things)[:MOST_QUESTIONS]
    others = classes[things : things + len(asked)]
    learner.learn_many(
        [prepare(classes[thing], drawing) for thing, drawing in taught], [t for t, _ in taught]
    )
    questions = [prepare(classes[thing], drawings[thing][-1]) for thing in asked]
    questions += [prepare(c, rng.integers(prepare.counts[c])) for c in others]
    chances, outputs = learner.predict_with_outputs(questions)
    best = [
        max((label for label in chance if label is not None), key=chance.__getitem__) for chance in chances
    ]
    often = [shows[int(str(label))] for label in best]
    numbers = np.stack([outputs[:, -2], outputs[:, -1], np.full(len(best), things), often], axis=1)
    return _Asked(asked.tolist(), chances, numbers.astype(float))


def _held_out(trained: Trained) -> ImageSet:
    data = trained.config.data
    images = data.load()
    parts = data.divide(len(images))
    return images.subset(parts.train, parts.validation)
