"""Figure 4: one class more every so often up to 25, then tests with 50, 55, … 100 classes."""

from pathlib import Path

from mann.episodes import Classification
from mann.experiments.entries import Entry, Record, Scale, Table, Test
from mann.experiments.networks import network, seeds
from mann.experiments.tables import cells, header, of_model, with_title
from mann.figures import draw_capacity, draw_learning
from mann.training.config import CurriculumConfig

TITLE = "Curriculum: 15 to 25 classes in training, 50 to 100 in the test"
TESTED = tuple(range(50, 101, 5))
SUFFIX = "-curriculum"


def entries(scale: Scale) -> list[Entry]:
    tested = (5, 6) if scale == "smoke" else TESTED
    return [
        network(
            "15-strings",
            "mann",
            scale,
            seed,
            suffix=SUFFIX,
            label="MANN, curriculum",
            tests=(Test(), *(Test(classes=classes) for classes in tested)),
            task=Classification(classes=25, labels="strings"),
            curriculum=CurriculumConfig(every=600, start=15),
            updates=10_000,
        )
        for seed in seeds(scale)
    ]


def table(records: dict[str, Record]) -> Table:
    rows = []
    if found := of_model(records, "15-strings", "mann", SUFFIX):
        for i, tested in enumerate(found[0]["evaluations"]):
            rows.append([str(tested["classes"]), str(tested["length"]), *cells(found, i)])
    note = (
        "The paper shows curves only. One class more every 600 updates (9600 episodes; the paper: 10 000), the "
        "last 4000 updates with 25. The curve is of the first run, on held-out classes, always 25 in an episode; "
        "the figure of the tests shows the mean of the runs and a band over their 95 % intervals."
    )
    return with_title(TITLE, ["classes in the test", "length", *header()[2:]], rows, note)


def figures(records: dict[str, Record], folder: Path) -> list[Path]:
    found = of_model(records, "15-strings", "mann", SUFFIX)
    if not found:
        return []
    title = "MANN, 15 to 25 classes in training, measured with 25"
    learning = draw_learning([(title, found[0])], folder, "curriculum-training")
    tests = [record["evaluations"][1:] for record in found]
    return learning + draw_capacity(tests, folder, "curriculum-test")
