"""What an experiment is."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from mann.experiments.entries import Entry
from mann.experiments.records import Records, Table
from mann.experiments.scales import Scale
from mann.figures.style import save


def _no_figures(records: Records) -> dict[str, Figure]:
    return {}


@dataclass(frozen=True)
class Experiment:
    """One of the paper's tables or figures. Whatever is made of records does with those that there are."""

    entries: Callable[[Scale], list[Entry]]
    """What is to be measured: networks to train and test, neighbours to test."""
    table: Callable[[Records], Table]
    figures: Callable[[Records], dict[str, Figure]] = _no_figures
    """By file name without its ending."""
    page: Callable[[Records], str] | None = None
    """A page of its own in Markdown, for docs/NAME.md; its figures are in `figures/`."""

    def save_figures(self, records: Records, folder: Path) -> list[Path]:
        """Draw the figures as PNG and SVG; returns the PNG files."""
        return [save(figure, folder, name)[0] for name, figure in self.figures(records).items()]
