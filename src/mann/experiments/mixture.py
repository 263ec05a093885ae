"""Many kinds of pictures in one network: trained on all sources but one, and tested on the one left out.

A network takes about 5 minutes of one core, in colour 6, and its tests about 3: between three and four hours of one
core for both seeds of all. The largest needs 5 GB of memory while it loads its pictures.
"""

import dataclasses
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from rich.progress import Progress

from mann.data import (
    DataConfig,
    Digits,
    Glyphs,
    Letters,
    Mixture,
    Objects,
    Omniglot,
    Photographs,
    Textures,
)
from mann.encoders import ConvStackConfig
from mann.experiments.entries import Condition, Entry, Network, evaluate_under
from mann.experiments.experiment import Experiment
from mann.experiments.networks import seeds
from mann.experiments.records import Record, Records, Table
from mann.experiments.scales import Scale, at_scale
from mann.experiments.tables import (
    COST,
    SHOWN,
    accuracies,
    accuracy_table,
    cells,
    in_order,
    markdown_table,
    number,
    training_cost,
)
from mann.figures.mixture import Bars, draw_mixture
from mann.parts import from_dict, to_dict
from mann.teaching import teach_once
from mann.text import ordinal
from mann.trained import Trained, load_trained
from mann.training.config import Config
from mann.training.presets import mixed

TITLE = "Mixture: trained on all kinds of pictures but one, tested on the one left out"
CLASSES = 5  # of an episode of the rows by instance
THINGS = (5, 10, 20, 100)  # taught once, as far as there are classes
ALL, OMNIGLOT, ITSELF = "all others", "Omniglot alone", "itself alone"
JUDGED = 2  # the instance that the figure and the sentences are about


class Source(NamedTuple):
    """A kind of pictures, and how many of its test classes can be taught."""

    data: DataConfig
    things: tuple[int, ...] = THINGS


GREY = {
    "omniglot": Source(Omniglot()),
    "glyphs": Source(Glyphs()),
    "letters": Source(Letters()),
    "textures": Source(Textures()),
    "digits": Source(Digits(), things=(5, 10)),
}
COLOUR = {
    "omniglot": Source(Omniglot()),
    "glyphs": Source(Glyphs()),
    "letters": Source(Letters()),
    "textures": Source(Textures()),
    "objects": Source(Objects()),
    "photographs": Source(Photographs(), things=(5, 20)),
}
ONLY_TESTED = ("digits", "photographs")  # with too few classes to train on
ASKED = {"": tuple(GREY), "colour-": ("objects", "photographs")}  # left out in turn


@dataclasses.dataclass(frozen=True)
class Transferred(Network):
    """A network that is tested on several data sets, by instance and taught once; one condition for each."""

    targets: tuple[Source, ...] = ()
    trials: int = 0
    """For each number of things taught; 0 for about 2000 questions."""

    def description(self) -> dict[str, Any]:
        targets = [{"data": to_dict(data), "things": list(things)} for data, things in self.targets]
        return super().description() | {"targets": targets, "trials": self.trials}

    def matches(self, record: Record) -> bool:
        content: dict[str, Any] = dict(record)
        targets = tuple(
            Source(from_dict(DataConfig, target["data"]), tuple(target["things"]))  # type: ignore[type-abstract]
            for target in content["targets"]
        )
        same = targets == self.targets and content["trials"] == self.trials
        return same and super().matches(record)

    def test(self, trained: Trained, episodes: int) -> list[dict[str, Any]]:
        return [
            evaluate_under(trained, test, episodes, target.data).to_json()
            for test, target in zip(self.tests, self.targets, strict=True)
        ]

    def measure(self, folder: Path, episodes: int) -> Record | None:
        for data, _ in self.targets:
            if data.kind in ONLY_TESTED:
                data.load()  # if scikit-learn is missing, better now than after the training
        record = super().measure(folder, episodes)
        if record is None:
            return None
        trained = load_trained(folder)._replace(name=self.name)
        taught = []
        with Progress(transient=True) as bar:
            bar_id = bar.add_task(f"teaching {self.name}", total=None)
            for data, things in self.targets:
                rows = teach_once(
                    trained,
                    things,
                    dataset=data,
                    trials=self.trials,
                    progress=lambda done, total: bar.update(bar_id, completed=done, total=total),
                )
                taught += [row.to_json() | {"dataset": data.kind} for row in rows]
        return record | {"taught_once": taught}


def config(prefix: str, kinds: tuple[str, ...], seed: int = 0) -> Config:
    """A network for the sources of these kinds, grey or in colour."""
    known = COLOUR if prefix else GREY
    sources = tuple(known[kind].data for kind in kinds)
    if prefix:  # more drawings, or mirrored ones, are more than the device can address
        data = Mixture(sources=sources, side=32, validation=50, drawings=10, colour=True)
    else:
        data = Mixture(sources=sources, side=28, validation=50, mirror=True)
    return dataclasses.replace(mixed(data), seed=seed)


def _entry(
    prefix: str,
    name: str,
    label: str,
    kinds: tuple[str, ...],
    targets: tuple[str, ...],
    scale: Scale,
    seed: int,
) -> Transferred:
    return Transferred(
        f"mixture-{prefix}{name}-seed{seed}",
        label,
        at_scale(config(prefix, kinds, seed), scale),
        tuple(Condition(classes=CLASSES, dataset=kind) for kind in targets),
        targets=tuple((COLOUR if prefix else GREY)[kind] for kind in targets),
    )


def entries(scale: Scale) -> list[Entry]:
    """For every source that is left out: all others; and each source alone, of which Omniglot meets all others."""
    if scale == "smoke":
        return [_smallest()]
    made: list[Entry] = []
    for seed in seeds(scale):
        for prefix, asked in ASKED.items():
            known = COLOUR if prefix else GREY
            trainable = tuple(kind for kind in known if kind not in ONLY_TESTED)
            for kind in asked:
                others = tuple(other for other in trainable if other != kind)
                made.append(
                    _entry(prefix, f"without-{kind}", f"all but {kind}", others, (kind,), scale, seed)
                )
            made.append(_entry(prefix, "only-omniglot", "omniglot alone", ("omniglot",), asked, scale, seed))
            for kind in asked:
                if kind in trainable and kind != "omniglot":
                    beside = tuple(other for other in asked if prefix and other in ONLY_TESTED)
                    tested = (kind, *beside)
                    made.append(_entry(prefix, f"only-{kind}", f"{kind} alone", (kind,), tested, scale, seed))
    return made


def _smallest() -> Transferred:
    """Tiny: trained on glyphs, tested on textures."""
    textures = Textures(classes=16, drawings=4)
    small = config("", ("glyphs",))
    model = dataclasses.replace(small.model, encoder=ConvStackConfig(maps=(16,), strides=(3,), features=8))
    task = small.task.resized(classes=4, alphabets="across")
    small = at_scale(dataclasses.replace(small, model=model, task=task, batch=2), "smoke")
    data = Mixture(sources=(Glyphs(classes=40), textures), without="textures", side=12, validation=6)
    return Transferred(
        "mixture-without-textures-seed0",
        "all but textures",
        dataclasses.replace(small, data=data),
        (Condition(classes=3, length=6, dataset="textures"),),
        targets=(Source(textures, things=(3,)),),
        trials=2,
    )


class Row(NamedTuple):
    """What networks of one kind of training do on one source."""

    prefix: str
    source: str
    trained_on: str
    runs: list[Record]
    test: int  # which of their tests it is

    def taught(self, things: int) -> list[float]:
        """Right in %, of so many things taught once, for each run; empty if so many were not."""
        return [
            100 * row["accuracy_forced"]
            for run in self.runs
            for row in run["taught_once"]
            if row["things"] == things and row["dataset"] == self.source
        ]


def _rows(records: Records) -> list[Row]:
    """Source by source: all others, Omniglot alone, itself alone."""
    found = in_order(entries("full"), records)
    rows = []
    for prefix, asked in ASKED.items():
        for kind in asked:
            own = "only-objects" if kind == "photographs" else f"only-{kind}"
            ways = {f"without-{kind}": ALL, "only-omniglot": OMNIGLOT}
            ways.setdefault(own, "objects alone" if kind == "photographs" else ITSELF)
            for name, trained_on in ways.items():
                start = f"mixture-{prefix}{name}-seed"
                runs = [record for record in found if record["name"].startswith(start)]
                tests = [test["dataset"] for test in runs[0]["tests"]] if runs else []
                if kind in tests:
                    rows.append(Row(prefix, kind, trained_on, runs, tests.index(kind)))
    return rows


def table(records: Records) -> Table:
    columns = ["tested on", "trained on", *(ordinal(i) for i in SHOWN)]
    columns += [f"taught {things} once" for things in THINGS] + [COST]
    rows = []
    for row in _rows(records):
        taught = [_spread(row.taught(things)) for things in THINGS]
        source = f"{row.source}, in colour" if row.prefix else row.source
        rows.append([source, row.trained_on, *cells(row.runs, row.test), *taught, training_cost(row.runs)])
    return accuracy_table(TITLE, columns, rows, NOTE)


NOTE = (
    f"By instance: episodes of {CLASSES} classes, string labels, augmented. Taught once: each thing by one "
    'picture, asked about by another, "something new" no answer. Only test classes of the source that is tested '
    "on, which none of the networks has met; all have the same encoder, number of updates and pictures per update. "
    "In colour: 32×32 pixels, drawings black on white; else 28×28."
)


def _spread(values: list[float]) -> str:
    """The mean of the runs, and where there are several, the lowest and the highest."""
    if not values:
        return ""
    suffix = f" [{min(values):.1f}, {max(values):.1f}]" if len(values) > 1 else ""
    return number(float(np.mean(values)), suffix)


def _judged(row: Row) -> list[float]:
    return [float(accuracies(run, row.test)[JUDGED - 1]) for run in row.runs]


def figures(records: Records) -> dict[str, Figure]:
    groups: dict[str, dict[str, list[float]]] = {}
    for row in _rows(records):
        name = f"{row.source}\n(colour)" if row.prefix else row.source
        groups.setdefault(name, {})[row.trained_on] = _judged(row)
    bars = [Bars(name, heights) for name, heights in groups.items()]
    return {"mixture": draw_mixture(bars, f"Right on the {ordinal(JUDGED)} instance (%)")} if bars else {}


def page(records: Records) -> str:
    """docs/mixture.md: the text in `mixture.md` with what was measured."""
    results = table(records)
    text = (resources.files("mann") / "experiments" / "mixture.md").read_text()
    return text.format(
        results=markdown_table(results.columns, results.rows), note=results.note, verdict=_verdict(records)
    )


def _verdict(records: Records) -> str:
    """Does it transfer better than Omniglot alone? By the means over runs, in words."""
    means = {(row.prefix, row.source, row.trained_on): float(np.mean(_judged(row))) for row in _rows(records)}
    sentences = []
    for (prefix, source, trained_on), value in means.items():
        alone = means.get((prefix, source, OMNIGLOT))
        if trained_on != ALL or alone is None or source == "omniglot":
            continue
        difference = value - alone
        word = "above" if difference >= 0 else "below"
        sentence = (
            f"- {source}{', in colour' if prefix else ''}: trained on all others {value:.1f} %, "
            f"{abs(difference):.1f} points {word} Omniglot alone"
        )
        if (own := means.get((prefix, source, ITSELF))) is not None:
            sentence += f"; trained on itself {own:.1f} %"
        sentences.append(sentence + ".")
    known = means.get(("", "omniglot", OMNIGLOT))
    left_out = means.get(("", "omniglot", ALL))
    if known is not None and left_out is not None:
        sentences.append(
            f"- omniglot: without a single drawing of it {left_out:.1f} %, trained on it {known:.1f} %."
        )
    return "\n".join(sentences) or "The rows that would tell have not all been measured yet."


EXPERIMENT = Experiment(entries, table, figures, page)
