"""What all figures share: colours, axes, and how they are saved."""

import io
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mann.files import write_atomically, writing

DARK, GREY, RED, GREEN = "#111827", "#6b7280", "#c0392b", "#1b7f4d"  # readable on white
BLUE, ORANGE, YELLOW, VIOLET = "#1d4ed8", "#c2410c", "#b58900", "#6d28d9"
# The curves of the paper's figures.
INSTANCES = {1: GREY, 2: ORANGE, 3: YELLOW, 4: GREEN, 5: BLUE, 10: VIOLET}


def tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def legend_beside(axes: Axes) -> None:
    """The legend of the curves by instance, right of the axes."""
    axes.legend(title="Instance", loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """NAME.png and NAME.svg: the same bytes for the same data, without date and random names."""
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    for path in paths:
        buffer = io.BytesIO()
        metadata = {"Date": None} if path.suffix == ".svg" else None
        with matplotlib.rc_context({"svg.hashsalt": "mann"}):  # names in the file come from it
            figure.savefig(buffer, format=path.suffix[1:], dpi=150, metadata=metadata)
        with writing(path):
            write_atomically(path, buffer.getvalue())
    return paths
