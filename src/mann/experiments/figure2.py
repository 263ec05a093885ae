"""Figure 2: accuracy by instance during training, then on classes never seen, without learning."""

from matplotlib.figure import Figure

from mann.experiments.entries import Entry
from mann.experiments.experiment import Experiment
from mann.experiments.networks import network
from mann.experiments.records import Records, Table
from mann.experiments.scales import Scale
from mann.experiments.tables import accuracy_table, comparison, header
from mann.figures.experiments import draw_learning

TITLE = "Figure 2: accuracy during training and test, LSTM and MANN"
PANELS = {
    "5-onehot-lstm-seed0": "LSTM, 5 classes, one-hot",
    "5-onehot-mann-seed0": "MANN, 5 classes, one-hot",
    "15-strings-lstm-seed0": "LSTM, 15 classes, strings",
    "15-strings-mann-seed0": "MANN, 15 classes, strings",
}


def entries(scale: Scale) -> list[Entry]:
    settings = ("5-onehot",) if scale == "smoke" else ("5-onehot", "15-strings")
    return [network(setting, model, scale) for setting in settings for model in ("mann", "lstm")]


def table(records: Records) -> Table:
    rows = [
        row
        for name, title in PANELS.items()
        if name in records
        for row in comparison(title, [records[name]], None)
    ]
    return accuracy_table(
        TITLE, header(), rows, "Test phase of the figure; the runs are those of Tables 1 and 2."
    )


def figures(records: Records) -> dict[str, Figure]:
    panels = [(title, records[name]) for name, title in PANELS.items() if name in records]
    return {"figure2": draw_learning(panels)} if panels else {}


EXPERIMENT = Experiment(entries, table, figures)
