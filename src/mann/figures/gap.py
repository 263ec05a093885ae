"""Where a network for functions falls behind the exact process (benchmarks/gap.py)."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from mann.figures.style import BLUE, DARK, GREEN, GREY, ORANGE, RED, VIOLET, YELLOW, tidy

DIMENSIONS = {1: BLUE, 2: ORANGE, 3: GREEN}
HEADS = (VIOLET, YELLOW, RED, GREY)


def draw_gap(found: Mapping[int, Mapping[str, Any]]) -> Figure:
    """Six panels: the gap by step and by what lies near, what the heads read, and the oracles.

    Args:
        found: by dimensions, what `benchmarks/gap.py` measured: `by_step`, `by_distance`, `by_count`, `by_rank`,
            `read_by_distance` and `oracles`.
    """
    figure = Figure(figsize=(12.6, 7.4), layout="constrained")
    (steps, near, count), (rank, away, oracle) = figure.subplots(2, 3)
    for axes, field, title, label in (
        (steps, "by_step", "Gap by step", "Step of the episode"),
        (near, "by_distance", "Gap by the nearest sample", "Its distance (length scales)"),
        (count, "by_count", "Gap by the samples near", "Samples within a length scale"),
    ):
        for dimensions, part in found.items():
            places, gaps = zip(*part[field], strict=True)
            style = "-" if field == "by_step" else "o-"
            axes.plot(
                places, gaps, style, color=DIMENSIONS[dimensions], markersize=4, label=f"{dimensions}-D"
            )
        _label(axes, title, label)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("Gap to the exact process\n(nats per point)")
    near.set_xscale("log")
    near.set_xticks((0.01, 0.03, 0.1, 0.3), ("0.01", "0.03", "0.1", "0.3"))
    near.xaxis.set_minor_locator(NullLocator())
    count.xaxis.set_major_locator(MaxNLocator(integer=True))
    steps.legend(frameon=False)
    first, read = next(iter(found.items()))
    _plot_heads(rank, read["by_rank"])
    _label(rank, f"What the heads read, {first}-D", "Sample, counted from the nearest to x")
    rank.legend(frameon=False)
    _plot_heads(away, read["read_by_distance"])
    _label(away, f"The same by distance, {first}-D", "Distance of a sample from x (length scales)")
    for axes in (rank, away):
        axes.set_ylim(bottom=0)
        axes.set_ylabel("Mean weight of a read\non a sample's slot (%)")
    for dimensions, part in found.items():
        counts, exact, softmax = zip(*part["oracles"], strict=True)
        colour = DIMENSIONS[dimensions]
        oracle.plot(counts, exact, "o-", color=colour, markersize=4)
        oracle.plot(counts, softmax, "o--", color=colour, markersize=4, markerfacecolor="white")
        oracle.axhline(part["gap"], color=colour, linewidth=1, linestyle=":")
    for style, name in (("-", "blended exactly"), ("--", "by a softmax"), (":", "the network")):
        oracle.plot([], [], style, color=DARK, label=name)
    oracle.set_xscale("log", base=2)
    oracle.set_xticks(counts, [str(number) for number in counts])
    oracle.set_yscale("symlog", linthresh=0.01)
    ticks = (0, 0.01, 0.03, 0.1, 0.3)
    oracle.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    oracle.set_ylim(0, 1)
    _label(oracle, "Gap of an oracle on the nearest samples", "Samples that it may use (K)")
    oracle.set_ylabel("Gap to the exact process\n(nats per point)")
    oracle.legend(frameon=False, fontsize=8, loc="lower left")
    return figure


def _plot_heads(axes: Axes, heads: Any) -> None:
    """A line for each head: pairs of a place and a weight."""
    for i, (line, colour) in enumerate(zip(heads, HEADS, strict=False), start=1):
        places, weights = zip(*line, strict=True)
        axes.plot(
            places,
            [100 * weight for weight in weights],
            "o-",
            color=colour,
            markersize=3.5,
            label=f"Head {i}",
        )


def _label(axes: Axes, title: str, label: str) -> None:
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel(label)
    tidy(axes)
