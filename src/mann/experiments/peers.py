"""What people would take instead: each with the same encoder, data, episodes and number of pictures seen."""

import dataclasses
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from matplotlib.figure import Figure
from rich.progress import Progress

from mann.controllers import LSTMConfig, NoControllerConfig
from mann.data import Glyphs
from mann.data.images import PictureFormat
from mann.encoders import ConvStackConfig
from mann.experiments.cost import milliseconds, online_step, training_step
from mann.experiments.entries import Condition, Entry, Network, test_neighbours
from mann.experiments.experiment import Experiment
from mann.experiments.networks import with_changes
from mann.experiments.records import Record, Records, Table
from mann.experiments.scales import Scale, at_scale
from mann.experiments.tables import accuracies, by_label, cells, in_order, markdown_table, number
from mann.figures.experiments import PeerLine, draw_peers
from mann.layers import normalise
from mann.memory import AttentionConfig, MatchingConfig, NoMemoryConfig, PrototypesConfig
from mann.models import ModelConfig, build_model
from mann.parts import from_dict, to_dict
from mann.tasks import Classification, ManyThings
from mann.teaching import calibrate_novelty, teach_once
from mann.text import ordinal
from mann.trained import Trained, load_trained, with_slots
from mann.training.config import Config
from mann.training.presets import KEYS, PRESETS

TITLE = "Peers: what people would take instead of the memory, with the same encoder and data"
OURS = (
    "key and value memory, labels count alike (ours)",
    "key and value memory, every example counts",
)
ALONE = {"model__controller": NoControllerConfig()}
PEERS: dict[str, tuple[str, dict[str, Any]]] = {
    "balanced": (OURS[0], {}),
    "keyvalue": (OURS[1], {"model__memory": dataclasses.replace(KEYS, balanced=False)}),
    "prototypes": (
        "online ProtoNet",
        {**ALONE, "model__memory": PrototypesConfig(width=128, projected=False)},
    ),
    "matching": (
        "online matching network",
        {**ALONE, "model__memory": MatchingConfig(width=128, projected=False)},
    ),
    "attention": (
        "causal attention, as in SNAIL",
        {**ALONE, "model__memory": AttentionConfig(width=128)},
    ),
    "lstm": (
        "LSTM, no memory",
        {
            "model__controller": LSTMConfig(hidden=256),
            "model__memory": NoMemoryConfig(),
            "model__encoder__standardised": True,
        },
    ),
}
ONCE = ("keyvalue", "attention", "lstm")  # so far from ours that one run tells; the others are trained twice
UPDATES = 3000  # of each: 25 minutes of one core
CLASSES = (5, 20)  # of the rows by instance
SHOWN = (2, 3, 5, 10)
THINGS = (5, 20, 100, 423)
WITHIN = 20  # things of one alphabet
TAUGHT = (  # fields of what was taught, and their names in the table
    ("accuracy", "as answered"),
    ("accuracy_forced", "forced"),
    ("accuracy_nearest", "nearest"),
    ("area_known_new", "known or new"),
)
SLOTS = 1024  # for as many things; no weight depends on it


@dataclasses.dataclass(frozen=True)
class Peer(Network):
    """A network that is also taught things once, with a nearest neighbour in its embedding beside it."""

    things: tuple[int, ...] = THINGS
    """How many, for each row."""
    within: int = WITHIN
    """Things of one alphabet that it is taught as well; 0 for none."""
    slots: int = SLOTS
    """Of the memory, if it has any, while it is taught."""
    questions: int = 2000
    """On held-out classes, by which it is chosen when to call something new."""

    def description(self) -> dict[str, Any]:
        own = {"things": list(self.things), "within": self.within}
        return super().description() | own | {"slots": self.slots, "questions": self.questions}

    def matches(self, record: Record) -> bool:
        content: dict[str, Any] = dict(record)
        own = self.description()
        same = all(content[key] == own[key] for key in ("things", "within", "slots", "questions"))
        return same and super().matches(record)

    def measure(self, folder: Path, episodes: int) -> Record | None:
        record = super().measure(folder, episodes)
        if record is None:
            return None
        trained = load_trained(folder)._replace(name=self.name)
        if trained.model.memory.slots:
            trained = with_slots(trained, self.slots)
        novelty = calibrate_novelty(trained, questions=self.questions)._asdict()
        trained = trained._replace(description=trained.description | {"novelty": novelty})
        with Progress(transient=True) as bar:
            bar_id = bar.add_task(f"teaching {self.name}", total=None)

            def show(done: int, total: int) -> None:
                bar.update(bar_id, completed=done, total=total)

            taught = teach_once(trained, self.things, progress=show)
            within = (self.within,) if self.within else ()
            alike = teach_once(trained, within, alphabets="within", progress=show)
        return record | {
            "novelty": novelty,
            "taught_once": [row.to_json() for row in taught],
            "taught_within": [row.to_json() for row in alike],
            "neighbours": [_neighbours(trained, test.classes, episodes) for test in self.tests],
        }


def _neighbours(trained: Trained, classes: int, episodes: int) -> dict[str, Any]:
    """Accuracy by instance of the nearest earlier picture in a network's embedding, by cosine."""
    config = trained.config
    task = config.task.resized(classes=classes, alphabets="across")
    assert isinstance(task, Classification)
    unseen = task.load_unseen(config.data, config.data, trained.seen, trained.name)

    def features(pixels: jax.Array) -> jax.Array:
        return normalise(trained.model.embed(pixels))

    return test_neighbours(trained.name, task, unseen, features, episodes).to_json()


@dataclasses.dataclass(frozen=True)
class StepCost(Entry):
    """Time of a step, in training and online, and what the memory takes for every thing: no training needed."""

    name: str
    label: str
    model: ModelConfig
    side: int = 40
    """Pixels per side."""
    slots: int = SLOTS
    steps: int = 200
    """Of the episode that is trained on; batches of one."""
    seconds: float = 2.0
    """For the measurement of one time."""

    def description(self) -> dict[str, Any]:
        return {
            "model": to_dict(self.model),
            "side": self.side,
            "slots": self.slots,
            "steps": self.steps,
            "seconds": self.seconds,
        }

    def matches(self, record: Record) -> bool:
        content: dict[str, Any] = dict(record)
        same = all(content[key] == value for key, value in self.description().items() if key != "model")
        return same and from_dict(ModelConfig, content["model"]) == self.model

    def measure(self, folder: Path, episodes: int) -> Record | None:
        task = ManyThings(length=self.steps)
        pictures = PictureFormat(self.side)
        model = build_model(_with_slots(self.model, self.slots), task, pictures, key=jax.random.key(0))
        grown, small = (state_bytes(_with_slots(self.model, n)) for n in (2 * self.slots, self.slots))
        per_thing = (grown - small) / self.slots
        cost = {
            "training_ms": milliseconds(training_step(model, self.steps), self.seconds) / self.steps,
            "online_ms": milliseconds(online_step(model), self.seconds),
            "bytes_per_thing": per_thing,
            "bytes_fixed": small - self.slots * per_thing,
        }
        return {"costs": [cost]}


def _with_slots(model: ModelConfig, slots: int) -> ModelConfig:
    """With so many slots, if its memory has any."""
    if isinstance(model.memory, NoMemoryConfig):
        return model
    return dataclasses.replace(model, memory=model.memory.with_slots(slots))


def state_bytes(model: ModelConfig) -> int:
    """What a network remembers, in bytes: all that is carried from one step to the next."""
    built = jax.eval_shape(lambda: build_model(model, ManyThings(), key=jax.random.key(0)).initial_state())
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(built))


def config(peer: str, seed: int = 0) -> Config:
    """`omniglot-many` with another memory, trained for less long and on drawings that are not bent."""
    changes = {"updates": UPDATES, "task__pool__bend": 0.0, "seed": seed} | PEERS[peer][1]
    return with_changes(PRESETS["omniglot-many"], **changes)


def entries(scale: Scale) -> list[Entry]:
    """The first seed of all, then the second of those close to each other; the cost of a step last."""
    if scale == "smoke":
        return [smallest("prototypes"), _cost("prototypes", slots=16, steps=4, seconds=0.05)]
    seeds = (0, 1) if scale == "full" else (0,)
    return [
        *(trained_peer(peer, scale, seed) for seed in seeds for peer in PEERS if not (seed and peer in ONCE)),
        *(_cost(peer) for peer in PEERS),
    ]


def trained_peer(peer: str, scale: Scale, seed: int) -> Peer:
    """One of `PEERS`, to be trained and tested."""
    tests = tuple(Condition(classes=classes, alphabets="across") for classes in CLASSES)
    return Peer(f"many-{peer}-seed{seed}", PEERS[peer][0], at_scale(config(peer, seed), scale), tests)


def _cost(peer: str, **fewer: Any) -> StepCost:
    return StepCost(f"cost-{peer}", PEERS[peer][0], config(peer).model, **fewer)


def smallest(peer: str) -> Peer:
    small = config(peer)
    encoder = ConvStackConfig(maps=(16,), strides=(3,), features=8)
    small = dataclasses.replace(small, model=dataclasses.replace(small.model, encoder=encoder))
    small = dataclasses.replace(small, task=small.task.resized(classes=4, alphabets="across"), batch=2)
    small = dataclasses.replace(at_scale(small, "smoke"), data=Glyphs(classes=100, validation=15))
    tests = (Condition(classes=3, length=6),)
    return Peer(
        f"many-{peer}-seed0", PEERS[peer][0], small, tests, things=(3,), within=0, slots=16, questions=10
    )


def _trained(records: Records) -> dict[str, list[Record]]:
    """The runs of every network, by its label, ours first."""
    runs = [record for record in in_order(entries("full"), records) if "taught_once" in record]
    return by_label(runs)


def _by_instance(runs: list[Record], place: int, neighbours: bool = False) -> list[str]:
    """Cells of `SHOWN` for one number of classes."""
    if neighbours:
        runs = [{"evaluations": run["neighbours"]} for run in runs]
    if place >= len(runs[0]["evaluations"]):  # fewer were tested, to see that it works
        return [""] * len(SHOWN)
    return cells(runs, place, SHOWN)


def _taught(runs: list[Record], field: str) -> list[str]:
    """Cells for `THINGS`."""
    shown = [number(value) for value in _means(runs, field)]
    return shown + [""] * (len(THINGS) - len(shown))


def _means(
    runs: list[Record], field: str, of: Literal["taught_once", "taught_within"] = "taught_once"
) -> list[float]:
    """Of a field of what was taught, in %, over the runs; NaN where there is none."""
    values = [[np.nan if row[field] is None else row[field] for row in run[of]] for run in runs]
    return [100 * float(value) for value in np.mean(values, axis=0)]


def table(records: Records) -> Table:
    columns = ["network"]
    for classes in CLASSES:
        columns += [f"{classes} classes: {ordinal(SHOWN[0])}", *(ordinal(i) for i in SHOWN[1:])]
    columns += [f"taught {things} once" for things in THINGS]
    rows = []
    for label, runs in _trained(records).items():
        by_instance = [cell for place in range(len(CLASSES)) for cell in _by_instance(runs, place)]
        rows.append([label, *by_instance, *_taught(runs, "accuracy_forced")])
    return Table(TITLE, columns, rows, NOTE)


NOTE = (
    "Accuracy in % on classes never trained on, string labels. By instance: episodes of the paper's task with 10 "
    "samples per class on average, augmented. Taught once: another drawing of each thing is asked about, and "
    '"something new" is no answer. One run: ± half of the 95 % interval over episodes; several: their mean, and '
    "[lowest, highest]."
)


def figures(records: Records) -> dict[str, Figure]:
    lines = [
        PeerLine(
            label,
            [row["things"] for row in runs[0]["taught_once"]],
            _means(runs, "accuracy_forced"),
            _means(runs, "area_known_new"),
        )
        for label, runs in _trained(records).items()
    ]
    return {"peers": draw_peers(lines)} if lines else {}


def page(records: Records) -> str:
    """docs/peers.md: the text in `peers.md` with what was measured."""
    text = (resources.files("mann") / "experiments" / "peers.md").read_text()
    return text.format(
        by_instance=_instances_table(records),
        taught=_taught_table(records),
        ahead=_ahead(records),
        costs=_cost_table(records),
    )


def _ahead(records: Records) -> str:
    """Where a peer has more than ours in a column as printed, whatever the interval; a sentence if nowhere."""
    means = {label: _columns(runs) for label, runs in _trained(records).items()}
    best = next((means[label] for label in OURS if label in means), None)
    others = {label: values for label, values in means.items() if label not in OURS}
    if best is None or not others:
        return "Ours has not been measured beside others yet."
    lines = []
    for column, ours in best.items():
        above = {
            label: values[column]
            for label, values in others.items()
            if round(values.get(column, 0.0), 1) > round(ours, 1)
        }
        if above:
            told = ", ".join(
                f"{label} {value:.1f}" for label, value in sorted(above.items(), key=lambda one: -one[1])
            )
            lines.append(f"- {column}: {told}; ours {ours:.1f}.")
    return "\n".join(lines) or "In no column of the two tables above is a peer ahead of ours."


def _columns(runs: list[Record]) -> dict[str, float]:
    """Means over runs of what the tables show, by what people call it."""
    columns: dict[str, float] = {}
    for place, classes in enumerate(CLASSES[: len(runs[0]["evaluations"])]):
        values = np.mean([accuracies(run, place) for run in runs], axis=0)
        columns |= {f"{classes} classes, {ordinal(i)} instance": float(values[i - 1]) for i in SHOWN}
    for field, what in TAUGHT:
        if field != "accuracy_nearest":  # which is no answer of the network
            columns |= {
                f"{things} things taught once, {what}": value
                for things, value in zip(THINGS, _means(runs, field), strict=False)
            }
            for value in _means(runs, field, "taught_within"):
                columns[f"{WITHIN} things of one alphabet taught once, {what}"] = value
    return {name: value for name, value in columns.items() if not np.isnan(value)}


def _instances_table(records: Records) -> str:
    columns = ["network", "classes", *(ordinal(i) for i in SHOWN)]
    rows = []
    for place, classes in enumerate(CLASSES):
        runs = _trained(records)
        rows += [[label, str(classes), *_by_instance(of, place)] for label, of in runs.items()]
        for label in (*OURS, PEERS["prototypes"][0]):
            if label in runs:
                named = f"nearest neighbour in the embedding of: {label}"
                rows.append([named, str(classes), *_by_instance(runs[label], place, neighbours=True)])
    return markdown_table(columns, rows)


def _taught_table(records: Records) -> str:
    columns = ["network", "what", *(str(things) for things in THINGS), f"{WITHIN} of one alphabet"]
    rows = []
    for label, runs in _trained(records).items():
        for field, what in TAUGHT:
            within = [number(value) for value in _means(runs, field, "taught_within")] or [""]
            rows.append([label, what, *_taught(runs, field), *within])
    return markdown_table(columns, rows)


def _cost_table(records: Records) -> str:
    columns = ["network", "training: ms per step", "online: ms per step", "bytes per thing", "bytes besides"]
    rows = []
    for record in in_order(entries("full"), records):
        for cost in record.get("costs", []):
            times = [f"{cost[key]:.2g}" for key in ("training_ms", "online_ms")]
            rows.append(
                [record["label"], *times, *(f"{cost[key]:.0f}" for key in ("bytes_per_thing", "bytes_fixed"))]
            )
    return markdown_table(columns, rows)


EXPERIMENT = Experiment(entries, table, figures, page)
