"""Pictures: a sheet of drawings, curves of a run, an episode with its predictions, the memory at work."""

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from PIL import Image

from mann.data.images import ImageSet
from mann.data.render import SIZE, Transform, prepare, random_transform, render
from mann.episodes import Episode, string_of
from mann.errors import MannError
from mann.memory import MemoryTrace

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D

plt.rcParams["svg.hashsalt"] = "mann"  # the same names in every SVG file of the same picture
RIGHT, WRONG, FIRST = "#1b7f4d", "#c0392b", "#6b7280"  # readable on white
NETWORKS = {
    "MANN": "#1d4ed8",
    "MANN, LSTM": "#1d4ed8",
    "MANN (NTM access), LSTM": "#6d28d9",
    "MANN, feed-forward": "#0e7490",
    "LSTM": "#c2410c",
    "Feed-forward": "#6b7280",
    "kNN (deep features)": "#1b7f4d",
    "kNN (raw pixels)": "#b58900",
    "Human": "#111827",
}
EXACT = "#1b7f4d"  # the Gaussian process
CURVES = ((1, "#6b7280"), (2, "#c2410c"), (3, "#b58900"), (4, "#1b7f4d"), (5, "#1d4ed8"), (10, "#6d28d9"))


def draw_sheet(images: ImageSet, path: Path, rows: int, columns: int, seed: int = 0) -> None:
    """Random classes, one a row: drawings on the left, augmented inputs of the network on the right."""
    rng = np.random.default_rng(seed)
    rows = min(rows, len(images))
    classes = np.sort(rng.choice(len(images), rows, replace=False))
    drawings = np.stack([rng.permuted(np.arange(columns) % images.counts[c]) for c in classes])
    chosen = ImageSet(images.name, images.images[classes], images.counts[classes], (), images.ink)
    rotation, shift = random_transform(jax.random.uniform(jax.random.key(seed), (rows * columns, 3)))
    quarter = jnp.asarray(np.repeat(rng.integers(0, 4, rows), columns))
    small = render(
        prepare(chosen).grids,
        jnp.asarray(np.repeat(np.arange(rows), columns)),
        jnp.asarray(drawings.reshape(-1)),
        Transform(rotation, shift, quarter),
    )
    gap = 5
    source = chosen.images[np.arange(rows)[:, None], drawings] / images.ink
    enlarged = np.kron(np.asarray(small).reshape(rows, columns, SIZE, SIZE), np.ones((5, 5)))
    left = _tile(source, gap)
    right = _tile(np.pad(enlarged, ((0, 0), (0, 0), (2, 3), (2, 3))), gap)
    between = np.full((left.shape[0], 4 * gap), 0.6)
    ink = np.concatenate([left, between, right], axis=1)
    save_atomically(path, Image.fromarray((255 * (1 - ink)).astype(np.uint8)))


def _tile(pictures: np.ndarray, gap: int) -> np.ndarray:
    """(rows, columns, side, side) to one picture with grey lines between."""
    rows, columns, side, _ = pictures.shape
    sheet = np.full((rows * (side + gap) + gap, columns * (side + gap) + gap), 0.15)
    for i in range(rows):
        for j in range(columns):
            top, left = gap + i * (side + gap), gap + j * (side + gap)
            sheet[top : top + side, left : left + side] = pictures[i, j]
    return sheet


def draw_curves(records: list[dict[str, Any]], batch: int, folder: Path) -> list[Path]:
    """`curves.png` and `curves.svg`: accuracy by instance while training, as in the paper's Figure 2."""
    episodes = [r["episodes"] for r in records]
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    if "accuracy" in records[0]:
        _plot_instances(axes, records)
        axes.set_ylabel("Accuracy on held-out classes (%)")
        axes.legend(title="Instance", loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    else:
        axes.plot(
            episodes, [r["held_out_loss"] for r in records], label="held-out functions", color="#1d4ed8"
        )
        axes.plot(episodes, [r["loss"] for r in records], label="training", linewidth=1, color="#6b7280")
        axes.set_ylabel("Negative log-likelihood (nats per point)")
        axes.legend(frameon=False)
    axes.set_xlabel(f"Episodes ({batch} in an update)")
    axes.set_xlim(left=0)
    _tidy(axes)
    return _save(figure, folder, "curves")


def _plot_instances(axes: Axes, records: list[dict[str, Any]]) -> None:
    episodes = [r["episodes"] for r in records]
    for instance, colour in CURVES:
        values = [r["accuracy"][instance - 1] for r in records]
        percent = [np.nan if v is None else 100 * v for v in values]
        axes.plot(episodes, percent, color=colour, label=ordinal(instance), linewidth=1.6)
    axes.set_ylim(0, 100)


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def draw_learning(panels: list[tuple[str, dict[str, Any]]], folder: Path, name: str) -> list[Path]:
    """A panel a run: accuracy by instance while training, then, right of the line, the test on unseen classes.

    A panel is a title and a record of a run (`experiments.entries`).
    """
    if not panels:
        return []
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(1 + 5 * columns, 0.6 + 3.3 * rows), layout="constrained", squeeze=False
    )
    for axes in np.ravel(grid)[len(panels) :]:
        axes.set_visible(False)
    for axes, (title, record) in zip(np.ravel(grid), panels, strict=False):
        _plot_instances(axes, record["metrics"])
        end = record["metrics"][-1]["episodes"]
        for instance, colour in CURVES:
            tested = record["evaluations"][0]["instances"][instance - 1]
            if tested["accuracy"] is None:
                continue
            axes.plot([1.03 * end, 1.13 * end], [100 * tested["accuracy"]] * 2, color=colour, linewidth=2.4)
        axes.axvline(1.015 * end, color="#374151", linewidth=1, linestyle=":")
        axes.text(1.03 * end, 102, "test", fontsize=8, color="#374151")
        axes.set_title(title, fontsize=10, loc="left", pad=12)
        _mark_classes(axes, record["config"])
        shown = [tick for tick in axes.get_xticks() if 0 <= tick <= end]  # the test is not on this axis
        axes.set_xticks(shown, [f"{tick / 1000:g}" for tick in shown])
        axes.set_xlim(0, 1.15 * end)
        axes.set_xlabel("Episodes (thousands)")
        axes.set_ylabel("Accuracy (%)")
        _tidy(axes)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, title="Instance", loc="outside right center", frameon=False)
    return _save(figure, folder, name)


def _mark_classes(axes: Axes, config: dict[str, Any]) -> None:
    """Along the top, how many classes a curriculum has reached."""
    curriculum = config["curriculum"]
    if curriculum["every"]:
        reached = range(curriculum["start"], config["task"]["classes"] + 1)
        step = curriculum["every"] * config["batch"]
        top = axes.secondary_xaxis("top")
        top.set_xticks(
            [i * step for i in range(len(reached))], [str(classes) for classes in reached], fontsize=8
        )
        top.set_xlabel("Classes in training", fontsize=8, loc="left")


class Series(NamedTuple):
    """Accuracy in % of a network by instance, as the columns of a table have them; None where there is none."""

    label: str
    ours: Sequence[float] | None
    paper: Sequence[float] | None


def draw_comparison(
    panels: list[tuple[str, list[Series]]], instances: Sequence[int], folder: Path, name: str
) -> list[Path]:
    """A panel a task: accuracy by instance of every network, ours as a line and the paper's dashed."""
    figure, grid = plt.subplots(
        1,
        len(panels),
        figsize=(2.6 + 4.2 * len(panels), 4.2),
        layout="constrained",
        squeeze=False,
        sharey=True,
    )
    places = range(len(instances))
    for axes, (title, shown) in zip(grid[0], panels, strict=True):
        for series in shown:
            colour = NETWORKS[series.label]
            if series.paper is not None:
                axes.plot(
                    places,
                    series.paper,
                    "o--",
                    color=colour,
                    linewidth=1.1,
                    markersize=4,
                    markerfacecolor="white",
                )
            if series.ours is not None:
                axes.plot(places, series.ours, "o-", color=colour, linewidth=1.9, markersize=4.5)
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_xticks(list(places), [ordinal(i) for i in instances])
        axes.set_xlabel("Instance of a class in the episode")
        axes.set_ylim(-3, 103)
        _tidy(axes)
    grid[0, 0].set_ylabel("Accuracy on classes never trained on (%)")
    compared = {series.label for _, shown in panels for series in shown}
    handles = [
        Line2D([], [], color=colour, linewidth=1.9, label=label)
        for label, colour in NETWORKS.items()
        if label in compared
    ]
    handles += [
        Line2D([], [], color="#374151", marker="o", markersize=4.5, label="ours"),
        Line2D([], [], color="#374151", linestyle="--", marker="o", markerfacecolor="white", label="paper"),
    ]
    figure.legend(handles=handles, loc="outside right center", frameon=False)
    return _save(figure, folder, name)


def draw_capacity(runs: list[list[dict[str, Any]]], folder: Path, name: str) -> list[Path]:
    """Accuracy by instance against the number of classes: the mean of the runs, a band over their 95 % intervals.

    A run is a list of its tests, in the same order for all of them.
    """
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    classes = [test["classes"] for test in runs[0]]
    for instance, colour in CURVES[1:]:
        cells = [[test["instances"][instance - 1] for test in tests] for tests in runs]
        value, low, high = (
            np.array([[np.nan if cell[key] is None else 100 * cell[key] for cell in run] for run in cells])
            for key in ("accuracy", "low", "high")
        )
        axes.plot(
            classes, value.mean(0), "o-", color=colour, label=ordinal(instance), linewidth=1.6, markersize=3.5
        )
        axes.fill_between(classes, low.min(0), high.max(0), color=colour, alpha=0.15, linewidth=0)
    axes.set_ylim(0, 100)
    axes.set_xlabel("Classes in an episode (never trained on; 10 samples a class)")
    axes.set_ylabel("Accuracy (%)")
    axes.legend(title="Instance", loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    _tidy(axes)
    return _save(figure, folder, name)


def draw_functions(along_x: dict[str, Any], folder: Path, name: str) -> list[Path]:
    """The paper's Figure 5: predictions along all x after a few samples, the network's above the exact GP's."""
    shown = along_x["shown"]
    x = np.array(along_x["x"])
    figure, grid = plt.subplots(
        2, len(shown), figsize=(1 + 3.4 * len(shown), 5.6), layout="constrained", sharex=True, sharey="col"
    )
    bands, lines = [], []
    for row, (who, title, colour) in enumerate(
        (("model", "MANN", NETWORKS["MANN"]), ("gp", "Exact GP", EXACT))
    ):
        for column, function in enumerate(shown):
            axes: Axes = np.reshape(grid, (2, -1))[row, column]
            mean, scale = (np.array(function[who][key]) for key in ("mean", "scale"))
            low, high = mean - 2 * scale, mean + 2 * scale
            band = axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
            (line,) = axes.plot(x, mean, color=colour, linewidth=1.8)
            (truth,) = axes.plot(x, function["truth"], color="#c2410c", linewidth=1.2, linestyle="--")
            seen = axes.scatter(function["seen"]["x"], function["seen"]["y"], s=16, color="#111827", zorder=3)
            axes.set_title(f"{title}, test function {column + 1}", fontsize=10, loc="left")
            _tidy(axes)
            if column == 0:
                axes.set_ylabel("y")
            if row == 1:
                axes.set_xlabel("x")
        bands.append(band)
        lines.append(line)
    handles: list[Any] = [seen, truth, tuple(lines), tuple(bands)]
    figure.legend(
        handles,
        [
            f"the {along_x['samples']} samples seen",
            "true function",
            "predicted mean",
            "± two predicted sigma",
        ],
        handler_map={tuple: HandlerTuple(ndivide=None)},
        handlelength=3,
        loc="outside lower center",
        ncols=4,
        frameon=False,
    )
    return _save(figure, folder, name)


def draw_likelihood(panels: list[tuple[str, dict[str, Any]]], folder: Path, name: str) -> list[Path]:
    """The paper's Figure 6: negative log-likelihood by step within an episode, with 95 % intervals.

    A panel is a title and the tests of its networks by label (`Evaluation.to_json`).
    """

    def plot(axes: Axes, label: str, test: dict[str, Any], who: str, colour: str) -> None:
        nll, half = np.array(test["nll"][who]), np.array(test["half_width"][who])
        steps = np.arange(1, len(nll) + 1)
        style = "--" if who == "gp" else "-"
        axes.plot(steps, nll, color=colour, label=label, linewidth=1.8, linestyle=style)
        axes.fill_between(steps, nll - half, nll + half, color=colour, alpha=0.2, linewidth=0)

    figure, grid = _by_step(panels, plot)
    grid[0].set_ylabel("Negative log-likelihood (nats per point)")
    return _save(figure, folder, name)


def draw_coverage(panels: list[tuple[str, dict[str, Any]]], folder: Path, name: str) -> list[Path]:
    """Calibration: how many samples lie inside the predicted 50 % and 95 % bands, by step."""

    def plot(axes: Axes, label: str, test: dict[str, Any], who: str, colour: str) -> None:
        for band in test["coverage"]:
            inside = 100 * np.array(test["coverage"][band][who])
            style = "--" if who == "gp" else "-"
            shown = label if band == "50" else None
            axes.plot(np.arange(1, len(inside) + 1), inside, style, color=colour, label=shown, linewidth=1.4)
            axes.axhline(float(band), color="#111827", linewidth=0.8, linestyle=":")

    figure, grid = _by_step(panels, plot)
    for axes in grid:
        axes.set_ylim(0, 100)
        axes.set_yticks([0, 25, 50, 75, 95])
    grid[0].set_ylabel("Samples inside the band (%)")
    return _save(figure, folder, name)


def _by_step(
    panels: list[tuple[str, dict[str, Any]]], plot: Callable[[Axes, str, dict[str, Any], str, str], None]
) -> tuple[Figure, list[Axes]]:
    """A panel for each set of tests: the exact GP and every network against the step of the episode."""
    figure, grid = plt.subplots(
        1,
        len(panels),
        figsize=(2 + 3.4 * len(panels), 3.9),
        layout="constrained",
        sharey=True,
        squeeze=False,
    )
    for axes, (title, tests) in zip(grid[0], panels, strict=True):
        for label, test in tests.items():
            plot(axes, label, test, "model", NETWORKS[label])
        plot(axes, "Exact GP", next(iter(tests.values())), "gp", EXACT)
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_xlabel("Step of the episode")
        axes.set_xlim(left=0)
        _tidy(axes)
    shown = {
        label: line for axes in grid[0] for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(list(shown.values()), list(shown), loc="outside right center", frameon=False)
    return figure, list(grid[0])


def draw_episode(
    episode: Episode, predictions: np.ndarray, correct: np.ndarray, folder: Path, columns: int = 10
) -> list[Path]:
    """`episode.png`: every input in order, with the network's guess below it."""
    steps = len(correct)
    rows = -(-steps // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(0.95 * columns, 1.22 * rows + 0.9), layout="constrained"
    )
    for axes in np.ravel(grid):
        axes.set_axis_off()
    for step, axes in zip(range(steps), np.ravel(grid), strict=False):
        first = int(episode.instances[step]) == 1
        colour = RIGHT if correct[step] else FIRST if first else WRONG
        picture = 1 - np.asarray(episode.inputs[step]).reshape(SIZE, SIZE)
        axes.imshow(picture, cmap="gray", vmin=0, vmax=1)
        axes.add_patch(plt.Rectangle((-0.5, -0.5), SIZE, SIZE, fill=False, edgecolor=colour, linewidth=2))
        guess, truth = _label(predictions[step]), _label(np.asarray(episode.targets[step]))
        text = guess if correct[step] else f"{guess} → {truth}"
        mark = "new" if first else "✓" if correct[step] else "✗"
        axes.set_title(f"{step + 1}", fontsize=7, color="#6b7280", pad=2)
        axes.text(SIZE / 2, SIZE + 0.6, f"{mark}  {text}", ha="center", va="top", fontsize=8, color=colour)
    figure.suptitle(
        "One episode, in order of presentation. Below each picture: the guess, then → the right label if it was "
        "wrong.\nGreen: right. Red: wrong. Grey: wrong, but the class is new in this episode and can only be "
        "guessed.",
        fontsize=9,
    )
    return _save(figure, folder, "episode")


def draw_memory(episode: Episode, trace: MemoryTrace, folder: Path) -> list[Path]:
    """`memory.png`: where each step reads and writes, and how used each slot is."""
    panels = [
        ("Written to (sum over heads)", np.asarray(trace.write_weights).sum(1), "Oranges"),
        ("Read from (mean over heads)", np.asarray(trace.read_weights).mean(1), "Blues"),
    ]
    if trace.usage is not None:
        panels.append(("Usage (decayed)", np.asarray(trace.usage), "Greys"))
    used = np.flatnonzero(panels[0][1].max(axis=0) > 0.1)
    shown = slice(0, min(panels[0][1].shape[1], int(used.max(initial=0)) + 6))
    figure, grid = plt.subplots(
        len(panels), 1, figsize=(8, 2.7 * len(panels)), layout="constrained", sharex=True
    )
    steps = np.arange(1, len(episode.classes) + 1)
    for axes, (title, weights, colours) in zip(np.ravel(grid), panels, strict=True):
        picture = axes.imshow(
            weights.T[shown],
            aspect="auto",
            origin="lower",
            cmap=colours,
            extent=(0.5, len(steps) + 0.5, -0.5, shown.stop - 0.5),
            vmin=0,
        )
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_ylabel("Slot")
        figure.colorbar(picture, ax=axes, pad=0.01)
    bottom = np.ravel(grid)[-1]
    bottom.set_xlabel("Step, with the class shown (A, B, … in order of first appearance)")
    bottom.set_xticks(
        steps,
        [f"{s}\n{n}" if s % 5 == 0 else f"\n{n}" for s, n in zip(steps, _letters(episode), strict=True)],
        fontsize=7,
    )
    return _save(figure, folder, "memory")


def _letters(episode: Episode) -> list[str]:
    """A letter for each class, in order of first appearance."""
    seen: dict[int, str] = {}
    return [seen.setdefault(int(c), chr(ord("A") + len(seen) % 26)) for c in episode.classes]


def _label(target: np.ndarray) -> str:
    if target.shape == (25,):
        return string_of(jnp.asarray(target))
    return str(int(np.argmax(target)) + 1)


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, …"""
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def _save(figure: Figure, folder: Path, name: str) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    for path in paths:  # the same bytes for the same data: no date, no random names
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
    return paths


def save_atomically(path: Path, picture: Image.Image) -> None:
    """Write a PNG to a temporary name and rename it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".png")
        with os.fdopen(handle, "wb") as file:
            picture.save(file, "PNG")
        Path(temporary).replace(path)
    except OSError as error:
        raise MannError(f"Could not write {path}: {error.strerror}.") from None
