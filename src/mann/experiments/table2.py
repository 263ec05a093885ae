"""Table 2: test accuracy with five-letter strings as labels."""

from matplotlib.figure import Figure

from mann.experiments.entries import Entry
from mann.experiments.experiment import Experiment
from mann.experiments.networks import (
    MODELS,
    convolutional,
    keyvalue,
    neighbours,
    network,
    network_100k,
    seeds,
)
from mann.experiments.records import Record, Records, Table
from mann.experiments.scales import Scale
from mann.experiments.tables import (
    COST,
    SHOWN,
    accuracy_table,
    beyond,
    comparison,
    header,
    of_model,
    other_reading,
    series,
    short_run,
    stated_rates,
    training_cost,
)
from mann.figures.experiments import draw_comparison
from mann.paper import paper_accuracy

TITLE = "Table 2: string labels, 5 classes (length 50) and 15 classes (length 100)"
SETTINGS = {5: "5-strings", 15: "15-strings"}
REMARKS = (
    "Without a memory, the feed-forward network can do no better than to repeat the label it was last given, which "
    "is right one time in 15 (or 5) by chance. The heads of the NTM's access module start moving, which did better "
    "on held-out classes than an even start (experiment `learning_rates`). Both kinds of access have a third run "
    "with 15 classes, since two left them equal on the 10th instance."
)
ROWS = {  # ours: the paper's name for 5 and for 15 classes
    "knn-raw": ("kNN (raw pixels)", "kNN (raw pixels)"),
    "knn-deep": ("kNN (deep features)", "kNN (deep features)"),
    "feedforward": ("Feedforward", "Feedforward"),
    "lstm": ("LSTM", "LSTM"),
    "mann-feedforward": ("MANN, feedforward", "MANN (LRUA), feedforward"),
    "ntm-moving": (None, "MANN (NTM), LSTM"),
    "mann": ("MANN, LSTM", "MANN (LRUA), LSTM"),
}


def entries(scale: Scale) -> list[Entry]:
    if scale == "smoke":
        return [network("15-strings", "ntm-moving", scale), neighbours("5-strings", True, scale)]
    chosen: list[Entry] = []
    for setting in ("15-strings", "5-strings"):
        with_memory = ["mann", "mann-feedforward"] + ["ntm-moving"] * (setting == "15-strings")
        chosen += [network(setting, model, scale, seed) for model in with_memory for seed in seeds(scale)]
        if (setting, scale) == ("15-strings", "full"):  # the third runs: see `REMARKS`
            chosen += [network(setting, model, scale, 2) for model in ("mann", "ntm-moving")]
        chosen += [network_100k(setting, scale, seed) for seed in seeds(scale)]
        chosen += [network(setting, model, scale) for model in ("lstm", "feedforward")]
        chosen += [neighbours(setting, deep, scale) for deep in (False, True)]
        chosen += [keyvalue(setting, scale, seed) for seed in seeds(scale)]
    return [*chosen, convolutional("15-strings", scale)]


def table(records: Records) -> Table:
    rows = []
    for classes, setting in SETTINGS.items():
        for model, label, runs, paper in _rows(records, classes):
            shorter = short_run(records, setting) if model == "mann" else ""
            cells = comparison(label, runs, paper, shorter, training_cost(runs))
            cells += other_reading(runs) if model == "mann" else []
            rows += [[str(classes), *row] for row in cells]
        rows += [[str(classes), *row] for row in beyond(records, setting)]
    columns = ["classes", *header("after 100 000 episodes: 2nd, 5th, 10th", COST)]
    return accuracy_table(TITLE, columns, rows, f"{stated_rates(records)} {REMARKS}")


def figures(records: Records) -> dict[str, Figure]:
    panels = [
        (
            f"{classes} classes, strings as labels",
            [series(label, runs, paper) for _, label, runs, paper in _rows(records, classes)],
        )
        for classes in SETTINGS
    ]
    return {"table2": draw_comparison(panels, SHOWN)}


def _rows(records: Records, classes: int) -> list[tuple[str, str, list[Record], list[float]]]:
    """Network, label, our records and the paper's row."""
    setting = SETTINGS[classes]
    rows = []
    for model, names in ROWS.items():
        if paper := names[list(SETTINGS).index(classes)]:
            single = f"{setting}-{model}"
            runs = [records[single]] if single in records else of_model(records, setting, model)
            label = MODELS[model][0] if model in MODELS else paper
            rows.append((model, label, runs, paper_accuracy("table2", paper, classes)))
    return rows


EXPERIMENT = Experiment(entries, table, figures)
