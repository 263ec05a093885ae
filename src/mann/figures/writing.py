"""Learned writing: accuracy by instance of every memory, where it is small and where it is never wiped."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from mann.figures.style import BLUE, DARK, GREEN, GREY, ORANGE, VIOLET, YELLOW, tidy

COLOURS = (BLUE, ORANGE, VIOLET, YELLOW, GREEN, GREY, DARK)


class WritingLine(NamedTuple):
    """A memory, by instance in %; None where it has not been measured."""

    label: str
    small: np.ndarray | None
    """In episodes longer than the memory."""
    kept: np.ndarray | None
    """Not wiped between episodes."""
    wiped: np.ndarray | None


def draw_writing(lines: Sequence[WritingLine]) -> Figure:
    """Left: episodes longer than the memory. Right: kept from episode to episode, and dashed: wiped."""
    figure = Figure(figsize=(11.5, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for place, line in enumerate(lines):
        style = {"color": COLOURS[place % len(COLOURS)], "linewidth": 1.7, "label": line.label}
        for axes, values, dashes in (
            (left, line.small, "-"),
            (right, line.kept, "-"),
            (right, line.wiped, "--"),
        ):
            if values is not None:
                axes.plot(np.arange(1, len(values) + 1), values, linestyle=dashes, **style)
    left.set_title("Episodes longer than the memory", fontsize=10, loc="left")
    right.set_title("Memory kept between episodes (dashed: wiped)", fontsize=10, loc="left")
    left.set_ylabel("Right (%)")
    for axes in (left, right):
        axes.set_xlabel("Instance")
        axes.set_xticks(range(1, 11))
        axes.set_ylim(0, 100)
        tidy(axes)
    found: dict[str, Any] = {}  # a memory may be in one panel only
    for axes in (left, right):
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    figure.legend(
        list(found.values()), list(found), loc="outside lower center", ncols=3, frameon=False, fontsize=9
    )
    return figure
