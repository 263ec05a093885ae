"""Does it learn to learn, or Omniglot? Trained on glyphs and tested on Omniglot, and the other way round."""

from mann.data import Glyphs, Omniglot
from mann.experiments.entries import Condition, Entry
from mann.experiments.experiment import Experiment
from mann.experiments.networks import network, seeds
from mann.experiments.records import Records, Table
from mann.experiments.scales import Scale
from mann.experiments.tables import accuracy_table, by_label, cells, header, in_order

TITLE = "Transfer: 5 classes, one-hot labels, trained on one data set and tested on the other"
SETS = {"glyphs": Glyphs(), "omniglot": Omniglot()}
UPDATES = 6250
TESTS = (Condition(dataset="omniglot"), Condition(dataset="glyphs"))


def entries(scale: Scale) -> list[Entry]:
    tests = (Condition(),) if scale == "smoke" else TESTS  # as trained: all glyphs take a while to draw
    return [
        network(
            "5-onehot",
            "mann",
            scale,
            seed,
            suffix=f"-{name}",
            label=name,
            tests=tests,
            data=data,
            updates=UPDATES,
        )
        for name, data in SETS.items()
        for seed in seeds(scale)
        if scale != "smoke" or name == "glyphs"
    ]


def table(records: Records) -> Table:
    rows = [
        [label, test["dataset"], *cells(runs, i)]
        for label, runs in by_label(in_order(entries("full"), records)).items()
        for i, test in enumerate(runs[0]["evaluations"])
    ]
    note = (
        "Only test classes of either set. The shapes of the glyphs are made by rules; the constants in these rules "
        "were chosen by summary statistics of all 1623 Omniglot classes (ink, size, difficulty for 1-NN)."
    )
    return accuracy_table(TITLE, ["trained on", "tested on", *header()[2:]], rows, note)


EXPERIMENT = Experiment(entries, table)
