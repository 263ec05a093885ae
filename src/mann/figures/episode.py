"""One episode: the guesses under its pictures, and the memory at work."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from mann.figures.style import GREEN, GREY, RED
from mann.memory import MemoryTrace

MOST_ROWS = 128  # slots in a picture of the memory


def draw_episode(
    pictures: Float[np.ndarray, "time side side"],
    instances: Int[np.ndarray, "time"],
    correct: Bool[np.ndarray, "time"],
    guesses: Sequence[str],
    labels: Sequence[str],
    columns: int = 10,
) -> Figure:
    """Every picture (ink from 0 to 1) in order, with the network's guess below it.

    `instances` says how many times the class was shown so far; `guesses` and `labels` are the names that the
    network gave and should have given.
    """
    side = pictures.shape[1]
    rows = -(-len(pictures) // columns)
    longest = max(len(f"new  {guess} → {label}") for guess, label in zip(guesses, labels, strict=True))
    width = max(0.95, 0.075 * longest)  # inches for a picture with its text
    figure = Figure(figsize=(width * columns, (width + 0.27) * rows + 0.9), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid:
        axes.set_axis_off()
    for step, axes in zip(range(len(pictures)), grid, strict=False):
        first = instances[step] == 1
        colour = GREEN if correct[step] else GREY if first else RED
        axes.imshow(1 - pictures[step], cmap="gray", vmin=0, vmax=1)
        axes.add_patch(Rectangle((-0.5, -0.5), side, side, fill=False, edgecolor=colour, linewidth=2))
        text = guesses[step] if correct[step] else f"{guesses[step]} → {labels[step]}"
        mark = "new" if first else "✓" if correct[step] else "✗"
        axes.set_title(f"{step + 1}", fontsize=7, color=GREY, pad=2)
        axes.text(side / 2, side + 0.6, f"{mark}  {text}", ha="center", va="top", fontsize=8, color=colour)
    figure.suptitle(
        "One episode, in order of presentation. Below each picture: the guess, then → the right label if it was "
        "wrong.\nGreen: right. Red: wrong. Grey: wrong, but the class is new in this episode and can only be "
        "guessed.",
        fontsize=9,
    )
    return figure


def draw_memory(classes: Int[np.ndarray, "time"], trace: MemoryTrace) -> Figure:
    """Where each step reads and writes, and how used each slot is, over the class that it was shown."""
    panels = [
        ("Written to (sum over heads)", np.asarray(trace.write_weights).sum(1), "Oranges"),
        ("Read from (mean over heads)", np.asarray(trace.read_weights).mean(1), "Blues"),
    ]
    if trace.usage is not None:
        panels.append(("Usage (decayed)", np.asarray(trace.usage), "Greys"))
    rows, named = _shown_slots(panels[0][1], panels[1][1])
    figure = Figure(figsize=(8, 2.7 * len(panels)), layout="constrained")
    grid = figure.subplots(len(panels), 1, sharex=True)
    steps = np.arange(1, len(classes) + 1)
    for axes, (title, weights, colours) in zip(grid, panels, strict=True):
        image = axes.imshow(
            weights.T[rows],
            aspect="auto",
            origin="lower",
            cmap=colours,
            extent=(0.5, len(steps) + 0.5, -0.5, len(rows) - 0.5),
            vmin=0,
        )
        axes.set_title(title, fontsize=10, loc="left")
        axes.set_ylabel(named)
        if rows[-1] >= len(rows):  # some are left out: say which these are
            places = np.linspace(0, len(rows) - 1, 6).round().astype(int)
            axes.set_yticks(places, [str(rows[place]) for place in places])
        figure.colorbar(image, ax=axes, pad=0.01)
    grid[-1].set_xlabel("Step, with the class shown (A, B, … in order of first appearance)")
    grid[-1].set_xticks(
        steps,
        [f"{s}\n{n}" if s % 5 == 0 else f"\n{n}" for s, n in zip(steps, _letters(classes), strict=True)],
        fontsize=7,
    )
    return figure


def _shown_slots(
    written: Float[np.ndarray, "time slots"], read: Float[np.ndarray, "time slots"]
) -> tuple[Int[np.ndarray, "rows"], str]:
    """The slots to draw and what to call them: all up to the last one written, or the most used of too many."""
    total = written.shape[1]
    rows = np.arange(min(total, int(np.flatnonzero(written.max(axis=0) > 0.1).max(initial=0)) + 6))
    if len(rows) <= MOST_ROWS:
        return rows, "Slot"
    used = np.maximum(written.max(axis=0), read.max(axis=0))
    return np.sort(
        np.argsort(-used, kind="stable")[:MOST_ROWS]
    ), f"Slot ({MOST_ROWS} of {total}, the most used)"


def _letters(classes: Int[np.ndarray, "time"]) -> list[str]:
    """A letter for each class, in order of first appearance."""
    seen: dict[int, str] = {}
    return [seen.setdefault(int(c), chr(ord("A") + len(seen) % 26)) for c in classes]
