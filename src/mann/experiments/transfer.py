"""Does it learn to learn, or Omniglot? Trained on glyphs and tested on Omniglot, and the other way round."""

from mann.experiments.entries import Entry, Record, Scale, Table, Test
from mann.experiments.networks import network, seeds
from mann.experiments.tables import by_label, cells, header, in_order, with_title
from mann.training.config import DataConfig

TITLE = "Transfer: 5 classes, one-hot labels, trained on one data set and tested on the other"
SETS = {"glyphs": DataConfig(name="glyphs"), "omniglot": DataConfig(name="omniglot")}
UPDATES = 6250
TESTS = (Test(dataset="omniglot"), Test(dataset="glyphs"))


def entries(scale: Scale) -> list[Entry]:
    tests = (Test(dataset="glyphs"),) if scale == "smoke" else TESTS
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


def table(records: dict[str, Record]) -> Table:
    rows = [
        [label, tested["dataset"], *cells(found, i)]
        for label, found in by_label(in_order(entries("full"), records)).items()
        for i, tested in enumerate(found[0]["evaluations"])
    ]
    note = (
        "Only test classes of either set. The shapes of the glyphs are made by rules; the constants in these rules "
        "were chosen by summary statistics of all 1623 Omniglot classes (ink, size, difficulty for 1-NN)."
    )
    return with_title(TITLE, ["trained on", "tested on", *header()[2:]], rows, note)
