"""The tables and figures of a results folder: results/NAME/table.json and pictures beside it."""

import json
from pathlib import Path
from typing import Any

FIGURES = {".svg": "image/svg+xml", ".png": "image/png"}
MOST_BYTES = 4_000_000  # of a table or a figure
MOST_ROWS, MOST_COLUMNS = 500, 50
MOST_RESULTS, MOST_FIGURES = 200, 20  # folders; figures in one


def list_results(folder: Path) -> list[dict[str, Any]]:
    """What can be shown, sorted by name; a table that is not as it should be becomes a sentence."""
    if not folder.is_dir():
        return []
    found = []
    for place in sorted(path for path in folder.iterdir() if path.is_dir())[:MOST_RESULTS]:
        figures = sorted(name for name in find_figures(place))[:MOST_FIGURES]
        content = _read_table(place / "table.json")
        if content or figures:
            found.append({"name": place.name, "figures": figures, "title": place.name, **content})
    return found


def find_figures(place: Path) -> dict[str, Path]:
    """The figures of one result by file name. Only what is listed here is ever served."""
    if not place.is_dir():
        return {}
    return {
        path.name: path
        for path in place.iterdir()
        if path.suffix in FIGURES and path.is_file() and path.stat().st_size <= MOST_BYTES
    }


def find_figure(folder: Path, name: str, figure: str) -> Path | None:
    """The file of a figure, by looking its names up in listings: no path is ever built from a request."""
    places = {path.name: path for path in folder.iterdir()} if folder.is_dir() else {}
    return find_figures(places[name]).get(figure) if name in places else None


def _read_table(path: Path) -> dict[str, Any]:
    if not path.is_file():
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
    shown = f"{value:.{decimals}f}" if isinstance(value, float) else str(value)
    return shown.encode("utf-8", "replace").decode()
