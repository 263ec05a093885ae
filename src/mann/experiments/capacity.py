"""Many classes: accuracy with 25 to 400 of them, dense and sparse access, and what a step costs by the slots."""

from importlib import resources
from typing import Any

from matplotlib.figure import Figure

from mann.data import DataConfig, Glyphs
from mann.experiments.cost import Cost
from mann.experiments.entries import Condition, Entry, Shipped
from mann.experiments.experiment import Experiment
from mann.experiments.records import Record, Records, Table
from mann.experiments.scales import Scale
from mann.experiments.tables import accuracies, accuracy_table, half_widths, in_order, markdown_table, number
from mann.figures.experiments import CostLine, Line, draw_cost, draw_many_classes
from mann.paper import many_classes, step_cost
from mann.text import ordinal

TITLE = "Capacity: 25 to 400 classes of 10 shows each, dense and sparse access"
CLASSES = (25, 50, 100, 200, 400)
NETWORKS = {  # that ship, with K (0: dense) and slots, which are choices at test time
    "omniglot-15-strings": ((0, 128), (0, 1024), (0, 4096), (8, 128), (8, 1024), (8, 4096), (8, 16384)),
    "omniglot-many": ((0, 1024), (0, 4096), (8, 4096)),
}
NEIGHBOURS = 8
SHARE = 0.1  # of the test episodes: 5000 first instances, as many second ones, and so on
SIZES = tuple(2**power for power in range(7, 21))  # slots whose cost is measured
LONG, LONG_SLOTS = 1000, 65536  # an episode as long as that, in a memory as large
SHOWN = (1, 2, 3, 5, 6, 10)  # the 2nd and 6th instance: after one show, after five


def entries(scale: Scale) -> list[Entry]:
    """Every network under every kind of access, then the cost of a step.

    A network that is trained for this is a `Network` with the tests of `tests`, for each kind of access.
    """
    if scale == "smoke":
        glyphs = Glyphs(classes=100, validation=15)
        return [
            _shipped("omniglot-15-strings", 4, 64, (3,), glyphs),
            _cost(NEIGHBOURS, (16, 32), steps=5, seconds=0.05),
        ]
    return [
        *(_shipped(name, k, slots, CLASSES) for name, access in NETWORKS.items() for k, slots in access),
        *(_cost(k, SIZES) for k in (0, NEIGHBOURS)),
        _cost(NEIGHBOURS, (LONG_SLOTS,), steps=LONG),
    ]


def _shipped(
    model: str, neighbours: int, slots: int, classes: tuple[int, ...], data: DataConfig | None = None
) -> Shipped:
    name = f"{model}-{_access(neighbours)}-{slots}"
    return Shipped(name, model, model, tests(neighbours, slots, classes), data)


def _cost(neighbours: int, slots: tuple[int, ...], **changes: Any) -> Cost:
    access, steps = _access(neighbours), changes.get("steps", 0)
    name, label = f"cost-{access}", f"{access} access"
    if steps == LONG:
        name, label = f"{name}-long", f"{label}, {LONG} steps"
    return Cost(name, label, neighbours, slots, **changes)


def tests(neighbours: int, slots: int, classes: tuple[int, ...] = CLASSES) -> tuple[Condition, ...]:
    """Ten shows of every class; as many steps with few classes as with many."""
    return tuple(
        Condition(
            classes=count,
            balanced=True,
            slots=slots,
            neighbours=neighbours,
            share=SHARE * min(1.0, CLASSES[0] / count),
        )
        for count in classes
    )


def _access(neighbours: int) -> str:
    return "sparse" if neighbours else "dense"


def _measured(records: Records) -> list[Record]:
    """Records with accuracies: those of `entries` in their order, then any others."""
    listed = in_order(entries("full"), records)
    others = [record for record in records.values() if record not in listed]
    return [record for record in [*listed, *others] if "evaluations" in record]


def table(records: Records) -> Table:
    columns = ["network", "access", "slots", "classes", *(ordinal(i) for i in SHOWN), "all ten"]
    rows = []
    for record in _measured(records):
        for place, test in enumerate(record["tests"]):
            value, half = accuracies(record, place), half_widths(record, place)
            access = f"K = {test['neighbours']}" if test["neighbours"] else "dense"
            rows.append(
                [record["label"], access, str(test["slots"] or "as trained"), str(test["classes"])]
                + [number(value[i - 1], f" ±{half[i - 1]:.1f}") for i in SHOWN]
                + [number(value.mean())]
            )
    return accuracy_table(TITLE, columns, rows + _published(), _note(records))


def _published() -> list[list[str]]:
    """What others reached, where it belongs in the table."""
    rows = []
    for row in many_classes():
        after = {int(shows) + 1: f"{value:.1f}" for shows, value in row.get("after", {}).items()}
        ours = [row["source"], row.get("access", ""), "", str(row["classes"])]
        rows.append(ours + [after.get(i, "") for i in SHOWN] + [row.get("all_ten", "")])
    return rows


def _note(records: Records) -> str:
    parts = [
        "Every class is shown ten times; the 2nd instance comes after one show, the 6th after five. The last "
        "column is the mean over all ten. Rae et al. report the error over all shows (below 0.2 and 0.4), Ramalho "
        "& Garnelo the accuracy after one show and after five.",
    ]
    for record in in_order(entries("full"), records):
        for cost in record.get("costs", []):
            if cost["slots"] in (1024, 65536, 1048576):
                parts.append(
                    f"{record['label'].capitalize()}, {_thousands(cost['slots'])} slots: {_told(cost)}."
                )
    return " ".join(parts)


def _told(cost: dict[str, Any]) -> str:
    trained = "training too large for this machine"
    if cost["training_ms"] is not None:
        trained = f"training {_short(cost['training_ms'])} ms per step"
    return f"{trained}, online {_short(cost['online_ms'])} ms"


def _short(value: float) -> str:
    """Two digits that count, and never less than whole numbers."""
    return f"{value:.2g}" if value < 100 else f"{value:.0f}"


def _thousands(count: int) -> str:
    return f"{count:,}".replace(",", " ")


def figures(records: Records) -> dict[str, Figure]:
    drawn = {}
    measured, costs = _measured(records), [record for record in records.values() if record.get("costs")]
    if measured:
        lines = [
            Line(
                record["label"],
                bool(test["neighbours"]),
                test["slots"],
                [t["classes"] for t in record["tests"]],
                [accuracies(record, i) for i in range(len(record["tests"]))],
            )
            for record in measured
            for test in record["tests"][:1]
        ]
        drawn["capacity"] = draw_many_classes(lines, (2, 10), _published_points())
    if costs:
        drawn["capacity-cost"] = draw_cost(
            [
                CostLine(record["label"], record["label"].startswith("sparse"), record["costs"])
                for record in costs
                if len(record["costs"]) > 1
            ]
        )
    return drawn


def _published_points() -> list[tuple[str, int, int, float]]:
    """Source, instance, classes and accuracy."""
    return [
        (row["source"], int(shows) + 1, row["classes"], value)
        for row in many_classes()
        for shows, value in row.get("after", {}).items()
        if int(shows) == 1 and row["classes"] <= 2 * CLASSES[-1]
    ]


def page(records: Records) -> str:
    """docs/capacity.md: the text in `capacity.md` with what was measured."""
    results = table(records)
    text = (resources.files("mann") / "experiments" / "capacity.md").read_text()
    return text.format(
        results=markdown_table(results.columns, results.rows), note=results.note, costs=_costs(records)
    )


def _costs(records: Records) -> str:
    """Time and memory by slots, with what was published."""
    columns = [
        "access",
        "slots",
        "training: ms per step",
        "training: MB of an episode",
        "online: ms per step",
    ]
    rows = []
    for record in in_order(entries("full"), records):
        for cost in record.get("costs", []):
            trained, memory = cost["training_ms"], cost["training_bytes"]
            rows.append(
                [
                    record["label"],
                    _thousands(cost["slots"]),
                    "–" if trained is None else _short(trained),
                    "–" if memory is None else _short(memory / 1e6),
                    _short(cost["online_ms"]),
                ]
            )
    for row in step_cost():
        trained, memory = row.get("training_ms"), row.get("training_mb")
        rows.append(
            [
                row["source"],
                _thousands(row["slots"]),
                "" if trained is None else _short(trained),
                "" if memory is None else _short(memory),
                "",
            ]
        )
    return markdown_table(columns, rows)


EXPERIMENT = Experiment(entries, table, figures, page)
