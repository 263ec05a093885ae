"""What an experiment is made of: networks (and neighbours) to measure, one JSON record each, and a table."""

import abc
import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from rich.progress import Progress

from mann import data
from mann.baselines.autoencoder import AutoencoderConfig, train_autoencoder
from mann.baselines.knn import Features, raw_pixels, tally_neighbours
from mann.data.cache import write_atomically
from mann.data.render import prepare
from mann.episodes import Classification
from mann.errors import MannError
from mann.evaluation import CHUNK, SEED, Evaluation, by_instance, choose_task, evaluate, test_drawings
from mann.metrics import InstanceCounts
from mann.training.config import Config, DataConfig, from_dict, to_dict
from mann.training.display import make_display
from mann.training.loop import load_pictures, train
from mann.training.run import Run
from mann.weights import load_trained

Scale = Literal["smoke", "quick", "full"]
Record = dict[str, Any]  # what stands in results/NAME/ENTRY.json

POINTS = 60  # of a training curve that are kept
TEST_EPISODES = {"smoke": 4, "quick": 500, "full": 2000}


class Table(NamedTuple):
    """What an experiment shows: `table.json`, a table in the terminal and on the page of results."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str


class Test(NamedTuple):
    """One test of a trained network; empty fields mean: as trained."""

    classes: int = 0
    length: int = 0
    dataset: str = ""
    repeats: bool = False  # drawings may return within an episode, newly augmented


class Entry(abc.ABC):
    """One thing to measure. Experiments that name the same entry share its run folder."""

    name: str  # of the run folder and of the record
    label: str  # of the row

    @abc.abstractmethod
    def description(self) -> dict[str, Any]:
        """What decides the result; it stands in the record."""

    def made(self, record: Record) -> bool:
        """Whether a record is of this entry: one with another description is out of date."""
        return all(record.get(key) == value for key, value in _plain(self.description()).items())

    @abc.abstractmethod
    def measure(self, folder: Path, episodes: int) -> Record | None:
        """Train where needed, going on from what the folder holds, and test. None if interrupted."""


@dataclasses.dataclass(frozen=True)
class Network(Entry):
    """A network to train with a configuration, then to test on classes that it never saw."""

    name: str
    label: str
    config: Config
    tests: tuple[Test, ...] = (Test(),)

    def description(self) -> dict[str, Any]:
        return {"config": to_dict(self.config), "tests": [test._asdict() for test in self.tests]}

    def made(self, record: Record) -> bool:
        # Fields that came later are missing in older records, and have their defaults.
        tests = tuple(Test(**test) for test in record["tests"])
        return from_dict(record["config"]) == self.config and tests == self.tests

    def measure(self, folder: Path, episodes: int) -> Record | None:
        run = Run(folder)
        resume = Run.exists(folder)
        if resume and run.read_config() != self.config:
            raise MannError(
                f"{folder} holds a run of another configuration: remove it, or choose another --runs."
            )
        if not resume or _updates_done(run) < self.config.updates:
            result = train(None if resume else self.config, folder, resume=resume, display=make_display())
            if not result.finished:
                return None
        trained = load_trained(folder)
        sessions = json.loads((folder / "env.json").read_text())["sessions"]
        return {
            "updates": self.config.updates,
            "episodes": self.config.updates * self.config.batch,
            "seconds": run.read("times.jsonl")[-1]["seconds"],
            "seconds_per_update": typical_pace(run.read("times.jsonl")),
            "environment": {key: sessions[-1][key] for key in ENVIRONMENT},
            "best_update": trained.description["best"]["update"],
            "trained_on": trained.description["classes"],
            "metrics": thin(run.read("metrics.jsonl")),
            "evaluations": [self._test(folder, test, episodes).to_json() for test in self.tests],
        }

    def _test(self, folder: Path, test: Test, episodes: int) -> Evaluation:
        trained = load_trained(folder)._replace(name=self.name)
        task = choose_task(trained, test.classes, test.length)
        if not isinstance(task, Classification):
            return evaluate(trained, task, None, episodes=episodes)
        task = dataclasses.replace(task, repeats=test.repeats or task.repeats)
        drawings, dataset, class_range = test_drawings(trained, test.dataset)
        with Progress(transient=True) as bar:
            shown = bar.add_task(f"testing {self.name}", total=episodes)
            return evaluate(
                trained,
                task,
                drawings,
                dataset=dataset,
                class_range=class_range,
                episodes=episodes,
                progress=lambda done, total: bar.update(shown, completed=done),
            )


@dataclasses.dataclass(frozen=True)
class Neighbours(Entry):
    """One nearest neighbour, over raw pixels or over the features of an autoencoder."""

    name: str
    label: str
    task: Classification
    data: DataConfig
    autoencoder: AutoencoderConfig | None = None

    def description(self) -> dict[str, Any]:
        return {
            "task": dataclasses.asdict(self.task),
            "data": dataclasses.asdict(self.data),
            "autoencoder": self.autoencoder and dataclasses.asdict(self.autoencoder),
        }

    def measure(self, folder: Path, episodes: int) -> Record | None:
        features: Features = raw_pixels
        if self.autoencoder is not None:
            pictures = load_pictures(Config(task=self.task, data=self.data))
            assert pictures.train is not None
            with Progress() as bar:
                shown = bar.add_task("training the autoencoder", total=self.autoencoder.updates)
                features = train_autoencoder(
                    self.autoencoder,
                    pictures.train,
                    folder / "autoencoder.safetensors",
                    lambda done, total, loss: bar.update(shown, completed=done),
                ).encode
        images = data.load(self.data.name, self.data.path, self.data.classes)
        first = data.split(len(images), 0, 0).validation
        drawings = prepare(images.subset(first, len(images)))
        keys = jax.random.split(jax.random.key(SEED), -(-episodes // CHUNK) * CHUNK)
        tally = jax.jit(lambda keys, drawings: tally_neighbours(self.task, features, keys, drawings))
        parts = [tally(keys[i : i + CHUNK], drawings) for i in range(0, episodes, CHUNK)]
        counts: InstanceCounts = jax.tree.map(
            lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves])[:episodes], *parts
        )
        tested = Evaluation(
            self.name,
            images.name,
            (first + 1, len(images)),
            self.task,
            episodes,
            by_instance(counts),
        )
        return {"evaluations": [tested.to_json()]}


ENVIRONMENT = ("python", "libraries", "processor", "cores", "devices", "git_commit")


def _updates_done(run: Run) -> int:
    records = run.read("metrics.jsonl")
    return int(records[-1]["update"]) if records else 0


def typical_pace(times: Sequence[Record]) -> float:
    """Seconds an update: the median over the stretches between evaluations, so that pauses do not count."""
    update, seconds = (np.array([0, *(record[key] for record in times)]) for key in ("update", "seconds"))
    return float(np.median(np.diff(seconds) / np.diff(update)))


def _plain(content: dict[str, Any]) -> dict[str, Any]:
    """As JSON would hold it."""
    plain: dict[str, Any] = json.loads(json.dumps(content))
    return plain


def thin(records: Sequence[Record]) -> list[Record]:
    """About `POINTS` of the records, evenly spaced, the last one always."""
    step = max(1, math.ceil(len(records) / POINTS))
    return [record for i, record in enumerate(records) if (len(records) - 1 - i) % step == 0]


def write_record(path: Path, record: Record) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(record, indent=1) + "\n").encode())


def read_record(path: Path) -> Record:
    try:
        content: Record = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise MannError(f"Could not read the result {path}: {error}.") from None
    return content


def at_scale(config: Config, scale: Scale) -> Config:
    """The same configuration, shortened: a tenth of the updates (quick), or tiny and on glyphs (smoke)."""
    if scale == "full":
        return config
    if scale == "quick":
        updates = max(100, config.updates // 1000 * 100)
        every = min(config.evaluate_every, updates // 5 // config.dispatch * config.dispatch)
        curriculum = config.curriculum
        if curriculum.every:
            curriculum = dataclasses.replace(curriculum, every=curriculum.every // 100 * 10)
        return dataclasses.replace(config, updates=updates, evaluate_every=every, curriculum=curriculum)
    task, curriculum = config.task, config.curriculum
    if isinstance(task, Classification) and not curriculum.every:
        task = dataclasses.replace(task, length=2 * task.classes)
    if isinstance(task, Classification) and curriculum.every:
        task = dataclasses.replace(task, classes=4)
        curriculum = dataclasses.replace(curriculum, start=3, every=2)
    return dataclasses.replace(
        config,
        task=task,
        curriculum=curriculum,
        model=dataclasses.replace(config.model, hidden=8, slots=8, width=4, heads=min(config.model.heads, 2)),
        data=DataConfig(name="glyphs", classes=100, validation=15),
        optimiser=dataclasses.replace(config.optimiser, warmup=0),
        updates=4,
        batch=2,
        dispatch=2,
        evaluate_every=2,
        evaluate_episodes=4,
    )
