"""Taught once: how many things a learner knows after one example of each, and whether it can tell what is new."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from mann.data import DataConfig, choose_data
from mann.data.images import ImageSet
from mann.data.render import downscale
from mann.data.seen import unseen_images
from mann.errors import MannError, check_range
from mann.online import Label, OneShotLearner, Prepared
from mann.statistics import Interval, average_precision, wilson_by_episode
from mann.trained import Trained, load_trained, with_slots

QUESTIONS = 2000  # about as many for every number of things, unless told otherwise
LEAST_TRIALS = 10
MOST_TRIALS = 10_000


class TaughtOnce(NamedTuple):
    """What a learner knew of a number of things, each shown once and asked once, by another drawing."""

    things: int
    answered: Interval  # right, as `predict_one` answers
    forced: Interval  # right, where "something new" was no answer
    nearest: Interval  # right, if the thing nearest in the network's embedding (by cosine) were the answer
    area: float | None  # under precision over recall of known against new; None without new things

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, accuracies between 0 and 1: what `mann eval --teach-once --json` writes."""
        return {
            "things": self.things,
            "accuracy": self.answered.value,
            "low": self.answered.low,
            "high": self.answered.high,
            "accuracy_forced": self.forced.value,
            "low_forced": self.forced.low,
            "high_forced": self.forced.high,
            "accuracy_nearest": self.nearest.value,
            "area_known_new": self.area,
            "questions": self.answered.samples,
        }


def teach_once(
    model: str | Path | Trained,
    things: Sequence[int] = (5, 20, 100, 423),
    *,
    dataset: str | DataConfig = "",
    alphabets: Literal["across", "within"] = "across",
    slots: int = 0,
    trials: int = 0,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[TaughtOnce]:
    """Show a learner some things once, then ask about each by another drawing of it, without augmentation.

    In every trial the learner forgets all, and the things are drawn anew from classes that the network has never
    met. As many drawings of classes that were not taught are asked as well, as far as there are any.

    Args:
        model: a shipped name, a run folder or a file of weights; or what `load_trained` returned.
        things: how many to teach, for each row of the result.
        dataset: as in `evaluate`.
        alphabets: across: things of all alphabets. Within: in every trial of one that has so many, where they
            resemble each other.
        slots: of the memory; 0 for as many as in training.
        trials: for each number of things; 0 for about 2000 questions, and at least ten trials.
        seed: which things, drawings and codes of labels.
        progress: called with how many trials are done, and how many there are.

    Returns:
        One result per number of things, with 95 % intervals over trials.
    """
    trained = model if isinstance(model, Trained) else load_trained(model)
    trained = with_slots(trained, slots) if slots else trained
    config = trained.config
    data = choose_data(dataset, config.data)
    learner = OneShotLearner(trained)
    images, _ = unseen_images(data, config.data, trained.seen, trained.name)
    check_range("The number of trials", trials, 0, MOST_TRIALS)
    groups = _alphabets(images) if alphabets == "within" else [np.arange(len(images))]
    most = min(max(map(len, groups)), learner.capacity)
    for count in things:
        check_range("The number of things to teach", count, 1, most)
    if int(images.counts.min()) < 2:
        raise MannError(
            f"A class of {images.name!r} has one drawing only: two are needed, to show and to ask."
        )
    counts = [trials or max(LEAST_TRIALS, -(-QUESTIONS // count)) for count in things]
    results, done = [], 0
    for count, rounds in zip(things, counts, strict=True):
        rng = np.random.default_rng([seed, count])
        answers = []
        for _ in range(rounds):
            large = [group for group in groups if len(group) >= count]
            classes = rng.permutation(large[rng.integers(len(large))] if len(large) > 1 else large[0])
            answers.append(_trial(learner, images, classes, count, rng))
            done += 1
            progress(done, sum(counts))
        results.append(_summarise(count, answers))
    return results


class _Answers(NamedTuple):
    answered: Bool[np.ndarray, "things"]  # whether each answer was right
    forced: Bool[np.ndarray, "things"]
    nearest: Bool[np.ndarray, "things"]
    known: Float[np.ndarray, "things"]  # how likely each thing taught was held to be known
    others: Float[np.ndarray, "others"]  # and each that was not


def _alphabets(images: ImageSet) -> list[Int[np.ndarray, "classes"]]:
    """The classes of each alphabet."""
    if not images.alphabets:
        raise MannError(f"The classes of {images.name!r} have no alphabets: leave alphabets out.")
    names = np.asarray(images.alphabets)
    return [np.flatnonzero(names == name) for name in dict.fromkeys(images.alphabets)]


def _trial(
    parent: OneShotLearner,
    images: ImageSet,
    classes: Int[np.ndarray, "classes"],
    things: int,
    rng: np.random.Generator,
) -> _Answers:
    """Teach the first of these classes and ask about them and, as far as there are any, about as many others."""
    taught, others = classes[:things], classes[things : 2 * things]
    pairs = [rng.permutation(images.counts[c])[:2] for c in taught]
    learner = parent.sibling(seed=int(rng.integers(2**31)))
    labels: list[Label] = list(range(things))
    side = learner.format.side
    shown = [prepared(images, c, pair[0], side) for c, pair in zip(taught, pairs, strict=True)]
    asked = [prepared(images, c, pair[1], side) for c, pair in zip(taught, pairs, strict=True)]
    strange = [prepared(images, c, rng.integers(images.counts[c]), side) for c in others]
    learner.learn_many(shown, labels)
    chances = learner.predict_proba_many([*asked, *strange])
    answers = [learner.choose(chance) for chance in chances[:things]]
    forced = [max(labels, key=lambda label: chance[label]) for chance in chances[:things]]
    known = 1 - np.array([chance[None] for chance in chances])
    keys, queries = learner.embed(shown), learner.embed(asked)
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    nearest = np.argmax(queries @ keys.T, axis=1)
    return _Answers(
        np.array([answer == label for answer, label in zip(answers, labels, strict=True)]),
        np.array([answer == label for answer, label in zip(forced, labels, strict=True)]),
        nearest == np.arange(things),
        known[:things],
        known[things:],
    )


def picture_of(images: ImageSet, number: int | np.integer, drawing: int | np.integer) -> np.ndarray:
    return images.images[number, drawing] * np.uint8(255 // images.ink)


def prepared(images: ImageSet, number: int | np.integer, drawing: int | np.integer, side: int) -> Prepared:
    """A picture of a data set as a network sees it: it has its form already, so nothing is looked for in it."""
    picture = picture_of(images, number, drawing)
    return Prepared(downscale(picture, side, images.has_paper), picture)


def _summarise(things: int, answers: list[_Answers]) -> TaughtOnce:
    count = np.full(len(answers), float(things))
    answered, forced, nearest = (
        wilson_by_episode(np.array([getattr(answer, name).sum() for answer in answers], float), count)
        for name in ("answered", "forced", "nearest")
    )
    known, others = (
        np.concatenate([getattr(answer, name) for answer in answers]) for name in ("known", "others")
    )
    area = average_precision(np.concatenate([known, others]), len(known)) if len(others) else None
    return TaughtOnce(things, answered, forced, nearest, area)
