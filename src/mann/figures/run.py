"""Curves of a training run."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mann.figures.style import BLUE, GREY, INSTANCES, legend_beside, save, tidy
from mann.text import ordinal
from mann.training.run import Run


def save_curves(folder: Path) -> list[Path]:
    """Draw the run in a folder as it stands: `figures/curves.png` and `.svg` in it; none before any record."""
    run = Run(folder)
    records = run.read("metrics.jsonl")
    return save(draw_curves(records, run.read_config().batch), run.figures, "curves") if records else []


def draw_curves(records: list[dict[str, Any]], batch: int) -> Figure:
    """Accuracy by instance while training, as in the paper's Figure 2; for functions, the loss."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    if "accuracy" in records[0]:
        plot_instances(axes, records)
        axes.set_ylabel("Accuracy on held-out classes (%)")
        legend_beside(axes)
    else:
        episodes = [record["episodes"] for record in records]
        held_out = [record["held_out_loss"] for record in records]
        axes.plot(episodes, held_out, label="held-out functions", color=BLUE)
        axes.plot(episodes, [record["loss"] for record in records], label="training", linewidth=1, color=GREY)
        axes.set_ylabel("Negative log-likelihood (nats per point)")
        axes.legend(frameon=False)
    axes.set_xlabel(f"Episodes ({batch} in an update)")
    axes.set_xlim(left=0)
    tidy(axes)
    return figure


def plot_instances(axes: Axes, records: list[dict[str, Any]]) -> None:
    """Held-out accuracy in % against episodes, a line per instance."""
    episodes = [record["episodes"] for record in records]
    for instance, colour in INSTANCES.items():
        values = [record["accuracy"][instance - 1] for record in records]
        percent = [np.nan if value is None else 100 * value for value in values]
        axes.plot(episodes, percent, color=colour, label=ordinal(instance), linewidth=1.6)
    axes.set_ylim(0, 100)
