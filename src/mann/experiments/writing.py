"""Learned writing: what each memory keeps when it is smaller than the episode, and when it is never wiped."""

import dataclasses
from importlib import resources
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from mann.controllers import LSTMConfig, NoControllerConfig
from mann.data import Omniglot
from mann.encoders import MLPConfig, NoEncoder
from mann.experiments.entries import Condition, Entry, Network, Shipped
from mann.experiments.experiment import Experiment
from mann.experiments.networks import PAPER_UPDATES, seeds
from mann.experiments.records import Record, Records, Table
from mann.experiments.scales import Scale, at_scale
from mann.experiments.tables import (
    COST,
    SHOWN,
    accuracies,
    accuracy_table,
    by_label,
    cells,
    in_order,
    markdown_table,
    training_cost,
)
from mann.figures.writing import WritingLine, draw_writing
from mann.memory import DNCConfig, KeyValueConfig, LRUAConfig, MemoryConfig, NTMConfig, SelectiveConfig
from mann.models import ModelConfig
from mann.tasks import Classification
from mann.text import ordinal
from mann.training.config import Config
from mann.training.optimisers import Muon

TITLE = (
    "Learned writing: 32 slots for 200 steps of 15 classes, and 10 classes in a memory that is never wiped"
)
ENCODER = MLPConfig(hidden=256, layers=2, features=128)  # 20×20 pixels go in
LEARNED = "selective (learned)"
BLIND = "selective, blind to the null label"
LRUA = "LRUA"
LONGER = "LRUA, `omniglot-15-strings` as it ships"
WIPED_AFTER = 20  # episodes, in training: otherwise only old memories would be met there


class Row(NamedTuple):
    """A memory, and how much it is trained."""

    label: str
    memory: MemoryConfig
    updates: int
    runs: int = 2


MEMORIES = {  # those with a controller learn slowly, and the DNC is slow: it has a matrix of slots by slots
    "lrua": Row(LRUA, LRUAConfig(), PAPER_UPDATES),
    "ntm": Row("NTM access", NTMConfig(initial_strength=10.0, initial_heads="moving"), PAPER_UPDATES, runs=1),
    "dnc": Row("DNC", DNCConfig(), 2500, runs=1),
    "keyvalue": Row("key and value, ring", KeyValueConfig(width=64), 3000),
    "selective": Row(LEARNED, SelectiveConfig(), 3000),
    "blind": Row(BLIND, SelectiveConfig(sees_null=False), 3000),
}


@dataclasses.dataclass(frozen=True)
class Setting:
    """Where writing matters."""

    name: str
    label: str
    task: Classification
    slots: int
    persistent: bool = False


SMALL = Setting("small", "32 slots", Classification(classes=15, length=200, labels="strings"), 32)
KEPT = Setting("kept", "kept", Classification(classes=10, length=75), 128, persistent=True)
WIPED = dataclasses.replace(KEPT, name="wiped", label="wiped", persistent=False)
SETTINGS = {setting.label: setting for setting in (SMALL, KEPT, WIPED)}


def config(setting: Setting, memory: str, seed: int = 0) -> Config:
    """A memory in a setting. Those that take key and label straight from the input have an encoder and no
    controller; those that a controller drives see pixels, as in the paper."""
    row = MEMORIES[memory]
    chosen = row.memory.with_slots(setting.slots)
    driven = chosen.takes_query
    model = ModelConfig(
        encoder=NoEncoder() if driven else ENCODER,
        controller=LSTMConfig() if driven else NoControllerConfig(),
        memory=chosen,
        reads_to_controller=driven,
        precision="bfloat16",
    )
    return Config(
        task=setting.task,
        model=model,
        data=Omniglot(mirror=True),
        optimiser=Muon() if driven else Muon(warmup=100),
        updates=row.updates,
        evaluate_every=250,
        averaging=0.999 if driven else 0.99,
        persistent=setting.persistent,
        wiped_after=WIPED_AFTER if setting.persistent else 0,
        seed=seed,
    )


def _entry(setting: Setting, memory: str, scale: Scale, seed: int) -> Network:
    made = config(setting, memory, seed)
    if scale == "smoke":
        made = dataclasses.replace(made, model=dataclasses.replace(made.model, encoder=SMALLEST))
    label = f"{MEMORIES[memory].label}: {setting.label}"
    return Network(f"writing-{setting.name}-{memory}-seed{seed}", label, at_scale(made, scale))


SMALLEST = MLPConfig(hidden=8, layers=1, features=8)


def entries(scale: Scale) -> list[Entry]:
    """The first seed of all, then the second."""
    if scale == "smoke":
        return [_entry(WIPED, "keyvalue", scale, 0)]  # whole episodes at once: the fastest to compile
    trained = [
        _entry(setting, memory, scale, seed)
        for seed in seeds(scale)
        for setting in (SMALL, KEPT, WIPED)
        for memory, row in MEMORIES.items()
        if seed < row.runs and (memory != "blind" or setting is KEPT)  # where there is anything to notice
    ]
    return [*trained, _longer()]


def _longer() -> Shipped:
    """LRUA as the paper has it, trained for longer and with room for all; its weights fit any number of slots."""
    test = Condition(classes=SMALL.task.classes, length=SMALL.task.steps, slots=SMALL.slots)
    return Shipped("writing-small-shipped", f"{LONGER}: {SMALL.label}", "omniglot-15-strings", (test,))


def _runs(records: Records) -> dict[tuple[str, str], list[Record]]:
    """The runs of every memory in every setting, by their labels."""
    found = by_label(in_order(entries("full"), records))
    return {(label.rsplit(": ", 1)[0], label.rsplit(": ", 1)[1]): runs for label, runs in found.items()}


def table(records: Records) -> Table:
    columns = ["where", "memory", *(ordinal(i) for i in SHOWN), COST]
    runs = _runs(records)
    rows = [
        [_where(setting), memory, *cells(of), training_cost(of)]
        for setting in SETTINGS
        for (memory, found), of in runs.items()
        if found == setting
    ]
    return accuracy_table(TITLE, columns, rows, NOTE)


def _where(label: str) -> str:
    setting = SETTINGS[label]
    what = "" if setting is SMALL else f", memory {setting.label}"
    return f"{setting.task.classes} classes, {setting.task.steps} steps, {setting.slots} slots{what}"


NOTE = (
    "LRUA, NTM and DNC see 20×20 pixels, as in the paper, and have an LSTM of 200 units, 4 read heads and slots of "
    f"40 numbers; the ring and the selective memory have an encoder of {ENCODER.layers} layers of {ENCODER.hidden} "
    "units, no controller, keys of 64 numbers and the labels themselves. `omniglot-15-strings` was trained for "
    "35 000 updates with 128 slots. Kept: in training the memory is "
    f"wiped after {WIPED_AFTER} episodes; test episodes follow one another without a wipe, the first after ten "
    "that do not count."
)


def _means(runs: list[Record]) -> np.ndarray | None:
    """By instance in %, over the runs; None without any."""
    return np.mean([accuracies(run) for run in runs], axis=0) if runs else None


def figures(records: Records) -> dict[str, Figure]:
    runs = _runs(records)
    memories = list(dict.fromkeys(memory for memory, _ in runs))
    lines = [
        WritingLine(
            memory.replace("`", ""), *(_means(runs.get((memory, setting), [])) for setting in SETTINGS)
        )
        for memory in memories
    ]
    return {"writing": draw_writing(lines)} if lines else {}


def page(records: Records) -> str:
    """docs/writing.md: the text in `writing.md` with what was measured."""
    results = table(records)
    text = (resources.files("mann") / "experiments" / "writing.md").read_text()
    return text.format(
        results=markdown_table(results.columns, results.rows), note=results.note, verdict=_verdict(records)
    )


def _verdict(records: Records) -> str:
    """How far each memory falls behind a wiped one, and what is won at 32 slots, in words."""
    runs = _runs(records)
    means = {key: _means(of) for key, of in runs.items()}
    sentences = []
    for row in MEMORIES.values():
        kept = means.get((row.label, KEPT.label))
        wiped = means.get((LEARNED if row.label == BLIND else row.label, WIPED.label))
        if kept is not None and wiped is not None:
            behind = (wiped - kept)[1:]  # on the 1st there is nothing to know
            worst = int(np.nanargmax(behind))
            sentences.append(
                f"- {row.label}: kept, it is at most {max(behind[worst], 0.0):.1f} points behind wiped, on the "
                f"{ordinal(worst + 2)} instance."
            )
    tenth = {
        memory: mean[9]
        for (memory, where), mean in means.items()
        if where == SMALL.label and mean is not None
    }
    lrua = max((tenth[label] for label in (LRUA, LONGER) if label in tenth), default=None)
    for row in MEMORIES.values():
        if row.label != LRUA and row.label in tenth and lrua is not None:
            difference = tenth[row.label] - lrua
            sentences.append(
                f"- {row.label}: with {SMALL.slots} slots, {abs(difference):.1f} points "
                f"{'above' if difference > 0 else 'below'} the better LRUA on the 10th instance."
            )
    return "\n".join(sentences) or "The rows that would tell have not all been measured yet."


EXPERIMENT = Experiment(entries, table, figures, page)
