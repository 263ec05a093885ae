"""Figures are looked at through matplotlib's own objects: axes, lines and texts, with their values."""

import os
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from mann.data.images import ImageSet
from mann.figures.episode import draw_episode, draw_memory
from mann.figures.experiments import (
    NETWORKS,
    Series,
    draw_capacity,
    draw_comparison,
    draw_coverage,
    draw_functions,
    draw_learning,
    draw_likelihood,
)
from mann.figures.run import draw_curves, save_curves
from mann.figures.sheet import draw_sheet
from mann.figures.style import INSTANCES, save
from mann.memory import MemoryTrace
from mann.tasks import Classification
from mann.text import ordinal
from mann.training.run import Run
from tests.training.tiny import TINY

ACCURACY = [0.2, 0.5, 0.6, 0.7, 0.75, 0.8, 0.8, 0.8, 0.8, None]
METRICS = [
    {"update": 10, "episodes": 160, "loss": 2.0, "held_out_loss": 1.9, "accuracy": [0.1] * 10},
    {"update": 20, "episodes": 320, "loss": 1.5, "held_out_loss": 1.4, "accuracy": ACCURACY},
]


def instances(accuracy, half=0.01):
    return [{"accuracy": accuracy, "low": accuracy - half, "high": accuracy + half} for _ in range(10)]


def lines(axes):
    """Values of y by label; lines without a label are left out."""
    return {
        line.get_label(): list(line.get_ydata()) for line in axes.get_lines() if line.get_label()[0] != "_"
    }


UNTOUCHED = """
import sys
import matplotlib
settings, backend = matplotlib.rcParams.copy(), matplotlib.get_backend(auto_select=False)
import mann
from pathlib import Path
mann.train, mann.evaluate
from mann.figures import episode, experiments, run, sheet, style
figure = run.draw_curves([{"episodes": 1, "loss": 1.0, "held_out_loss": 1.0}], 1)
style.save(figure, Path(sys.argv[1]), "curves")
assert matplotlib.rcParams.copy() == settings
assert matplotlib.get_backend(auto_select=False) == backend, backend
assert "matplotlib.pyplot" not in sys.modules
"""


def test_drawing_leaves_matplotlib_as_it_was(tmp_path):
    """A notebook that has chosen no backend yet, nor imported pyplot, is still free to."""
    environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    command = [sys.executable, "-c", UNTOUCHED, str(tmp_path)]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert (tmp_path / "curves.png").exists()


def test_a_figure_is_saved_twice_with_the_same_bytes_each_time(tmp_path):
    paths = save(draw_curves(METRICS, 16), tmp_path / "one", "curves")
    again = save(draw_curves(METRICS, 16), tmp_path / "two", "curves")
    assert [path.name for path in paths] == ["curves.png", "curves.svg"]
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]
    with Image.open(paths[0]) as picture:
        assert picture.size == (1050, 630)
    assert b"<dc:date>" not in paths[1].read_bytes()


def test_curves_are_the_accuracies_of_a_run(tmp_path):
    (axes,) = draw_curves(METRICS, 16).axes
    values = lines(axes)
    assert list(values) == ["1st", "2nd", "3rd", "4th", "5th", "10th"]
    assert values["2nd"] == [10.0, 50.0]
    assert np.isnan(values["10th"][1])
    assert list(axes.get_lines()[0].get_xdata()) == [160, 320]
    assert axes.get_xlabel() == "Episodes (16 in an update)"
    with Run(tmp_path) as run:
        run.create(TINY, devices=1)
        assert save_curves(tmp_path) == []
        for record in METRICS:
            run.record(record)
    assert save_curves(tmp_path) == [tmp_path / "figures" / "curves.png", tmp_path / "figures" / "curves.svg"]


def test_curves_of_regression_are_its_losses():
    records = [{key: value for key, value in record.items() if key != "accuracy"} for record in METRICS]
    (axes,) = draw_curves(records, 16).axes
    assert lines(axes) == {"held-out functions": [1.9, 1.4], "training": [2.0, 1.5]}
    assert "log-likelihood" in axes.get_ylabel()


def test_learning_shows_training_then_the_test():
    record = {
        "metrics": METRICS,
        "evaluations": [{"instances": instances(0.9)}],
        "config": {"curriculum": {"every": 5, "start": 3}, "batch": 16, "task": {"classes": 5}},
    }
    figure = draw_learning([("one", record), ("two", record), ("three", record)])
    assert [axes.get_title(loc="left") for axes in figure.axes if axes.get_visible()] == [
        "one",
        "two",
        "three",
    ]
    axes = figure.axes[0]
    assert lines(axes)["2nd"] == [10.0, 50.0]
    tests = [line for line in axes.get_lines() if min(line.get_xdata()) > 320 and line.get_linestyle() == "-"]
    assert [list(line.get_ydata()) for line in tests] == [[90.0, 90.0]] * len(INSTANCES)
    (top,) = axes.child_axes
    assert [tick.get_text() for tick in top.get_xticklabels()] == ["3", "4", "5"]
    assert list(top.get_xticks()) == [0, 80, 160]


def test_comparison_has_a_line_for_ours_and_one_for_the_paper():
    both, human = Series("MANN, LSTM", [40.0, 90.0], [36.0, 83.0]), Series("Human", None, [34.0, 57.0])
    figure = draw_comparison([("task", [both, human])], (1, 2))
    (axes,) = figure.axes
    by_style = [(line.get_linestyle(), list(line.get_ydata()), line.get_color()) for line in axes.get_lines()]
    blue, dark = NETWORKS["MANN, LSTM"], NETWORKS["Human"]
    assert by_style == [
        ("--", [36.0, 83.0], blue),
        ("-", [40.0, 90.0], blue),
        ("--", [34.0, 57.0], dark),
    ]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1st", "2nd"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "MANN, LSTM",
        "Human",
        "ours",
        "paper",
    ]


def test_capacity_is_drawn_as_the_mean_of_runs_with_a_band():
    runs = [[{"instances": instances(a), "classes": n} for n in (50, 60)] for a in (0.9, 0.8)]
    (axes,) = draw_capacity(runs).axes
    for line in axes.get_lines():
        assert line.get_xydata() == pytest.approx(np.array([[50, 85], [60, 85]]))
    heights = [band.get_paths()[0].get_extents().intervaly for band in axes.collections]
    assert heights == [pytest.approx([79, 91])] * len(axes.get_lines())  # made up: an interval of ±1


def test_functions_are_drawn_for_network_and_process():
    prediction = {"mean": [0.0, 1.0], "scale": [0.5, 0.25]}
    function = {"seen": {"x": [0.1], "y": [0.3]}, "truth": [0.2, 0.8], "model": prediction, "gp": prediction}
    figure = draw_functions({"x": [-1.0, 1.0], "samples": 1, "shown": [function, function]})
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == [f"{who}, test function {i}" for who in ("MANN", "Exact GP") for i in (1, 2)]
    for axes in figure.axes:
        assert [list(line.get_ydata()) for line in axes.get_lines()] == [[0.0, 1.0], [0.2, 0.8]]
        band, seen = axes.collections
        assert band.get_paths()[0].get_extents().intervaly == pytest.approx([-1.0, 1.5])  # ± two sigma
        assert seen.get_offsets().tolist() == [[0.1, 0.3]]


def test_likelihood_and_coverage_are_drawn_by_step():
    test = {
        "nll": {"model": [1.4, 0.9], "gp": [1.3, 0.5]},
        "half_width": {"model": [0.1, 0.1], "gp": [0.1, 0.1]},
        "coverage": {band: {"model": [0.4, 0.5], "gp": [0.5, 0.6]} for band in ("50", "95")},
    }
    panels = [("1 dimension", {"MANN": test, "LSTM": test}), ("2 dimensions", {"MANN": test})]
    figure = draw_likelihood(panels)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["1 dimension", "2 dimensions"]
    assert lines(figure.axes[0]) == {"MANN": [1.4, 0.9], "LSTM": [1.4, 0.9], "Exact GP": [1.3, 0.5]}
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["MANN", "LSTM", "Exact GP"]
    figure = draw_coverage(panels)
    assert lines(figure.axes[1]) == {"MANN": [40.0, 50.0], "Exact GP": [50.0, 60.0]}  # once for both bands
    assert sum(list(line.get_ydata()) == [40.0, 50.0] for line in figure.axes[1].get_lines()) == 2


def test_an_episode_shows_guesses_under_pictures():
    rng = np.random.default_rng(0)
    pictures = rng.random((12, 20, 20)).astype(np.float32)
    number = np.array([1, 2] + [3] * 10)
    correct = np.array([False, True] + [False] * 10)
    figure = draw_episode(pictures, number, correct, ["7"] * 12, ["8"] * 12)
    assert len(figure.axes) == 20  # two rows of ten, the last eight empty
    texts = [axes.texts[0].get_text() for axes in figure.axes[:12]]
    assert texts == ["new  7 → 8", "✓  7"] + ["✗  7 → 8"] * 10
    assert not any(axes.texts for axes in figure.axes[12:])
    np.testing.assert_allclose(figure.axes[3].images[0].get_array(), 1 - pictures[3])


def test_labels_are_named_by_the_tasks_code_not_by_their_size():
    def names(task, encoded):
        return [task.label_code.name(int(code)) for code in task.label_code.decode(encoded)]

    one_hot = jnp.eye(25)[jnp.array([7, 24])]  # as long as an encoded string
    assert names(Classification(classes=25), one_hot) == ["8", "25"]
    strings = jnp.eye(5)[jnp.array([[0, 1, 2, 3, 4], [4, 4, 0, 0, 1]])].reshape(2, 25)
    assert names(Classification(classes=2, labels="strings"), strings) == ["abcde", "eeaab"]


def test_the_memory_is_shown_by_slot_and_step():
    write = np.zeros((6, 2, 40))
    write[np.arange(6), :, np.arange(6)] = 0.5  # step after step, slot after slot
    read, usage = np.full((6, 2, 40), 0.025), np.zeros((6, 40))
    figure = draw_memory(np.array([3, 3, 1, 9, 1, 3]), MemoryTrace(read, write, usage, np.zeros((6, 40, 4))))
    panels = [axes for axes in figure.axes if axes.get_title(loc="left")]
    assert [axes.get_title(loc="left").split()[0] for axes in panels] == ["Written", "Read", "Usage"]
    np.testing.assert_array_equal(panels[0].images[0].get_array(), write.sum(1).T[:11])  # the rest is unused
    labels = [tick.get_text().split("\n")[1] for tick in panels[-1].get_xticklabels()]
    assert labels == ["A", "A", "B", "C", "B", "A"]
    without = draw_memory(np.array([1]), MemoryTrace(read[:1], write[:1], None, np.zeros((1, 40, 4))))
    assert sum(bool(axes.get_title(loc="left")) for axes in without.axes) == 2


def test_of_a_large_memory_the_most_used_slots_are_drawn_by_their_numbers():
    write = np.zeros((6, 2, 5000))
    write[np.arange(6), :, 900 * np.arange(6)] = 0.5
    read = np.zeros((6, 2, 5000))
    read[:, :, 4999] = 0.9
    figure = draw_memory(np.arange(6), MemoryTrace(read, write, None, np.zeros((6, 5000, 1))))
    drawn = figure.axes[0].images[0].get_array()
    assert drawn.shape == (128, 6)
    np.testing.assert_array_equal(np.sort(drawn.max(axis=1))[-6:], 1)  # all six that were written
    assert figure.axes[0].get_ylabel() == "Slot (128 of 5000, the most used)"
    assert figure.axes[0].get_yticklabels()[-1].get_text() == "4999"


def test_a_sheet_has_the_drawings_on_its_left():
    bitmaps = (np.random.default_rng(1).random((2, 3, 105, 105)) < 0.1).astype(np.uint8)
    images = ImageSet("noise", bitmaps, np.array([3, 3]), ("a", "b"))
    sheet = np.asarray(draw_sheet(images, rows=5, columns=2, seed=3))
    assert sheet.shape == (2 * 110 + 5, 2 * (2 * 110 + 5) + 20)  # no more rows than classes
    for row, drawings in enumerate(bitmaps):
        for column in range(2):
            top, left = 5 + 110 * row, 5 + 110 * column
            cell = sheet[top : top + 105, left : left + 105] < 128
            assert any((cell == drawing).all() for drawing in drawings)


def test_ordinals():
    expected = ["1st", "2nd", "3rd", "4th", "10th", "11th", "12th", "13th", "21st", "102nd", "111th"]
    assert [ordinal(int(text[:-2])) for text in expected] == expected
