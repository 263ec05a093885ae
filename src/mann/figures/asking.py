"""Asking for labels: answers against requests, and reward against the price."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from mann.figures.style import BLUE, DARK, GREEN, GREY, ORANGE, VIOLET, YELLOW, tidy

COLOURS = (BLUE, ORANGE, VIOLET, YELLOW, GREEN, GREY)


class AskingLine(NamedTuple):
    """A network at several prices."""

    label: str
    prices: Sequence[float]
    reward: np.ndarray
    """Per episode."""
    requests: np.ndarray
    """In % of the steps."""
    precision: np.ndarray
    """Right answers in % of the answers."""


def draw_asking(lines: Sequence[AskingLine], floor: float) -> Figure:
    """Left: right answers against requests, a point per price. Right: what is earned at every price.

    Args:
        lines: the networks.
        floor: the fewest requests, in %, that suffice if one label per class is enough.
    """
    figure = Figure(figsize=(11.5, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for place, line in enumerate(lines):
        style = {
            "color": COLOURS[place % len(COLOURS)],
            "linestyle": "--" if "rule" in line.label else "-",
            "marker": "o",
            "markersize": 4,
            "linewidth": 1.7,
            "label": line.label,
        }
        order = np.argsort(line.requests, kind="stable")
        left.plot(line.requests[order], line.precision[order], **style)
        right.plot(line.prices, line.reward, **style)
    left.axvline(floor, color=DARK, linewidth=1, linestyle=":")
    left.text(
        floor, 0.02, " the fewest that suffice", transform=left.get_xaxis_transform(), fontsize=8, color=DARK
    )
    left.set_xlim(left=0)
    left.set_xlabel("Requests (% of the steps)")
    left.set_ylabel("Right among the answers (%)")
    left.set_title("Every point is a price", fontsize=10, loc="left")
    right.set_xscale("log")
    ticks = lines[0].prices
    right.set_xticks(list(ticks), [f"{price:g}" for price in ticks])
    right.xaxis.set_minor_formatter(NullFormatter())
    right.set_xlabel("Price of a request (a right answer earns 1)")
    right.set_ylabel("Reward per episode")
    right.set_title("What is earned", fontsize=10, loc="left")
    for axes in (left, right):
        tidy(axes)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure
