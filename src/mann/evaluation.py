"""Accuracy by instance, or likelihood by step, on classes that were never trained on, with intervals."""

import dataclasses
import json
import math
from collections.abc import Callable
from functools import partial
from importlib import resources
from typing import Any, Literal, NamedTuple, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Key

from mann import data
from mann.baselines.gp import Prediction, sequential_predictions
from mann.data.render import Drawings, prepare
from mann.episodes import Classification, Regression, Task, time_offset
from mann.errors import MannError
from mann.metrics import InstanceCounts, Tally
from mann.models import Model
from mann.outputs import Gaussian, gaussian_nll
from mann.room import check_room
from mann.training import distributed
from mann.training.validation import make_tally
from mann.weights import Trained

T = TypeVar("T")

SEED = 20160519  # of test episodes: never the seed of a training run
CONFIDENCE = 1.959964  # standard normal quantile of a 95 % interval
CHUNK = 40  # episodes a device in one call
CHAIN_CHUNK = 400  # at most, where the memory persists and episodes follow one another
BANDS = {50: 0.674490, 95: CONFIDENCE}  # of a Gaussian, in %: half their width in standard deviations
LATE = 20  # regression: the mean gap to the exact GP is taken over the steps from this one on


class Interval(NamedTuple):
    value: float
    low: float
    high: float
    samples: int


def wilson_by_episode(
    correct: Float[np.ndarray, "episodes"], count: Float[np.ndarray, "episodes"]
) -> Interval:
    """Proportion with a 95 % interval that treats episodes, not single predictions, as independent.

    The variance of the ratio Σ correct / Σ count over episodes gives an effective number of predictions, and
    Wilson's interval for that many stays sensible near 0 and 1.
    """
    total = count.sum()
    if total == 0:
        return Interval(math.nan, math.nan, math.nan, 0)
    p = correct.sum() / total
    episodes = len(count)
    variance = np.sum((correct - p * count) ** 2) / total**2 * episodes / max(episodes - 1, 1)
    effective = min(p * (1 - p) / variance, total) if variance > 0 else total
    z2 = CONFIDENCE**2 / effective
    centre = (p + z2 / 2) / (1 + z2)
    half = CONFIDENCE / (1 + z2) * math.sqrt(p * (1 - p) / effective + z2 / (4 * effective))
    return Interval(float(p), max(0.0, float(centre - half)), min(1.0, float(centre + half)), int(total))


def mean_by_episode(values: Float[np.ndarray, "episodes time"]) -> tuple[np.ndarray, np.ndarray]:
    """Mean of every step over episodes, and half the width of its 95 % interval."""
    half = CONFIDENCE * values.std(axis=0, ddof=1) / math.sqrt(len(values))
    return values.mean(axis=0), half


def first_instance_ceiling(task: Classification) -> float:
    """Best possible accuracy on first instances, for a learner that always knows a new class when it sees one.

    With one-hot labels it can rule out those already given: the k-th new class is guessed among N − k + 1.
    """
    if task.labels == "strings":
        return sum(1 / (5**5 - k) for k in range(task.classes)) / task.classes
    return sum(1 / (task.classes - k) for k in range(task.classes)) / task.classes


@dataclasses.dataclass(frozen=True)
class Likelihood:
    """Regression by step, for the model and for the exact GP on the same samples (`model` and `gp`).

    `half_width` is half of the 95 % interval of the mean over episodes; that of the `gap` (model − gp) is from
    the difference of each episode, and so narrower than the two would suggest.
    """

    nll: dict[str, list[float]]  # nats per point
    half_width: dict[str, list[float]]  # model, gp, gap
    squared_error: dict[str, list[float]]
    coverage: dict[str, dict[str, list[float]]]  # "50" and "95": the share of samples inside that band
    late_gap: dict[str, float | int] | None  # mean gap from step 20 on; None for shorter episodes


class Points(NamedTuple):
    """What was predicted for every sample of every episode."""

    nll: Float[Array | np.ndarray, "episodes time"]
    squared_error: Float[Array | np.ndarray, "episodes time"]
    deviations: Float[Array | np.ndarray, "episodes time"]  # the error in predicted scales


def by_step(model: Points, gp: Points) -> Likelihood:
    """Means over episodes of what a model and the exact GP said of the same samples."""
    both = {"model": model, "gp": gp}
    nll = {name: np.asarray(points.nll) for name, points in both.items()}
    gap = nll["model"] - nll["gp"]
    late = None
    if gap.shape[1] >= LATE:
        value, half = mean_by_episode(gap[:, LATE - 1 :].mean(axis=1, keepdims=True))
        late = {"first_step": LATE, "value": float(value[0]), "half_width": float(half[0])}
    return Likelihood(
        {name: values.mean(axis=0).tolist() for name, values in nll.items()},
        {name: mean_by_episode(values)[1].tolist() for name, values in (nll | {"gap": gap}).items()},
        {name: points.squared_error.mean(axis=0).tolist() for name, points in both.items()},
        {
            str(band): {
                name: (np.abs(points.deviations) < width).mean(axis=0).tolist()
                for name, points in both.items()
            }
            for band, width in BANDS.items()
        },
        late,
    )


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The result of `evaluate`; `to_json` is what `mann eval --json` writes."""

    model: str
    dataset: str
    class_range: tuple[int, int] | None  # class ids that were tested, from 1
    task: Task
    episodes: int
    instances: list[Interval]
    likelihood: "Likelihood | None" = None  # regression only

    def to_json(self) -> dict[str, Any]:
        content: dict[str, Any] = {
            "model": self.model,
            "dataset": self.dataset,
            "length": self.task.steps,
            "episodes": self.episodes,
        }
        if isinstance(self.task, Classification):
            first, last = self.class_range or (0, 0)
            return content | {
                "classes": self.task.classes,
                "labels": self.task.labels,
                "repeats": self.task.repeats,
                "class_ids": {"first": first, "last": last},
                "first_instance_ceiling": first_instance_ceiling(self.task),
                "instances": [
                    {
                        "instance": i,
                        "accuracy": None if math.isnan(cell.value) else cell.value,
                        "low": None if math.isnan(cell.low) else cell.low,
                        "high": None if math.isnan(cell.high) else cell.high,
                        "count": cell.samples,
                    }
                    for i, cell in enumerate(self.instances, start=1)
                ],
            }
        assert self.likelihood is not None
        return content | {"dimensions": self.task.dimensions} | dataclasses.asdict(self.likelihood)


def choose_task(trained: Trained, classes: int = 0, length: int = 0) -> Task:
    """The task that a model was trained for, with another number of classes or length if asked."""
    task = trained.config.task
    if isinstance(task, Regression):
        if classes:
            raise MannError("A regression model has no classes: leave --classes out.")
        return dataclasses.replace(task, length=length or task.length)
    if classes and classes != task.classes and task.labels == "onehot":
        raise MannError(
            f"This model has one-hot labels for exactly {task.classes} classes: use a model with string labels "
            "for another number."
        )
    return dataclasses.replace(
        task, classes=classes or task.classes, length=length or (0 if classes else task.length)
    )


def test_drawings(
    trained: Trained, name: str = "", path: str = "", classes: int = 1623
) -> tuple[Drawings, str, tuple[int, int]]:
    """Pictures of classes that the model never saw, with the data set's name and the range of class ids.

    The test classes of Omniglot or the glyphs; every class of a folder that the model was not trained on.
    """
    config = trained.config.data
    same = not name or (name == config.name and path == config.path)
    kind: Literal["omniglot", "glyphs", "folder"] = config.name if same else name  # type: ignore[assignment]
    images = data.load(kind, config.path if same else path, config.classes if same else classes)
    first = 0 if kind == "folder" and not same else data.split(len(images), 0, 0).validation
    if first >= len(images):
        raise MannError(f"{images.name} is too small to have test classes: add classes to it.")
    return prepare(images.subset(first, len(images))), images.name, (first + 1, len(images))


def evaluate(
    trained: Trained,
    task: Task,
    drawings: Drawings | None,
    *,
    dataset: str = "functions",
    class_range: tuple[int, int] | None = None,
    episodes: int = 2000,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Evaluation:
    """Run a trained model, without any learning of weights, on newly drawn episodes."""
    if episodes < 2:
        raise MannError("An interval needs at least 2 episodes.")
    if isinstance(task, Classification) and drawings is not None:
        task.check(drawings)
    mesh = distributed.local_mesh(distributed.make_mesh(len(jax.devices())))
    arrays, static = eqx.partition(trained.model, eqx.is_array)
    arrays, drawings = distributed.replicate((arrays, drawings), mesh)
    tally = make_tally(task, trained.config.persistent, static, mesh)
    check_room(task, trained.config.model, CHUNK * mesh.size)
    chunk = mesh.size * (min(CHAIN_CHUNK, -(-episodes // mesh.size)) if trained.config.persistent else CHUNK)
    keys = jax.random.split(jax.random.key(SEED), -(-episodes // chunk) * chunk)
    tallies: list[Tally] = []
    oracle: list[Points] = []
    for start in range(0, episodes, chunk):
        part = keys[start : start + chunk]
        tallies.append(jax.tree.map(np.asarray, tally(arrays, drawings, part)))
        if isinstance(task, Regression):
            oracle.append(jax.tree.map(np.asarray, _exact_points(part, task)))
        progress(min(start + chunk, episodes), episodes)
    joined = _join(tallies, episodes)
    likelihood = None
    if joined.deviations is not None:
        ours = Points(joined.nll, joined.squared_error, joined.deviations)
        likelihood = by_step(ours, _join(oracle, episodes))
    return Evaluation(
        trained.name, dataset, class_range, task, episodes, by_instance(joined.counts), likelihood
    )


def _join(parts: list[T], episodes: int) -> T:
    """One tree of arrays from several, without the episodes that only filled up the last."""
    joined: T = jax.tree.map(lambda *leaves: np.concatenate(leaves)[:episodes], *parts)
    return joined


def by_instance(counts: InstanceCounts) -> list[Interval]:
    """Accuracy of the 1st, 2nd, … 10th instance."""
    correct, count = np.asarray(counts.correct), np.asarray(counts.seen)
    return [wilson_by_episode(correct[:, i], count[:, i]) for i in range(count.shape[1])]


@partial(jax.jit, static_argnums=1)
def _exact_points(keys: Key[Array, "episodes"], task: Regression) -> Points:
    """What the exact GP says of the same samples in the same order."""
    episodes = jax.vmap(task.draw)(keys)
    y = episodes.targets[..., 0]
    mean, scale = jax.vmap(partial(sequential_predictions, process=task.process))(episodes.inputs, y)
    return Points(gaussian_nll(y, mean, scale), (y - mean) ** 2, (y - mean) / scale)


@eqx.filter_jit
def predict_along(
    model: Model,
    seen: Float[Array, "time dimensions"],
    y: Float[Array, "time"],
    queries: Float[Array, "queries dimensions"],
) -> Prediction:
    """A regression model's prediction at each query after the same samples.

    The last value seen arrives together with the query. Every query starts from the same state, and none
    leaves a trace in it.
    """
    labels = y[:, None]
    _, state = model.unroll(seen, time_offset(labels))
    outputs, _ = jax.vmap(model.step, in_axes=(0, None, None))(queries, labels[-1], state)
    return Prediction(*Gaussian().mean_and_scale(outputs))


def load_paper() -> dict[str, Any]:
    """The numbers of the paper's tables."""
    content: dict[str, Any] = json.loads((resources.files("mann") / "experiments" / "paper.json").read_text())
    return content


class PaperRow(NamedTuple):
    model: str
    accuracy: dict[int, float]  # percent, by instance


def paper_rows(config: Any, task: Task) -> list[PaperRow]:
    """The human row and the paper's row for the same kind of network and task, where it has them."""
    if not isinstance(task, Classification):
        return []
    paper = load_paper()
    rows = []
    for row in paper["table1"] + paper["table2"]:
        same_task = row["classes"] == task.classes and row["labels"] == task.labels
        same_network = (row.get("controller"), row.get("memory")) == (config.controller, config.memory)
        if same_task and (same_network or row["model"] == "Human"):
            rows.append(PaperRow(row["model"], dict(zip(paper["instances"], row["accuracy"], strict=True))))
    return rows
