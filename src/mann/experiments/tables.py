"""Rows by instance: ours, the paper's, and the difference."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from mann.experiments.entries import Entry
from mann.experiments.records import Record, Records, Table
from mann.figures.experiments import Series
from mann.text import ordinal

SHOWN = (1, 2, 3, 4, 5, 10)  # the instances that the paper tables

NOTE = (
    "Accuracy in % by instance on classes never trained on. One run: ± half of the 95 % interval over episodes. "
    "Several runs (seeds): their mean, and [lowest, highest]."
)


def in_order(entries: Sequence[Entry], records: Records) -> list[Record]:
    """The records that there are of some entries, in the order of the entries."""
    return [records[entry.name] for entry in entries if entry.name in records]


def by_label(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The runs (seeds) of every row, by what the row is called."""
    rows: dict[str, list[Record]] = {}
    for record in records:
        rows.setdefault(record["label"], []).append(record)
    return rows


def of_model(records: Records, setting: str, model: str, suffix: str = "") -> list[Record]:
    """The records of one row, in order of their seeds."""
    prefix = f"{setting}-{model}{suffix}-seed"
    return [records[name] for name in sorted(records) if name.startswith(prefix)]


def accuracies(record: Record, test: int = 0) -> np.ndarray:
    """Percent by instance, 1st to 10th; NaN where an instance never occurred."""
    cells = record["evaluations"][test]["instances"]
    return np.array([np.nan if cell["accuracy"] is None else 100 * cell["accuracy"] for cell in cells])


def half_widths(record: Record, test: int = 0) -> np.ndarray:
    """Half of the 95 % interval, in percent."""
    cells = record["evaluations"][test]["instances"]
    return np.array([np.nan if c["low"] is None else 50 * (c["high"] - c["low"]) for c in cells])


def cells(records: Sequence[Record], test: int = 0, shown: Sequence[int] = SHOWN) -> list[str]:
    """One cell for each instance shown: a run with its interval, or the mean of several with their range."""
    values = np.stack([accuracies(record, test) for record in records])
    if len(records) == 1:
        half = half_widths(records[0], test)
        return [number(values[0, i - 1], f" ±{half[i - 1]:.1f}") for i in shown]
    low, high = values.min(0), values.max(0)
    return [number(values.mean(0)[i - 1], f" [{low[i - 1]:.1f}, {high[i - 1]:.1f}]") for i in shown]


def comparison(
    label: str, records: Sequence[Record], paper: Sequence[float] | None, *more: str
) -> list[list[str]]:
    """Up to three rows: ours, the paper's, the difference. `more` cells are appended to ours."""
    empty = ["" for _ in more]
    rows = [[label, "ours", *cells(records), *more]] if records else []
    if paper is not None:
        rows.append([label, "paper", *(f"{value:.1f}" for value in paper), *empty])
    if records and paper is not None:
        ours = mean_accuracies(records)
        differences = [number(a - b, form="+z.1f") for a, b in zip(ours, paper, strict=True)]
        rows.append([label, "difference", *differences, *empty])
    return rows


def mean_accuracies(records: Sequence[Record]) -> list[float]:
    """The mean over runs for each instance in `SHOWN`."""
    values = np.stack([accuracies(record) for record in records]).mean(0)
    return [float(values[i - 1]) for i in SHOWN]


def series(label: str, records: Sequence[Record], paper: Sequence[float] | None) -> Series:
    """A row of the table as a line of its figure."""
    return Series(label, mean_accuracies(records) if records else None, paper)


def header(*more: str) -> list[str]:
    return ["network", "source", *(ordinal(i) for i in SHOWN), *more]


def training_cost(records: Sequence[Record]) -> str:
    """Updates, episodes and wall-clock time of a row's runs (without pauses, where the record says)."""
    if not records or "updates" not in records[0]:
        return ""
    updates, episodes = (f"{n:,}".replace(",", " ") for n in (records[0]["updates"], records[0]["episodes"]))
    pace = [record.get("seconds_per_update", record["seconds"] / record["updates"]) for record in records]
    minutes = ", ".join(f"{records[0]['updates'] * seconds / 60:.0f}" for seconds in pace)
    return f"{updates} / {episodes} / {minutes} min"


def other_reading(runs: list[Record]) -> list[list[str]]:
    """The same networks where drawings may return within an episode (the second of `READINGS`)."""
    return [[f"{runs[0]['label']}; drawings may return", "ours", *cells(runs, 1)]] if runs else []


def short_run(records: Records, setting: str) -> str:
    """What the MANN reaches in exactly 100 000 episodes."""
    runs = of_model(records, setting, "mann", "-100k")
    if not runs:
        return ""
    by_instance = cells(runs)
    return ", ".join(by_instance[i] for i in (1, 4, 5))


def beyond(records: Records, setting: str) -> list[list[str]]:
    """What the paper does not have: framed pixels, the memory that scales and the convolutional encoder."""
    rows = []
    for suffix in ("-framed", "-keyvalue", "-conv"):
        if runs := of_model(records, setting, "mann", suffix):
            rows += comparison(runs[0]["label"], runs, None, "", training_cost(runs))
    return rows


def stated_rates(records: Records) -> str:
    """The learning rates, in a sentence: what most networks have, and who has another."""
    rates = {
        record["label"]: record["config"]["optimiser"]["learning_rate"]
        for _, record in sorted(records.items())
        if "config" in record
    }
    if not rates:
        return ""
    common, _ = Counter(rates.values()).most_common(1)[0]
    others = "; ".join(f"{label}: {rate:g}" for label, rate in rates.items() if rate != common)
    stated = f"{common:g} ({others})" if others else f"{common:g}"
    return (
        f"Learning rate: {stated}; experiment `learning_rates` tuned it for the baselines that can remember."
    )


COST = "updates / episodes / time"  # the column that `training_cost` fills


def accuracy_table(title: str, columns: list[str], rows: list[list[str]], note: str = "") -> Table:
    """A table of accuracies by instance: what they are stands before the note. Short rows are filled up."""
    filled = [row + [""] * (len(columns) - len(row)) for row in rows]
    return Table(title, columns, filled, f"{NOTE} {note}".strip())


def number(value: float, suffix: str = "", form: str = ".1f") -> str:
    """A number in a cell; a dash where there is none."""
    return "–" if np.isnan(value) else f"{value:{form}}{suffix}"


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [columns, ["---"] * len(columns), *rows])
