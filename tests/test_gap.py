"""Where a regression model falls behind: what benchmarks/gap.py counts, and its figure."""

import importlib.util
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from mann.figures.gap import draw_gap


@pytest.fixture(scope="module")
def gap():
    spec = importlib.util.spec_from_file_location("gap", Path(__file__).parents[1] / "benchmarks/gap.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_weights_on_samples_follow_a_loop_over_steps(gap):
    random = np.random.default_rng(0)
    time, heads, slots = 9, 2, 5  # fewer slots than steps: some are taken again
    read, written = random.dirichlet(np.ones(slots), (2, time, heads)).astype(np.float32)
    expected, owner = np.zeros((time, heads, time)), {}
    for step in range(time):
        slot = int(np.argmax(written[step].sum(axis=0)))
        owner[slot] = step - 1  # the sample whose value arrives now
        for slot, sample in owner.items():
            if sample >= 0:
                expected[step, :, sample] = read[step, :, slot]
    actual = gap.on_samples(jnp.asarray(read), jnp.asarray(written))
    np.testing.assert_allclose(actual, expected, atol=1e-6)
    assert (expected.sum(axis=(0, 1)) > 0).any()


def test_means_are_taken_between_edges(gap):
    values, of = np.repeat([0.5, 1.5, 1.7, 5.0], 100), np.repeat([1.0, 2.0, 4.0, 9.0], 100)
    assert gap.means(values, [0, 1, 2, 3, 9], of) == [
        (0.5, 1.0),
        (pytest.approx(1.6), 3.0),
        (5.0, 9.0),
    ]


def test_the_figure_shows_every_number_in_its_panel():
    part = {
        "gap": 0.05,
        "by_step": [(2, 0.01), (3, 0.02)],
        "by_distance": [(0.01, 0.03), (0.4, 0.09)],
        "by_count": [(4.0, 0.08), (12.0, 0.02)],
        "by_rank": [[(1, 0.2), (2, 0.1)], [(1, 0.05), (2, 0.04)]],
        "read_by_distance": [[(0.1, 0.3), (1.0, 0.1)], [(0.1, 0.06), (1.0, 0.02)]],
        "oracles": [(2, 0.2, 0.3), (4, 0.0, 0.25)],
    }
    figure = draw_gap({1: part, 2: part})
    shown = [
        [np.asarray(line.get_ydata()).tolist() for line in axes.get_lines() if len(line.get_xdata())]
        for axes in figure.axes
    ]
    assert shown[0] == 2 * [[0.01, 0.02]]
    assert shown[1] == 2 * [[0.03, 0.09]]
    assert shown[2] == 2 * [[0.08, 0.02]]
    assert shown[3] == [[20.0, 10.0], [5.0, 4.0]]
    assert shown[4] == [[30.0, 10.0], [6.0, 2.0]]
    assert shown[5] == 2 * [[0.2, 0.0], [0.3, 0.25], [0.05, 0.05]]
    assert all(axes.get_xlabel() and axes.get_ylabel() and axes.get_title(loc="left") for axes in figure.axes)
