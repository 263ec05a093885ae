"""What experiments measure: networks to train and test, shipped ones and neighbours. Each gives one record."""

import abc
import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from rich.progress import Progress

from mann.baselines.autoencoder import AutoencoderConfig, train_autoencoder
from mann.baselines.knn import Features, raw_pixels, tally_neighbours
from mann.data import DataConfig
from mann.errors import MannError
from mann.evaluation import CHUNK, SEED, Evaluation, evaluate, join_episodes, split_keys
from mann.experiments.records import Record, thin, typical_pace
from mann.figures.run import save_curves
from mann.metrics import accuracy_by_instance
from mann.parts import from_dict, to_dict
from mann.tasks import AccuracyByInstance, Alphabets, Classification
from mann.tasks.base import Unseen
from mann.trained import Trained, load_trained, pretrained_digest, with_neighbours, with_slots
from mann.training.config import Config
from mann.training.display import make_display
from mann.training.legacy import upgrade_config, upgrade_data
from mann.training.loop import resume, train
from mann.training.run import Run


class Condition(NamedTuple):
    """Under which a trained network is tested; empty fields mean: as trained."""

    classes: int = 0
    length: int = 0
    dataset: str = ""
    repeats: bool = False  # drawings may return within an episode, newly augmented
    balanced: bool = False  # every class is shown equally often
    slots: int = 0  # of the memory
    neighbours: int = 0  # sparse access: slots that a head reads from (K)
    share: float = 1.0  # of the test episodes: fewer of long ones
    alphabets: Alphabets | Literal[""] = ""  # that the classes of an episode come from; empty: all
    context: str = ""  # of a stream, for the task that has one (`tasks.roaming`)


class Entry(abc.ABC):
    """One thing to measure. Experiments that name the same entry share its run folder."""

    name: str  # of the run folder and of the record
    label: str  # of the row

    @abc.abstractmethod
    def description(self) -> dict[str, Any]:
        """What decides the result; it stands in the record."""

    def matches(self, record: Record) -> bool:
        """Whether a record is of this entry: one with another description is out of date."""
        return all(record.get(key) == value for key, value in _as_json(self.description()).items())

    @abc.abstractmethod
    def measure(self, folder: Path, episodes: int) -> Record | None:
        """Train where needed, going on from what the folder holds, and test. None if interrupted."""


@dataclasses.dataclass(frozen=True)
class Network(Entry):
    """A network to train with a configuration, then to test on classes that it never saw."""

    name: str
    label: str
    config: Config
    tests: tuple[Condition, ...] = (Condition(),)
    start: str = ""
    """Shipped weights that the training starts from; empty for random ones."""

    def description(self) -> dict[str, Any]:
        tests = [test._asdict() for test in self.tests]
        return {"config": to_dict(self.config), "tests": tests, "start": self.start}

    def matches(self, record: Record) -> bool:
        # Fields that came later are missing in older records, and have their defaults.
        tests = tuple(Condition(**test) for test in record["tests"])
        same = tests == self.tests and record.get("start", "") == self.start
        return same and from_dict(Config, upgrade_config(record["config"])) == self.config

    def measure(self, folder: Path, episodes: int) -> Record | None:
        run = Run(folder)
        begun = Run.exists(folder)
        if begun and run.read_config() != self.config:
            raise MannError(
                f"{folder} holds a run of another configuration: remove it, or choose another --runs."
            )
        if not begun or _updates_done(run) < self.config.updates:
            display = [make_display()]
            start = load_trained(self.start) if self.start else None
            go_on = partial(resume, folder) if begun else partial(train, self.config, folder, start=start)
            result = go_on(observers=display)
            save_curves(folder)
            if not result.finished:
                return None
        trained = load_trained(folder)
        times, sessions = run.read("times.jsonl"), run.sessions()
        if not times or not sessions:
            raise MannError(f"{folder} has lost its times.jsonl or env.json: remove it to train it again.")
        return {
            "updates": self.config.updates,
            "episodes": self.config.updates * self.config.batch,
            "seconds": times[-1]["seconds"],
            "seconds_per_update": typical_pace(times),
            "environment": {key: sessions[-1].get(key) for key in ENVIRONMENT},
            "best_update": trained.description["best"]["update"],
            "trained_on": trained.description["classes"],
            "metrics": thin(run.read("metrics.jsonl")),
            "evaluations": self.test(trained._replace(name=self.name), episodes),
        }

    def test(self, trained: Trained, episodes: int) -> list[dict[str, Any]]:
        """`Evaluation.to_json` under each condition."""
        return [evaluate_under(trained, test, episodes).to_json() for test in self.tests]


@dataclasses.dataclass(frozen=True)
class Shipped(Entry):
    """A network that ships with the package, to test on classes that it never saw."""

    name: str
    label: str
    model: str
    tests: tuple[Condition, ...]
    data: DataConfig | None = None
    """To test on; None for that of the training."""

    def description(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "weights": pretrained_digest(self.model),
            "data": None if self.data is None else to_dict(self.data),
            "tests": [test._asdict() for test in self.tests],
        }

    def measure(self, folder: Path, episodes: int) -> Record | None:
        trained = load_trained(self.model)._replace(name=self.name)
        return {
            "trained_on": trained.description["classes"],
            "evaluations": [
                evaluate_under(trained, test, episodes, self.data).to_json() for test in self.tests
            ],
        }


def evaluate_under(
    trained: Trained, test: Condition, episodes: int, data: DataConfig | None = None
) -> Evaluation:
    """Test a network under a condition, with a bar that shows how far it is."""
    if test.slots:
        trained = with_slots(trained, test.slots)
    if test.neighbours:
        trained = with_neighbours(trained, test.neighbours)
    changes = {
        name: getattr(test, name) for name in ("repeats", "balanced", "context") if getattr(test, name)
    }
    episodes = max(2, round(test.share * episodes))
    with Progress(transient=True) as bar:
        bar_id = bar.add_task(f"testing {trained.name}", total=episodes)
        return evaluate(
            trained,
            dataset=data or test.dataset,
            classes=test.classes,
            length=test.length,
            alphabets=test.alphabets or "across",
            task=dataclasses.replace(trained.config.task, **changes),
            episodes=episodes,
            progress=lambda done, total: bar.update(bar_id, completed=done),
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
            "task": to_dict(self.task),
            "data": to_dict(self.data),
            "autoencoder": self.autoencoder and dataclasses.asdict(self.autoencoder),
        }

    def matches(self, record: Record) -> bool:
        content: dict[str, Any] = dict(record)
        task = from_dict(Classification, {"kind": self.task.kind} | content["task"])
        data = from_dict(DataConfig, upgrade_data(content["data"]))  # type: ignore[type-abstract]
        same = (task, data) == (self.task, self.data)
        return same and content["autoencoder"] == self.description()["autoencoder"]

    def measure(self, folder: Path, episodes: int) -> Record | None:
        features: Features = raw_pixels
        if self.autoencoder is not None:
            pictures = self.task.load(self.data)
            with Progress() as bar:
                bar_id = bar.add_task("training the autoencoder", total=self.autoencoder.updates)
                features = train_autoencoder(
                    self.autoencoder,
                    pictures.train,
                    folder / "autoencoder.safetensors",
                    lambda done, total, loss: bar.update(bar_id, completed=done),
                ).encode
        nothing = np.zeros(0, np.uint64)  # neighbours have met no drawing before
        unseen = self.task.load_unseen(self.data, self.data, nothing, self.name)
        return {"evaluations": [test_neighbours(self.name, self.task, unseen, features, episodes).to_json()]}


def test_neighbours(
    name: str, task: Classification, unseen: Unseen, features: Features, episodes: int
) -> Evaluation:
    """One nearest neighbour over some features, on the episodes that a network would be tested on."""
    tally = jax.jit(lambda keys, drawings: tally_neighbours(task, features, keys, drawings))
    parts = [tally(keys, unseen.source) for keys in split_keys(SEED, episodes, CHUNK)]
    result = AccuracyByInstance(task, accuracy_by_instance(join_episodes(parts, episodes)))
    return Evaluation(name, unseen.dataset, unseen.class_range, task, episodes, result)


ENVIRONMENT = ("python", "libraries", "processor", "cores", "devices", "git_commit")


def _updates_done(run: Run) -> int:
    records = run.read("metrics.jsonl")
    return int(records[-1]["update"]) if records else 0


def _as_json(content: dict[str, Any]) -> dict[str, Any]:
    """With lists for tuples, as it will be read back."""
    plain: dict[str, Any] = json.loads(json.dumps(content))
    return plain
