"""The tables and figures of a results folder: NAME/table.json and NAME/figures, as `mann reproduce` writes them."""

import json
from pathlib import Path
from typing import Any

from mann.errors import MannError
from mann.experiments import EXPERIMENTS, figures_folder

SHIPPED = Path(__file__).parents[1] / "results"  # those that the documentation shows
FIGURES = {".png": "image/png", ".svg": "image/svg+xml"}  # the first that there is, if a figure comes as both
MOST_BYTES = 4_000_000  # of a table or a figure
MOST_ROWS, MOST_COLUMNS = 500, 50
MOST_RESULTS, MOST_FIGURES = 200, 20  # folders; figures in one


def choose_results(folder: str) -> Path:
    """The folder that was asked for; else `results` if it is here and has any; else those that ship with mann."""
    here = Path("results")
    if folder:
        if not Path(folder).is_dir():
            raise MannError(f"There is no folder {folder} with results: name one, or leave --results out.")
        return Path(folder)
    return here if any(here.glob("*/table.json")) else SHIPPED


def list_results(folder: Path) -> list[dict[str, Any]]:
    """What can be shown, in the paper's order; a table that is not as it should be becomes a sentence."""
    listed = []
    for name, place in sorted(_places(folder).items(), key=lambda item: (_rank(item[0]), item[0]))[
        :MOST_RESULTS
    ]:
        figures = sorted(find_figures(folder, name))[:MOST_FIGURES]
        content = _read_table(place / "table.json")
        if content or figures:
            listed.append({"name": name, "figures": figures, "title": name, **content})
    return listed


def find_figures(folder: Path, name: str) -> dict[str, Path]:
    """The figures of one result by file name. Only what is listed here is ever served: no links, for one."""
    place = figures_folder(folder, name)
    if name not in _places(folder) or place.is_symlink() or not place.is_dir():
        return {}
    kinds = list(FIGURES)
    figures: dict[str, Path] = {}
    for path in sorted(_files(place), key=lambda path: kinds.index(path.suffix)):
        figures.setdefault(path.stem, path)
    return {path.name: path for path in figures.values()}


def find_figure(folder: Path, name: str, figure: str) -> Path | None:
    """The file of a figure, by looking its names up in listings: no path is built from a request unseen."""
    return find_figures(folder, name).get(figure)


def _places(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        return {}
    return {path.name: path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()}


def _files(place: Path) -> list[Path]:
    return [
        path
        for path in place.iterdir()
        if path.suffix in FIGURES
        and path.is_file()
        and not path.is_symlink()
        and path.stat().st_size <= MOST_BYTES
    ]


def _rank(name: str) -> int:
    """The place of an experiment in the paper; others come after them."""
    names = list(EXPERIMENTS)
    return names.index(name) if name in names else len(names)


def _read_table(path: Path) -> dict[str, Any]:
    if path.is_symlink() or not path.is_file():
        return {}
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ValueError("it is too large")
        table = json.loads(path.read_text("utf-8"))
        columns, rows = [_text(name) for name in table["columns"]], table["rows"]
        if len(columns) > MOST_COLUMNS or len(rows) > MOST_ROWS:
            raise ValueError("it has too many rows or columns")
        cells = [list(row)[: len(columns)] for row in rows]
        places = [_decimals([row[i] for row in cells if i < len(row)]) for i in range(len(columns))]
        return {
            "title": _text(table.get("title", path.parent.name)),
            "columns": columns,
            "rows": [[_text(cell, places[i]) for i, cell in enumerate(row)] for row in cells],
            "note": _text(table.get("note", "")),
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return {"problem": f"The table of {path.parent.name} cannot be shown: {_text(error)}."}


def _decimals(column: list[Any]) -> int:
    """Decimal places for the floats of a column: as many as the longest needs, at most 3."""
    floats = [f"{value:.3f}".rstrip("0") for value in column if isinstance(value, float)]
    return max((len(text.partition(".")[2]) for text in floats), default=0)


def _text(value: Any, decimals: int = 3) -> str:
    """For people: no long decimals, nothing that cannot be encoded."""
    if value is None:
        return ""
    text = f"{value:.{decimals}f}" if isinstance(value, float) else str(value)
    return text.encode("utf-8", "replace").decode()
