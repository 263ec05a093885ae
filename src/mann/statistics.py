"""Means and proportions over episodes, with 95 % intervals."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

CONFIDENCE = 1.959964  # standard normal quantile of a 95 % interval
BANDS = {50: 0.674490, 95: CONFIDENCE}  # of a Gaussian, in %: half their width in standard deviations


class Interval(NamedTuple):
    value: float
    low: float
    high: float
    samples: int


def or_none(value: float) -> float | None:
    """The value; None for NaN, which JSON does not have."""
    return None if math.isnan(value) else value


def instances_to_json(instances: Sequence[Interval]) -> list[dict[str, Any]]:
    """Accuracy with its interval and number of samples, for the 1st, 2nd, … instance."""
    return [
        {
            "instance": number,
            "accuracy": or_none(cell.value),
            "low": or_none(cell.low),
            "high": or_none(cell.high),
            "count": cell.samples,
        }
        for number, cell in enumerate(instances, start=1)
    ]


def wilson_by_episode(
    correct: Float[np.ndarray, "episodes"], count: Float[np.ndarray, "episodes"]
) -> Interval:
    """Proportion with a 95 % interval that treats episodes, not single predictions, as independent.

    The variance of the ratio Σ correct / Σ count over episodes gives an effective number of predictions, and
    Wilson's interval for that many stays sensible near 0 and 1.
    """
    total = count.sum()
    if total == 0:
        return Interval(math.nan, math.nan, math.nan, 0)
    p = correct.sum() / total
    episodes = len(count)
    variance = np.sum((correct - p * count) ** 2) / total**2 * episodes / max(episodes - 1, 1)
    effective = min(p * (1 - p) / variance, total) if variance > 0 else total
    z2 = CONFIDENCE**2 / effective
    centre = (p + z2 / 2) / (1 + z2)
    half = CONFIDENCE / (1 + z2) * math.sqrt(p * (1 - p) / effective + z2 / (4 * effective))
    return Interval(float(p), max(0.0, float(centre - half)), min(1.0, float(centre + half)), int(total))


def mean_by_episode(values: Float[np.ndarray, "episodes time"]) -> tuple[np.ndarray, np.ndarray]:
    """Mean of every step over episodes, and half the width of its 95 % interval."""
    half = CONFIDENCE * values.std(axis=0, ddof=1) / math.sqrt(len(values))
    return values.mean(axis=0), half


def average_precision(scores: Float[np.ndarray, "n"], positives: int) -> float:
    """Area under the curve of precision over recall, where the first `positives` scores should be the highest.

    Scores that are equal count together.
    """
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(order < positives)
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))  # of each run of equal scores
    precision, recall = hits[last] / (last + 1), hits[last] / positives
    return float(np.sum(precision * np.diff(recall, prepend=0.0)))


def area_of_named(
    new: Float[np.ndarray, "n"], right: Bool[np.ndarray, "n"], known: Bool[np.ndarray, "n"]
) -> float:
    """Area under precision over recall of naming things, from the least new to the most (Ren et al. 2021).

    Args:
        new: how much each was held for something new.
        right: whether it was known, and named right.
        known: whether it was known.

    Returns:
        The area by trapezoids, from precision 1 at recall 0; NaN if nothing was known.
    """
    if not known.any():
        return math.nan
    hits = np.cumsum(right[np.argsort(new, kind="stable")], dtype=np.float64)
    precision = np.concatenate([[1.0], hits / np.arange(1, len(hits) + 1)])
    recall = np.concatenate([[0.0], hits / known.sum()])
    return float(np.sum(np.diff(recall) * (precision[1:] + precision[:-1]) / 2))
