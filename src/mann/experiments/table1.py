"""Table 1: test accuracy with one-hot labels."""

from pathlib import Path

from mann.experiments.entries import Entry, Record, Scale, Table
from mann.experiments.networks import MODELS, convolutional, hundred_thousand, network, seeds
from mann.experiments.tables import (
    COST,
    SHOWN,
    cells,
    compared,
    header,
    of_model,
    paper_accuracy,
    series,
    stated_rates,
    training_cost,
    with_title,
)
from mann.figures import draw_comparison

TITLE = "Table 1: 5 classes, one-hot labels, episodes of length 50"
SETTING = "5-onehot"
ROWS = {"feedforward": "Feedforward", "lstm": "LSTM", "mann": "MANN"}  # ours: the paper's name


def entries(scale: Scale) -> list[Entry]:
    if scale == "smoke":
        return [network(SETTING, "mann", scale), network(SETTING, "lstm", scale)]
    return [
        *(network(SETTING, "mann", scale, seed) for seed in seeds(scale)),
        *(hundred_thousand(SETTING, scale, seed) for seed in seeds(scale)),
        network(SETTING, "lstm", scale),
        network(SETTING, "feedforward", scale),
        convolutional(SETTING, scale),
    ]


def table(records: dict[str, Record]) -> Table:
    rows = []
    for model, label, paper in _rows():
        found = of_model(records, SETTING, model)
        shorter = short_run(records, SETTING) if model == "mann" else ""
        rows += compared(label, found, paper, shorter, training_cost(found))
        rows += other_reading(found) if model == "mann" else []
    rows += beyond(records, SETTING)
    columns = header("after 100 000 episodes: 2nd, 5th, 10th", COST)
    filled = [row + [""] * (len(columns) - len(row)) for row in rows]
    return with_title(TITLE, columns, filled, stated_rates(records))


def figures(records: dict[str, Record], folder: Path) -> list[Path]:
    lines = [series(label, of_model(records, SETTING, model), paper) for model, label, paper in _rows()]
    return draw_comparison([("5 classes, one-hot labels", lines)], SHOWN, folder, "table1")


def _rows() -> list[tuple[str, str, list[float]]]:
    """Network, label and the paper's row."""
    human = [("human", "Human", paper_accuracy("table1", "Human", 5))]
    return human + [
        (model, MODELS[model][0], paper_accuracy("table1", name, 5)) for model, name in ROWS.items()
    ]


def other_reading(found: list[Record]) -> list[list[str]]:
    """The same networks where drawings may return within an episode (the second of `READINGS`)."""
    return [[f"{found[0]['label']}; drawings may return", "ours", *cells(found, 1)]] if found else []


def short_run(records: dict[str, Record], setting: str) -> str:
    """What the MANN reaches in exactly 100 000 episodes."""
    found = of_model(records, setting, "mann", "-100k")
    if not found:
        return ""
    by_instance = cells(found)
    return ", ".join(by_instance[i] for i in (1, 4, 5))


def beyond(records: dict[str, Record], setting: str) -> list[list[str]]:
    """What the paper does not have: the convolutional encoder."""
    found = of_model(records, setting, "mann", "-conv")
    return compared(found[0]["label"], found, None, "", training_cost(found)) if found else []
