"""Table 1: test accuracy with one-hot labels."""

from matplotlib.figure import Figure

from mann.experiments.entries import Entry
from mann.experiments.experiment import Experiment
from mann.experiments.networks import (
    MODELS,
    READINGS,
    convolutional,
    framed,
    keyvalue,
    network,
    network_100k,
    seeds,
)
from mann.experiments.records import Records, Table
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

TITLE = "Table 1: 5 classes, one-hot labels, episodes of length 50"
SETTING = "5-onehot"
ROWS = {"feedforward": "Feedforward", "lstm": "LSTM", "mann": "MANN"}  # ours: the paper's name


def entries(scale: Scale) -> list[Entry]:
    if scale == "smoke":
        return [network(SETTING, "mann", scale, tests=READINGS), network(SETTING, "lstm", scale)]
    return [
        *(network(SETTING, "mann", scale, seed) for seed in seeds(scale)),
        *(network_100k(SETTING, scale, seed) for seed in seeds(scale)),
        network(SETTING, "lstm", scale),
        network(SETTING, "feedforward", scale),
        *(framed(SETTING, scale, seed) for seed in seeds(scale)),
        *(keyvalue(SETTING, scale, seed) for seed in seeds(scale)),
        convolutional(SETTING, scale),
    ]


def table(records: Records) -> Table:
    rows = []
    for model, label, paper in _rows():
        runs = of_model(records, SETTING, model)
        shorter = short_run(records, SETTING) if model == "mann" else ""
        rows += comparison(label, runs, paper, shorter, training_cost(runs))
        rows += other_reading(runs) if model == "mann" else []
    rows += beyond(records, SETTING)
    columns = header("after 100 000 episodes: 2nd, 5th, 10th", COST)
    return accuracy_table(TITLE, columns, rows, stated_rates(records))


def figures(records: Records) -> dict[str, Figure]:
    lines = [series(label, of_model(records, SETTING, model), paper) for model, label, paper in _rows()]
    return {"table1": draw_comparison([("5 classes, one-hot labels", lines)], SHOWN)}


def _rows() -> list[tuple[str, str, list[float]]]:
    """Network, label and the paper's row."""
    human = [("human", "Human", paper_accuracy("table1", "Human", 5))]
    return human + [
        (model, MODELS[model][0], paper_accuracy("table1", name, 5)) for model, name in ROWS.items()
    ]


EXPERIMENT = Experiment(entries, table, figures)
