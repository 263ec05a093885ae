"""The baselines' own learning rates, chosen on held-out training classes; no test class is touched."""

import math

from mann.experiments.entries import Entry
from mann.experiments.experiment import Experiment
from mann.experiments.networks import network
from mann.experiments.records import Records, Table
from mann.experiments.scales import Scale
from mann.experiments.tables import in_order, number
from mann.text import ordinal

TITLE = "Learning rates, by accuracy on held-out training classes"
RATES = (3e-4, 1e-3, 3e-3, 1e-2)
MODELS = ("lstm", "mann-feedforward", "ntm", "ntm-moving")
UPDATES = 2500
SHOWN = (2, 5, 10)


def entries(scale: Scale) -> list[Entry]:
    return [
        network(
            "5-strings",
            model,
            scale,
            suffix=f"-rate{rate:g}",
            tests=(),
            updates=UPDATES,
            optimiser__learning_rate=rate,
        )
        for model in MODELS[: 1 if scale == "smoke" else None]
        for rate in RATES[: 1 if scale == "smoke" else None]
    ]


def table(records: Records) -> Table:
    rows = []
    for record in in_order(entries("full"), records):
        rate = record["config"]["optimiser"]["learning_rate"]
        last = record["metrics"][-1]
        values = [last["accuracy"][i - 1] for i in SHOWN]
        cells = [number(math.nan if value is None else 100 * value) for value in values]
        rows.append([record["label"], f"{rate:g}", f"{last['held_out_loss']:.3f}", *cells])
    columns = ["network", "learning rate", "held-out loss", *(ordinal(i) for i in SHOWN)]
    note = (
        f"5 classes, string labels, {UPDATES} updates. The feed-forward network without a memory cannot know an "
        "episode's labels, and keeps the preset's rate. Even start: every move of the NTM's heads is as likely as "
        "any other; otherwise its write head starts out stepping on by a slot, its read heads by content, β at 10."
    )
    return Table(TITLE, columns, rows, note)


EXPERIMENT = Experiment(entries, table)
