"""RoamingOmniglot: streams that wander between alphabets, beside what Ren et al. (2021) published."""

import dataclasses
from importlib import resources

import numpy as np

from mann.encoders import ConvStackConfig
from mann.experiments.entries import Condition, Entry, Network
from mann.experiments.experiment import Experiment
from mann.experiments.networks import with_changes
from mann.experiments.peers import PEERS
from mann.experiments.records import Record, Records, Table
from mann.experiments.scales import Scale, at_scale
from mann.experiments.tables import by_label, in_order, markdown_table, training_cost
from mann.paper import roaming
from mann.tasks.roaming import SHOTS
from mann.training.config import Config
from mann.training.presets import PRESETS

TITLE = "RoamingOmniglot: streams of up to 150 pictures, known or new before the class"
CONTEXTS = ("alphabet", "mixture")  # that the networks are tested in; they are trained in the first
COMPARED = ("balanced", "prototypes")  # ours, and what is closest to it; the others were published


def config(peer: str, seed: int = 0) -> Config:
    """`omniglot-roaming` with another memory."""
    return with_changes(PRESETS["omniglot-roaming"], seed=seed, **PEERS[peer][1])


def entries(scale: Scale) -> list[Entry]:
    tests = tuple(Condition(context=context) for context in CONTEXTS)
    if scale == "smoke":
        small = config("matching")
        encoder = ConvStackConfig(maps=(16,), strides=(3,), features=8)
        small = dataclasses.replace(small, model=dataclasses.replace(small.model, encoder=encoder))
        return [Network("roaming-matching-seed0", PEERS["matching"][0], at_scale(small, scale), tests[:1])]
    seeds = (0, 1) if scale == "full" else (0,)
    return [
        Network(f"roaming-{peer}-seed{seed}", PEERS[peer][0], at_scale(config(peer, seed), scale), tests)
        for seed in seeds
        for peer in COMPARED
    ]


def _cells(runs: list[Record], test: int) -> list[str]:
    """Average precision, and accuracy after one and three shows: of a run with its interval, or of several."""
    of = [run["evaluations"][test] for run in runs]
    measured = [
        [(e["average_precision"], e["low"], e["high"]) for e in of],
        *(
            [tuple(e["instances"][shots][key] for key in ("accuracy", "low", "high")) for e in of]
            for shots in SHOTS
        ),
    ]
    cells = []
    for values in measured:
        value, low, high = (
            100 * np.array([np.nan if x is None else x for x in v], float) for v in zip(*values, strict=True)
        )
        if np.isnan(value).any():
            cells.append("–")
        elif len(value) == 1:
            cells.append(f"{value[0]:.2f} ±{(high[0] - low[0]) / 2:.2f}")
        else:
            cells.append(f"{value.mean():.2f} [{value.min():.2f}, {value.max():.2f}]")
    return cells


def table(records: Records) -> Table:
    columns = [
        "network",
        "source",
        "a context is",
        "average precision",
        "after 1 show",
        "after 3 shows",
        "training",
    ]
    rows = []
    for label, runs in by_label(in_order(entries("full"), records)).items():
        for test, tested in enumerate(runs[0]["tests"]):
            rows.append([label, "ours", WORDS[tested["context"]], *_cells(runs, test), training_cost(runs)])
    for row in roaming():
        values = (row[key] for key in ("average_precision", "after_1", "after_3"))
        rows.append(
            [row["model"], row["source"], "", *(f"{value:.2f}" for value in values), row.get("training", "")]
        )
    return Table(TITLE, columns, rows, NOTE)


WORDS = {"alphabet": "an alphabet", "mixture": "a mixture"}

NOTE = (
    "In %, on streams of the 13 test alphabets. Average precision: area under precision and recall of naming what "
    "is known, over all pictures together. After 1 and 3 shows: accuracy where it must be named. One run: ± half "
    "of the 95 % interval; several: their mean, and [lowest, highest]. Training: updates / streams / time."
)


def page(records: Records) -> str:
    """docs/roaming.md: the text in `roaming.md` with what was measured."""
    results = table(records)
    text = (resources.files("mann") / "experiments" / "roaming.md").read_text()
    return text.format(results=markdown_table(results.columns, results.rows), note=results.note)


EXPERIMENT = Experiment(entries, table, page=page)
