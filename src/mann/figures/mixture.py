"""Mixture: how well networks do on a kind of pictures, by what they were trained on."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from mann.figures.style import BLUE, GREEN, GREY, ORANGE, tidy

COLOURS = (BLUE, ORANGE, GREY, GREEN)


class Bars(NamedTuple):
    """A kind of pictures that is tested on."""

    label: str
    heights: dict[str, list[float]]
    """In %, one for each run, by what the networks were trained on."""


def draw_mixture(groups: Sequence[Bars], what: str) -> Figure:
    """Bars side by side for every kind: the mean of the runs, and each run as a dot."""
    names = list(dict.fromkeys(name for group in groups for name in group.heights))
    figure = Figure(figsize=(max(6.0, 1.5 * len(groups)), 4.2), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / max(len(names), 1)
    for place, name in enumerate(names):
        at = [i for i, group in enumerate(groups) if name in group.heights]
        x = np.array(at) + (place - (len(names) - 1) / 2) * width
        heights = [groups[i].heights[name] for i in at]
        colour = COLOURS[place % len(COLOURS)]
        axes.bar(x, [float(np.mean(runs)) for runs in heights], 0.92 * width, color=colour, label=name)
        for middle, runs in zip(x, heights, strict=True):
            axes.plot([middle] * len(runs), runs, ".", color="black", markersize=3)
    axes.set_xticks(range(len(groups)), [group.label for group in groups])
    axes.set_ylim(0, 100)
    axes.set_axisbelow(True)
    axes.set_ylabel(what)
    tidy(axes)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9, title="trained on")
    return figure
