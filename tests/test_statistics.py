import math

import numpy as np
import pytest
import scipy.stats

from mann.statistics import wilson_by_episode


@pytest.mark.parametrize(("right", "total"), [(0, 50), (50, 50), (13, 50), (499, 500)])
def test_interval_of_independent_predictions_is_wilsons(right, total):
    correct = np.zeros(total)
    correct[:right] = 1
    ours = wilson_by_episode(correct, np.ones(total))
    theirs = scipy.stats.binomtest(right, total).proportion_ci(0.95, method="wilson")
    assert ours.value == right / total
    assert ours.low == pytest.approx(theirs.low, abs=0.002)
    assert ours.high == pytest.approx(theirs.high, abs=0.002)


def test_interval_covers_the_truth_when_predictions_of_an_episode_agree():
    """Five predictions per episode that are all right or all wrong: the interval must not count them as five."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        correct = 5.0 * (rng.random(100) < 0.8)
        interval = wilson_by_episode(correct, np.full(100, 5.0))
        covered += interval.low <= 0.8 <= interval.high
    assert 0.92 < covered / 400 < 0.98


def test_interval_of_nothing_is_nothing():
    interval = wilson_by_episode(np.zeros(3), np.zeros(3))
    assert math.isnan(interval.value)
    assert interval.samples == 0
