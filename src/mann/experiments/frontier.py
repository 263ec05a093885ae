"""How far it goes with an encoder: few classes by instance, and characters of one alphabet, which are alike."""

import dataclasses
from importlib import resources

import numpy as np

from mann.experiments.entries import Condition, Entry, Network
from mann.experiments.experiment import Experiment
from mann.experiments.networks import with_changes
from mann.experiments.peers import TAUGHT, WITHIN, Peer, smallest
from mann.experiments.records import Record, Records, Table
from mann.experiments.scales import Scale, at_scale
from mann.experiments.tables import (
    COST,
    accuracy_table,
    by_label,
    cells,
    header,
    in_order,
    markdown_table,
    training_cost,
)
from mann.paper import one_alphabet, paper_accuracy
from mann.training.presets import PRESETS, STARTS

TITLE = "With an encoder: 5 classes with one-hot labels, 20 with strings"
TASKS = {"omniglot-5-conv": "5 classes, one-hot", "omniglot-20-strings-conv": "20 classes, strings"}
PAPER = "trained on classes 1 to 1200"
LAKE = "trained on Lake's 30 background alphabets"


def entries(scale: Scale) -> list[Entry]:
    """The first seed of all, then the second."""
    if scale == "smoke":
        return [smallest("balanced")]
    seeds = (0, 1) if scale == "full" else (0,)
    return [entry for seed in seeds for entry in (*_few(scale, seed), *_alike(scale, seed))]


def _few(scale: Scale, seed: int) -> list[Network]:
    """Trained for one number of classes, from the weights of `omniglot-many`."""
    return [
        Network(
            f"{preset.removeprefix('omniglot-')}-seed{seed}",
            label,
            at_scale(dataclasses.replace(PRESETS[preset], seed=seed), scale),
            start=STARTS[preset],
        )
        for preset, label in TASKS.items()
    ]


def _alike(scale: Scale, seed: int) -> list[Peer]:
    """`omniglot-many`, trained on one split or the other and taught characters of one alphabet."""
    ours = dataclasses.replace(PRESETS["omniglot-many"], seed=seed)
    tests = (Condition(classes=20, alphabets="across"),)
    return [
        Peer(f"{name}-seed{seed}", label, at_scale(config, scale), tests, things=(WITHIN,))
        for name, label, config in (
            ("many", PAPER, ours),
            ("many-lake", LAKE, with_changes(ours, data__split="lake")),
        )
    ]


def _runs(records: Records) -> dict[str, list[Record]]:
    return by_label(in_order(entries("full"), records))


def table(records: Records) -> Table:
    rows = []
    for label, runs in _runs(records).items():
        if label in TASKS.values():
            rows.append([label, "ours", *cells(runs), training_cost(runs)])
    rows.append(
        ["5 classes, one-hot", "paper", *(f"{value:.1f}" for value in paper_accuracy("table1", "MANN", 5))]
    )
    return accuracy_table(
        TITLE, header(COST), rows, f"Both start from the weights `{STARTS['omniglot-5-conv']}`."
    )


def _within(records: Records) -> str:
    """Characters of one alphabet, taught once, beside what others published."""
    columns = ["network", "source", *(what for _, what in TAUGHT), "training"]
    rows = []
    for label, runs in _runs(records).items():
        if runs[0].get("taught_within"):
            shown = [_spread([run["taught_within"][0][field] for run in runs]) for field, _ in TAUGHT]
            rows.append([label, "ours", *shown, training_cost(runs)])
    for row in one_alphabet():
        shown = [f"{row['accuracy']:.1f}" if what == "forced" else "" for _, what in TAUGHT]
        rows.append([row["model"], row["source"], *shown, ""])
    return markdown_table(columns, rows)


def _spread(shares: list[float | None]) -> str:
    """The mean in %, and of several runs the lowest and the highest; a dash where something was not asked."""
    values = 100 * np.array([np.nan if share is None else share for share in shares], float)
    if np.isnan(values).any():
        return "–"
    mean = f"{values.mean():.1f}"
    return mean if len(values) == 1 else f"{mean} [{values.min():.1f}, {values.max():.1f}]"


def page(records: Records) -> str:
    """docs/frontier.md: the text in `frontier.md` with what was measured."""
    results = table(records)
    text = (resources.files("mann") / "experiments" / "frontier.md").read_text()
    return text.format(
        results=markdown_table(results.columns, results.rows), note=results.note, within=_within(records)
    )


EXPERIMENT = Experiment(entries, table, page=page)
