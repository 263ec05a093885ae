"""Figure 4: one class more every so often up to 25, then tests with 50, 55, … 100 classes."""

from matplotlib.figure import Figure

from mann.experiments.entries import Condition, Entry
from mann.experiments.experiment import Experiment
from mann.experiments.networks import network, seeds
from mann.experiments.records import Records, Table
from mann.experiments.scales import Scale
from mann.experiments.tables import accuracy_table, cells, header, of_model
from mann.figures.experiments import draw_capacity, draw_learning
from mann.tasks import Classification
from mann.training.config import CurriculumConfig

TITLE = "Curriculum: 15 to 25 classes in training, 50 to 100 in the test"
TEST_SIZES = tuple(range(50, 101, 5))
SUFFIX = "-curriculum"


def entries(scale: Scale) -> list[Entry]:
    sizes = (5, 6) if scale == "smoke" else TEST_SIZES
    return [
        network(
            "15-strings",
            "mann",
            scale,
            seed,
            suffix=SUFFIX,
            label="MANN, curriculum",
            tests=(Condition(), *(Condition(classes=classes) for classes in sizes)),
            task=Classification(classes=25, labels="strings"),
            curriculum=CurriculumConfig(every=600, start=15),
            updates=10_000,
        )
        for seed in seeds(scale)
    ]


def table(records: Records) -> Table:
    rows = []
    if runs := of_model(records, "15-strings", "mann", SUFFIX):
        for i, test in enumerate(runs[0]["evaluations"]):
            rows.append([str(test["classes"]), str(test["length"]), *cells(runs, i)])
    note = (
        "The paper shows curves only. One class more every 600 updates (9600 episodes; the paper: 10 000), the "
        "last 4000 updates with 25. The curve is of the first run, on held-out classes, always 25 in an episode; "
        "the figure of the tests shows the mean of the runs and a band over their 95 % intervals."
    )
    return accuracy_table(TITLE, ["classes in the test", "length", *header()[2:]], rows, note)


def figures(records: Records) -> dict[str, Figure]:
    runs = of_model(records, "15-strings", "mann", SUFFIX)
    if not runs:
        return {}
    title = "MANN, 15 to 25 classes in training, measured with 25"
    return {
        "curriculum-training": draw_learning([(title, runs[0])]),
        "curriculum-test": draw_capacity([record["evaluations"][1:] for record in runs]),
    }


EXPERIMENT = Experiment(entries, table, figures)
