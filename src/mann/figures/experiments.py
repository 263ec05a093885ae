"""The figures of the experiments: learning, comparisons with the paper, capacity, regression."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from mann.figures.run import plot_instances
from mann.figures.style import BLUE, DARK, GREEN, GREY, INSTANCES, ORANGE, VIOLET, YELLOW, legend_beside, tidy
from mann.text import ordinal

NETWORKS = {
    "MANN": BLUE,
    "Least squares": VIOLET,
    "MANN, LSTM": BLUE,
    "MANN (NTM access), LSTM": VIOLET,
    "MANN, feed-forward": "#0e7490",
    "LSTM": ORANGE,
    "Feed-forward": GREY,
    "kNN (deep features)": GREEN,
    "kNN (raw pixels)": YELLOW,
    "Human": DARK,
}
EXACT = GREEN  # the Gaussian process
LINE = "#374151"


def draw_learning(panels: Sequence[tuple[str, Mapping[str, Any]]]) -> Figure:
    """A panel per run: accuracy by instance while training, then, right of the line, the test on unseen classes.

    A panel is a title and a record of a run (`experiments.records`).
    """
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(1 + 5 * columns, 0.6 + 3.3 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    for axes, (title, record) in zip(grid, panels, strict=False):
        plot_instances(axes, record["metrics"])
        end = record["metrics"][-1]["episodes"]
        for instance, colour in INSTANCES.items():
            accuracy = record["evaluations"][0]["instances"][instance - 1]["accuracy"]
            if accuracy is not None:
                axes.plot([1.03 * end, 1.13 * end], [100 * accuracy] * 2, color=colour, linewidth=2.4)
        axes.axvline(1.015 * end, color=LINE, linewidth=1, linestyle=":")
        axes.text(1.03 * end, 102, "test", fontsize=8, color=LINE)
        axes.set_title(title, fontsize=10, loc="left", pad=12)
        _mark_classes(axes, record["config"])
        ticks = [tick for tick in axes.get_xticks() if 0 <= tick <= end]  # the test is not on this axis
        axes.set_xticks(ticks, [f"{tick / 1000:g}" for tick in ticks])
        axes.set_xlim(0, 1.15 * end)
        axes.set_xlabel("Episodes (thousands)")
        axes.set_ylabel("Accuracy (%)")
        tidy(axes)
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, title="Instance", loc="outside right center", frameon=False)
    return figure


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


def draw_comparison(panels: list[tuple[str, list[Series]]], instances: Sequence[int]) -> Figure:
    """A panel per task: accuracy by instance of every network, ours as a line and the paper's dashed."""
    figure, row = _row_of_panels(len(panels), 2.6 + 4.2 * len(panels), 4.2)
    places = range(len(instances))
    for axes, (title, networks) in zip(row, panels, strict=True):
        for series in networks:
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
        tidy(axes)
    row[0].set_ylabel("Accuracy on classes never trained on (%)")
    labels = {series.label for _, networks in panels for series in networks}
    handles = [
        Line2D([], [], color=colour, linewidth=1.9, label=label)
        for label, colour in NETWORKS.items()
        if label in labels
    ]
    handles += [
        Line2D([], [], color=LINE, marker="o", markersize=4.5, label="ours"),
        Line2D([], [], color=LINE, linestyle="--", marker="o", markerfacecolor="white", label="paper"),
    ]
    figure.legend(handles=handles, loc="outside right center", frameon=False)
    return figure


def draw_capacity(runs: list[list[dict[str, Any]]]) -> Figure:
    """Accuracy by instance against the number of classes: the mean of the runs, a band over their 95 % intervals.

    A run is a list of its tests, in the same order for all of them.
    """
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    classes = [test["classes"] for test in runs[0]]
    for instance, colour in list(INSTANCES.items())[1:]:
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
    axes.set_xlabel("Classes in an episode (never trained on; 10 samples per class)")
    axes.set_ylabel("Accuracy (%)")
    legend_beside(axes)
    tidy(axes)
    return figure


class Line(NamedTuple):
    """A network under one kind of access: accuracy in % by instance for every number of classes."""

    network: str
    sparse: bool
    slots: int
    classes: Sequence[int]
    accuracy: Sequence[np.ndarray]


def draw_many_classes(
    lines: list[Line], instances: Sequence[int], published: list[tuple[str, int, int, float]]
) -> Figure:
    """A panel per instance: accuracy against the number of classes; dense access dashed, darker with more slots,
    and a marker for each network.

    `published` are source, instance, classes and accuracy of what others reached.
    """
    figure, row = _row_of_panels(len(instances), 3.6 + 3.6 * len(instances), 4.2)
    slots = sorted({line.slots for line in lines})
    markers = dict(zip(dict.fromkeys(line.network for line in lines), itertools.cycle("osD^v"), strict=False))
    for axes, instance in zip(row, instances, strict=True):
        for line in lines:
            access = "sparse" if line.sparse else "dense"
            axes.plot(
                line.classes,
                [values[instance - 1] for values in line.accuracy],
                markers[line.network] + ("-" if line.sparse else "--"),
                color=BLUE if line.sparse else ORANGE,
                alpha=0.35 + 0.65 * (slots.index(line.slots) + 1) / len(slots),
                linewidth=1.6,
                markersize=3.5,
                label=f"{line.network}, {access}, {line.slots or 'as trained'}",
            )
        for source, of, classes, value in published:
            if of == instance:
                axes.plot(classes, value, "*", color=GREEN, markersize=9, label=source)
        axes.set_xscale("log", base=2)
        ticks = sorted({count for line in lines for count in line.classes})
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_ylim(0, 100)
        axes.set_title(f"{ordinal(instance)} instance", fontsize=10, loc="left")
        axes.set_xlabel("Classes in an episode (10 shows each)")
        tidy(axes)
    row[0].set_ylabel("Accuracy on classes never trained on (%)")
    labelled = {label: h for axes in row for h, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(labelled.values(), labelled.keys(), loc="outside right center", frameon=False, fontsize=8)
    return figure


WRONG = (0.5, 1, 2, 5, 10, 20, 50, 100)  # ticks, in %


class PeerLine(NamedTuple):
    """A network that was taught numbers of things once; both in %, NaN where nothing was new."""

    label: str
    things: Sequence[int]
    forced: Sequence[float]
    known: Sequence[float]


def draw_peers(lines: list[PeerLine]) -> Figure:
    """Two panels against the number of things taught, by what is wrong, so that small differences are seen: where a
    thing must be named, and known against new."""
    figure, row = _row_of_panels(2, 10.8, 4.2)
    colours = (BLUE, ORANGE, GREEN, VIOLET, GREY, YELLOW)
    for axes, field, title in zip(
        row,
        ("forced", "known"),
        ("Named wrong, if it must be named", "Known not told from new (chance: 50 %)"),
        strict=True,
    ):
        for line, colour in zip(lines, colours, strict=False):
            axes.plot(
                line.things,
                100 - np.array(getattr(line, field), float),
                "o-",
                color=colour,
                linewidth=1.8,
                markersize=4,
                label=line.label,
            )
        ticks = sorted({count for line in lines for count in line.things})
        axes.set_xscale("log")
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_yscale("log")
        axes.set_yticks(WRONG, [f"{share:g}" for share in WRONG])
        axes.yaxis.set_minor_locator(NullLocator())
        axes.set_ylim(WRONG[0], WRONG[-1])
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_xlabel("Things taught, one drawing of each")
        axes.tick_params(labelleft=True)
        tidy(axes)
    row[0].set_ylabel("Wrong (%)")
    row[1].set_ylabel("100 % less average precision of “known”")
    handles, labels = row[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=8)
    return figure


class CostLine(NamedTuple):
    """What a step costs under one kind of access: a row per number of slots (`experiments.cost`)."""

    label: str
    sparse: bool
    rows: Sequence[Mapping[str, Any]]


def draw_cost(lines: list[CostLine]) -> Figure:
    """Time of a step in training and online, and memory of a training episode, against the slots."""
    panels = (
        ("training_ms", 1.0, "Training: time of a step (ms)"),
        ("online_ms", 1.0, "Online: time of a step (ms)"),
        ("training_bytes", 1e6, "Training: memory of an episode (MB)"),
    )
    figure = Figure(figsize=(13, 4), layout="constrained")
    for axes, (field, unit, title) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        for line in lines:
            points = [(row["slots"], row[field] / unit) for row in line.rows if row[field] is not None]
            axes.plot(
                *zip(*points, strict=True) if points else ([], []),
                "o-" if line.sparse else "o--",
                color=BLUE if line.sparse else ORANGE,
                label=line.label,
                linewidth=1.8,
                markersize=4,
            )
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_xlabel("Slots of the memory")
        tidy(axes)
        axes.legend(frameon=False, fontsize=9)
    return figure


def draw_functions(along_x: dict[str, Any]) -> Figure:
    """The paper's Figure 5: predictions along all x after a few samples, the network's above the exact GP's."""
    functions = along_x["shown"]
    x = np.array(along_x["x"])
    figure = Figure(figsize=(1 + 3.4 * len(functions), 5.6), layout="constrained")
    grid = figure.subplots(2, len(functions), sharex=True, sharey="col", squeeze=False)
    bands, lines = [], []
    for row, (who, title, colour) in enumerate(
        (("model", "MANN", NETWORKS["MANN"]), ("gp", "Exact GP", EXACT))
    ):
        for column, function in enumerate(functions):
            axes: Axes = grid[row, column]
            mean, scale = (np.array(function[who][key]) for key in ("mean", "scale"))
            low, high = mean - 2 * scale, mean + 2 * scale
            band = axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
            (line,) = axes.plot(x, mean, color=colour, linewidth=1.8)
            (truth,) = axes.plot(x, function["truth"], color=ORANGE, linewidth=1.2, linestyle="--")
            seen = axes.scatter(function["seen"]["x"], function["seen"]["y"], s=16, color=DARK, zorder=3)
            axes.set_title(f"{title}, test function {column + 1}", fontsize=10, loc="left")
            tidy(axes)
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
    return figure


def draw_likelihood(panels: list[tuple[str, dict[str, Any]]]) -> Figure:
    """The paper's Figure 6: negative log-likelihood by step within an episode, with 95 % intervals.

    A panel is a title and the tests of its networks by label (`Evaluation.to_json`).
    """

    def plot(axes: Axes, label: str, test: dict[str, Any], who: str, colour: str) -> None:
        nll, half = np.array(test["nll"][who]), np.array(test["half_width"][who])
        steps = np.arange(1, len(nll) + 1)
        style = "--" if who == "gp" else "-"
        axes.plot(steps, nll, color=colour, label=label, linewidth=1.8, linestyle=style)
        axes.fill_between(steps, nll - half, nll + half, color=colour, alpha=0.2, linewidth=0)

    figure, row = _by_step(panels, plot)
    row[0].set_ylabel("Negative log-likelihood (nats per point)")
    return figure


def draw_coverage(panels: list[tuple[str, dict[str, Any]]]) -> Figure:
    """Calibration: how many samples lie inside the predicted 50 % and 95 % bands, by step."""

    def plot(axes: Axes, label: str, test: dict[str, Any], who: str, colour: str) -> None:
        for band in test["coverage"]:
            inside = 100 * np.array(test["coverage"][band][who])
            style = "--" if who == "gp" else "-"
            name = label if band == "50" else None  # once in the legend
            axes.plot(np.arange(1, len(inside) + 1), inside, style, color=colour, label=name, linewidth=1.4)
            axes.axhline(float(band), color=DARK, linewidth=0.8, linestyle=":")

    figure, row = _by_step(panels, plot)
    for axes in row:
        axes.set_ylim(0, 100)
        axes.set_yticks([0, 25, 50, 75, 95])
    row[0].set_ylabel("Samples inside the band (%)")
    return figure


def _by_step(
    panels: list[tuple[str, dict[str, Any]]], plot: Callable[[Axes, str, dict[str, Any], str, str], None]
) -> tuple[Figure, list[Axes]]:
    """A panel for each set of tests: the exact GP and every network against the step of the episode."""
    figure, row = _row_of_panels(len(panels), 2 + 3.4 * len(panels), 3.9)
    for axes, (title, tests) in zip(row, panels, strict=True):
        for label, test in tests.items():
            plot(axes, label, test, "model", NETWORKS[label])
        plot(axes, "Exact GP", next(iter(tests.values())), "gp", EXACT)
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_xlabel("Step of the episode")
        axes.set_xlim(left=0)
        tidy(axes)
    lines = {
        label: line for axes in row for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(list(lines.values()), list(lines), loc="outside right center", frameon=False)
    return figure, row


def _row_of_panels(count: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(1, count, sharey=True, squeeze=False)[0])
