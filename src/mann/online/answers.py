"""What the network's outputs say about the labels in use, and about something new."""

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Int
from scipy.special import expit

from mann.errors import MannError
from mann.memory import MemoryTrace
from mann.outputs import Letters
from mann.trained import Novelty

SETTLED = 1e-4  # a change of probability that ends the rounds
ROUNDS = 30  # of `explain_letters`: more do not change any probability by a per cent

Label = Hashable


class Look(NamedTuple):
    """What the network makes of a picture before it is told the label."""

    probabilities: dict[Label, float]
    """Of every label known so far, and of something new under None. They sum to 1."""
    memory: MemoryTrace | None
    """Where it read and wrote, on its device; None for a network without a memory."""
    threshold: float | None = None
    """Probability from which on this is something new; None: if no label is more probable."""

    @property
    def best(self) -> Label | None:
        """The most probable label; None if this is something new."""
        return choose_answer(self.probabilities, self.threshold)


def check_novelty(novelty: bool | float) -> None:
    """Refuse what is neither yes nor no nor a probability."""
    if not isinstance(novelty, bool) and not 0 <= novelty <= 1:
        raise MannError(f"The threshold of novelty lies between 0 and 1, not {novelty}.")


def choose_answer(probabilities: dict[Label, float], threshold: float | None) -> Label | None:
    """The most probable label; None for something new, from a threshold on or if that is more probable."""
    known = {label: chance for label, chance in probabilities.items() if label is not None}
    if threshold is None or not known:
        return max(probabilities, key=probabilities.__getitem__)
    return None if probabilities[None] >= threshold else max(known, key=known.__getitem__)


def check_cost(cost: float) -> None:
    """Refuse a cost of a request that cannot be meant."""
    if not 0 <= cost <= 1:
        raise MannError(f"The cost of a request lies between 0 and 1, where 1 is a wrong answer, not {cost}.")


def worth_asking(probabilities: dict[Label, float], cost: float) -> bool:
    """Whether the best label is wrong with a probability above the cost; always while there is no label."""
    known = [chance for label, chance in probabilities.items() if label is not None]
    return not known or 1 - max(known) > cost


def label_probabilities(
    names: Letters,
    outputs: Float32[np.ndarray, "n size"],
    encoded: Float32[np.ndarray, "labels label"],
    novelty: Novelty | None,
    familiarity: Float32[np.ndarray, "n"],
    shows: Int[np.ndarray, "labels"],
) -> Float[np.ndarray, "n labels_and_new"]:
    """Probabilities of the labels in use and, last, of something new. Every row sums to 1.

    Args:
        names: how the outputs are read.
        outputs: of the network, one row per picture.
        encoded: the labels in use, as the network sees them.
        novelty: how what the network states is read; None if nothing may be new at all.
        familiarity: of each picture, as the memory has it.
        shows: how many examples of each label there were.
    """
    code, known = names.code, len(encoded)
    logits = outputs[:, : code.size].reshape(-1, code.letters, code.alphabet).astype(np.float64)
    letters = np.exp(logits - logits.max(axis=-1, keepdims=True))
    letters /= letters.sum(axis=-1, keepdims=True)
    chances = explain_letters(letters, encoded, code.capacity)
    if 0 < known < code.capacity and (novelty is None or names.size > code.size):
        often = shows[chances[:, :-1].argmax(axis=1)]
        new = np.zeros(len(outputs))
        if novelty is not None and names.size > code.size:
            new = new_probability(outputs[:, -1], novelty, familiarity, known, often)
        total = chances[:, :-1].sum(axis=1)
        share = (1 - new) / np.where(total > 0, total, 1)
        chances = np.concatenate([share[:, None] * chances[:, :-1], new[:, None]], axis=1)
    return chances


def new_probability(
    stated: Float32[np.ndarray, "n"],
    novelty: Novelty,
    familiarity: Float32[np.ndarray, "n"],
    things: int | Int[np.ndarray, "n"],
    often: Int[np.ndarray, "n"],
) -> Float[np.ndarray, "n"]:
    """How likely something new is, for a network that states it.

    Args:
        stated: by the network of each picture, as a logarithm of odds.
        novelty: how that is read.
        familiarity: of each picture, as the memory has it.
        things: how many are known.
        often: how many examples there were of what each picture is taken for.
    """
    odds = novelty.log_odds(stated.astype(np.float64), familiarity.astype(np.float64), things, often)
    return np.asarray(expit(odds))


def unused_letters(
    encoded: Float[np.ndarray, "labels label"], alphabet: int, codes: int
) -> Float[np.ndarray, "label"]:
    """The distribution of the letters of codes that no label has.

    Every symbol is at a given place of codes / alphabet codes: less those in use, what is left for new ones.
    """
    return (codes // alphabet - encoded.sum(axis=0)) / (codes - len(encoded))


def explain_letters(
    letters: Float[np.ndarray, "n letters alphabet"],
    encoded: Float[np.ndarray, "labels label"],
    codes: int,
) -> Float[np.ndarray, "n labels_and_new"]:
    """Probabilities of the labels in use and, last, of something new, from the distribution of each letter.

    The network states every letter of the label by itself. If its probability of label k is π_k, and that of
    something new π_0, each letter has the distribution Σ_k π_k [letter of k] + π_0 [letter of a code not in
    use], so that a letter's probability is that of the label: the product over five letters would count the
    same doubt five times. The π that explain the letters best (least Kullback-Leibler divergence, summed over
    letters) are found by expectation maximisation. With one letter, this is the plain probability of each
    label, and the sum over those not in use. Where every code is in use nothing is new, and all that is to
    know is the product.
    """
    count, alphabet = letters.shape[1:]
    letters = letters.reshape(len(letters), -1)
    if len(encoded) == codes:
        products = np.exp(np.log(letters + 1e-30) @ encoded.T)
        products /= products.sum(axis=1, keepdims=True)
        return np.concatenate([products, np.zeros((len(letters), 1))], axis=1)
    unused = unused_letters(encoded, alphabet, codes)
    components = np.concatenate([encoded, unused[None]]).astype(np.float64)
    weights = np.full((len(letters), len(components)), 1 / len(components))
    moving = np.arange(
        len(letters)
    )  # rows that have not settled: each stops by itself, whatever the others do
    for _ in range(ROUNDS):
        before = weights[moving]
        mixture = np.maximum(before @ components, 1e-30)
        better = before * ((letters[moving] / mixture) @ components.T) / count
        weights[moving] = better
        moving = moving[np.abs(better - before).max(axis=1) >= SETTLED]
        if not len(moving):
            break
    return weights / weights.sum(axis=1, keepdims=True)
