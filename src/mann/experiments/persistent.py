"""Figure 3: the memory is not wiped between episodes, so that old bindings interfere with new ones."""

import dataclasses

from matplotlib.figure import Figure

from mann.experiments.entries import Entry, Network
from mann.experiments.experiment import Experiment
from mann.experiments.networks import PAPER_UPDATES, network, network_100k, seeds
from mann.experiments.records import Records, Table
from mann.experiments.scales import Scale
from mann.experiments.tables import (
    COST,
    accuracy_table,
    by_label,
    comparison,
    header,
    in_order,
    training_cost,
)
from mann.figures.experiments import draw_learning
from mann.tasks import Classification
from mann.training.validation import FILLING

TITLE = "Persistent memory: 5 classes (length 50) and 10 classes (length 75), one-hot labels"
TASKS = {5: Classification(classes=5, length=50), 10: Classification(classes=10, length=75)}


def entries(scale: Scale) -> list[Entry]:
    """Each with the paper's 100 000 episodes; 5 classes with a wiped memory are those of Table 1."""
    return [
        _entry(classes, persistent, scale, seed)
        for classes in TASKS
        for persistent in (True, False)
        for seed in seeds(scale)
        if scale != "smoke" or (persistent and classes == 5)
    ]


def _entry(classes: int, persistent: bool, scale: Scale, seed: int) -> Network:
    label = f"{classes} classes, memory {'kept' if persistent else 'wiped'}"
    if classes == 5 and not persistent:
        return dataclasses.replace(network_100k("5-onehot", scale, seed), label=label)
    return network(
        "5-onehot",
        "mann",
        scale,
        seed,
        suffix=f"-{classes}-{'persistent' if persistent else 'wiped'}",
        label=label,
        task=TASKS[classes],
        persistent=persistent,
        updates=PAPER_UPDATES,
    )


def table(records: Records) -> Table:
    rows = [
        row
        for label, runs in by_label(in_order(entries("full"), records)).items()
        for row in comparison(label, runs, None, training_cost(runs))
    ]
    note = (
        "The paper shows curves only. Kept: test episodes, too, follow one another without a wipe, the first after "
        f"{FILLING} that do not count, since these networks met an empty memory only at the start of training. "
        "The curves are of the first run, on 100 held-out classes, which return sooner than the test's 423."
    )
    return accuracy_table(TITLE, header(COST), rows, note)


def figures(records: Records) -> dict[str, Figure]:
    rows = by_label(in_order(entries("full"), records))
    panels = [(label, runs[0]) for label, runs in rows.items()]
    return {"persistent": draw_learning(panels)} if panels else {}


EXPERIMENT = Experiment(entries, table, figures)
