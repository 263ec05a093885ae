"""The paper's task: name what you see, after having been told once."""

import dataclasses
import itertools
import math
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from mann.data import DataConfig
from mann.data.images import ImageSet, PictureFormat
from mann.data.render import Drawings, Transform, prepare, random_transform, render
from mann.data.seen import Fingerprints, training_fingerprints, unseen_images
from mann.episodes import Episode, SharedPictures, choose_below, instance_numbers, sample_distinct
from mann.errors import MannError, check_range
from mann.labels import STRINGS, LabelCode, one_hot
from mann.metrics import InstanceCounts, accuracy_by_instance, count_by_instance
from mann.outputs import Letters
from mann.paper import PaperRow, paper_rows
from mann.statistics import Interval, instances_to_json, or_none
from mann.tasks.alphabets import Alphabets, choose_classes
from mann.tasks.base import ResultTable, Sources, Stage, Task, Unseen
from mann.tasks.pool import PoolConfig

BUCKET = 5  # classes that share one compilation: at most 1 step in 4 is padding at the paper's 15 … 25
HEADLINE = (1, 2, 5, 10)  # instances that are shown while training
MOST = 10**8  # samples or classes in an episode; whether they fit into memory is asked elsewhere


class Tally(NamedTuple):
    """What a network did on a batch of episodes."""

    counts: InstanceCounts
    nll: Float[Array, "batch time"]  # −log p(y_t) of every step, in nats


class Arrangement(NamedTuple):
    """An episode in a pool: its places, and what an `Episode` has besides the pictures."""

    places: Int[Array, "time"]
    targets: Float[Array, "time label"]
    classes: Int[Array, "time"]
    instances: Int[Array, "time"]
    mask: Bool[Array, "time"]
    told: Bool[Array, "time"] | None = None


@dataclasses.dataclass(frozen=True)
class Classification(Task, kind="classification"):
    """Pictures of a few classes, with labels that are shuffled from episode to episode.

    Raises:
        MannError: for an impossible number of classes or length.

    Examples:
        >>> Classification(classes=5).steps
        50
        >>> Classification(classes=15, labels="strings").label_size
        25
    """

    classes: int = 5
    """Classes in an episode (N)."""
    length: int = 0
    """Samples in an episode (T); 0 means 10·N, as in the paper's supplement."""
    labels: Literal["onehot", "strings"] = "onehot"
    """One-hot of size N, or five letters from {a..e} as a 25-long five-hot vector."""
    balanced: bool = False
    """Every class equally often. The paper draws the class of each sample at random, so that counts differ."""
    repeats: bool = False
    """Let a drawing return within an episode before all of its class were shown; the paper does not say."""
    augment: bool = True
    """Rotate by up to ±π/16, shift by up to ±10 of 105 pixels, and turn each class by a multiple of 90°."""
    alphabets: Alphabets = "across"
    """Classes come from all alphabets; within one, and as few more as it takes; or, mixed, either at even odds."""
    pool: PoolConfig = PoolConfig()

    def __post_init__(self) -> None:
        check_range("The number of classes in an episode", self.classes, 1, MOST)
        check_range("The length of an episode", self.length, 0, MOST)
        if self.classes > self.label_code.capacity:
            raise MannError(
                f"There are {self.label_code.capacity} string labels: ask for at most that many classes."
            )
        if self.pool.episodes and self.pool.classes < self.classes:
            raise MannError(
                f"An episode of {self.classes} classes cannot be drawn from a pool of {self.pool.classes}: raise "
                "task.pool.classes."
            )

    @property
    def steps(self) -> int:
        return self.length or 10 * self.classes

    @property
    def label_size(self) -> int:
        return self.label_code.size

    @property
    def label_code(self) -> LabelCode:
        return one_hot(self.classes) if self.labels == "onehot" else STRINGS

    @property
    def needs_data(self) -> bool:
        return True

    @property
    def least_classes(self) -> int:
        """How many classes a data set must have for an episode."""
        return self.classes

    @property
    def output(self) -> Letters:
        return Letters(self.label_code)

    @property
    def names(self) -> Letters:
        return self.output

    def input_shape(self, pictures: PictureFormat) -> tuple[int, ...]:
        return pictures.shape

    def load(self, data: DataConfig) -> Sources:
        images = data.load()
        parts = data.divide(len(images), self.least_classes)
        if not parts.train:
            raise MannError(
                f"{images.name} has no classes to train on, only to test: train on another data set."
            )
        seen = training_fingerprints(images, data)
        trained = images.subset(0, parts.train)
        train = self._prepare(trained.with_mirror_images() if data.mirror else trained)
        classes: dict[str, Any] = {"dataset": images.name, "trained": [1, parts.train], "held_out": None}
        about = f"{images.name}: trained on classes 1–{parts.train}"
        if parts.validation == parts.train:
            return Sources(train, train, f"{about}, and watched on the same", classes, seen)
        classes["held_out"] = [parts.train + 1, parts.validation]
        held_out = self._prepare(images.subset(parts.train, parts.validation))
        about += f", watched on held-out classes {parts.train + 1}–{parts.validation}"
        return Sources(train, held_out, about, classes, seen)

    def load_unseen(
        self, data: DataConfig, trained_on: DataConfig, seen: Fingerprints | None, model: str
    ) -> Unseen:
        unseen, first = unseen_images(data, trained_on, seen, model)
        return Unseen(self._prepare(unseen), unseen.name, (first + 1, first + len(unseen)))

    def _prepare(self, images: ImageSet) -> Drawings:
        drawings = prepare(images)
        self.check(drawings)
        return drawings

    def check(self, drawings: Drawings) -> None:
        """Refuse a data set with too few classes for this task."""
        if (have := len(drawings.counts)) < self.least_classes:
            raise MannError(
                f"An episode of {self.least_classes} classes cannot be drawn from a data set of {have}: "
                "use fewer classes or a larger data set."
            )

    def draw(
        self, key: PRNGKeyArray, source: Drawings | None = None, size: Int[Array, "2"] | None = None
    ) -> Episode:
        """Draw one episode.

        Args:
            key: random key; the same one draws the same episode on every machine.
            source: a prefiltered data set (`prepare`).
            size: a number of classes and a length that may be traced: only that much of the full size is used (a
                curriculum without recompilation), and the rest of the steps is masked.

        Raises:
            MannError: if the data set has fewer classes than an episode.
        """
        if source is None:
            raise MannError("A classification task needs pictures.")
        self.check(source)
        active = self.classes if size is None else size[0]
        population, per_class = source.grids.shape[:2]
        # All random numbers of the episode at once: one call compiles and runs faster than many small ones.
        n, steps = self.classes, self.steps
        sizes = [n, n, n, steps, steps if self.repeats else n * per_class]
        uniform = jax.random.uniform(key, (sum(sizes) + 3 * steps,))
        for_class, for_label, for_quarter, for_sample, for_drawing, for_transform = jnp.split(
            uniform, list(itertools.accumulate(sizes))
        )

        turns = choose_below(for_quarter, 4)
        if self.alphabets == "across" or source.alphabets is None:
            chosen = sample_distinct(for_class, population)
        else:
            chosen, alike = choose_classes(jax.random.fold_in(key, 0), source.alphabets, n, self.alphabets)
            turns = turns[alike]
        encoded = self.label_code.encode(sample_distinct(for_label, self.label_code.capacity))

        mask = jnp.arange(steps) < (steps if size is None else size[1])
        if self.balanced:  # the rank of a step among those that are not padding
            which = jnp.argsort(jnp.argsort(jnp.where(mask, for_sample, 2.0))).astype(jnp.int32) % active
        else:
            which = choose_below(for_sample, active)
        instances = instance_numbers(which, n)

        available = source.counts[chosen]  # a padded class has fewer real drawings than the array holds
        if self.repeats:
            drawing = choose_below(for_drawing, available[which])
        else:
            priority = for_drawing.reshape(n, per_class)
            priority = jnp.where(jnp.arange(per_class)[None] < available[:, None], priority, 2.0)
            order = jnp.argsort(priority, axis=1)
            drawing = order[which, (instances - 1) % available[which]]

        rotation, shift = random_transform(for_transform.reshape(steps, 3), source.format.side)
        pixels = render(source, chosen[which], drawing, self.transform(rotation, shift, turns[which]))
        return Episode(pixels, encoded[which], which, instances, mask)

    def transform(
        self, rotation: Float[Array, "time"], shift: Float[Array, "time 2"], quarter: Int[Array, "time"]
    ) -> Transform:
        """What of the paper's augmentation is done to the pictures of an episode: all of it, or nothing.

        Args:
            rotation: in radians.
            shift: down and right, in pixels.
            quarter: turns of 90°.
        """
        if self.augment:
            return Transform(rotation, shift, quarter)
        return Transform(jnp.zeros_like(rotation), jnp.zeros_like(shift), jnp.zeros_like(quarter))

    @property
    def together(self) -> int:
        return self.pool.episodes or 1

    def draw_training(
        self, keys: Key[Array, "batch"], source: Drawings | None = None, size: Int[Array, "2"] | None = None
    ) -> Episode:
        """As `draw_batch`, or with pictures that episodes share."""
        if not self.pool.episodes or source is None:
            return self.draw_batch(keys, source, size)
        self.pool.check_batch(len(keys))
        draw = jax.vmap(
            lambda key: self.pool.draw(jax.random.fold_in(key, 0), source, self.augment, self.alphabets)
        )
        pictures, alike = draw(keys[:: self.pool.episodes])
        alike = jnp.repeat(alike, self.pool.episodes, axis=0)
        arranged = jax.vmap(self._arrange, in_axes=(0, 0, None))(keys, alike, size)
        return Episode(
            SharedPictures(pictures, arranged.places),
            arranged.targets,
            arranged.classes,
            arranged.instances,
            arranged.mask,
            arranged.told,
        )

    def _arrange(
        self, key: PRNGKeyArray, alike: Int[Array, "classes"], size: Int[Array, "2"] | None
    ) -> Arrangement:
        order_key, label_key, size_key = jax.random.split(jax.random.fold_in(key, 1), 3)
        size = self.random_size(size_key) if size is None else size
        active, length = (self.classes, self.steps) if size is None else (size[0], size[1])
        places, which = self.pool.arrange(order_key, alike, active, self.steps)
        codes = sample_distinct(jax.random.uniform(label_key, (self.classes,)), self.label_code.capacity)
        mask = jnp.arange(self.steps) < jnp.minimum(length, active * self.pool.drawings)
        which = jnp.minimum(which, self.classes - 1)  # of padding
        targets = self.label_code.encode(codes)[which]
        return Arrangement(places, targets, which, instance_numbers(which, self.classes), mask)

    def random_size(self, key: PRNGKeyArray) -> Int[Array, "2"] | None:
        """Classes and length of an episode, where they differ from one to the next; None (as here) where not."""
        return None

    def tally(self, outputs: Float[Array, "batch time size"], episodes: Episode) -> Tally:
        correct = self.output.correct(outputs, episodes.targets)
        counts = count_by_instance(correct, episodes.instances, episodes.mask)
        return Tally(counts, self.output.nll(outputs, episodes.targets))

    def record(self, tally: Tally) -> dict[str, Any]:
        by_instance = [cell.value for cell in accuracy_by_instance(tally.counts)]
        return {
            "held_out_loss": float(np.mean(np.asarray(tally.nll, np.float64))),
            "accuracy": [or_none(round(value, 6)) for value in by_instance],
        }

    def score(self, record: dict[str, Any]) -> float:
        known = [value for value in record["accuracy"][1:] if value is not None]  # the first is a guess
        return float(np.mean(known)) if known else math.nan

    def headline(self, record: dict[str, Any]) -> str:
        values = (record["accuracy"][i - 1] for i in HEADLINE)
        cells = ("    –" if value is None else f"{100 * value:4.1f}%" for value in values)
        return "held-out accuracy " + " ".join(cells) + " (1st 2nd 5th 10th)"

    def summarise(self, tally: Tally, reference: Any) -> "AccuracyByInstance":
        return AccuracyByInstance(self, accuracy_by_instance(tally.counts))

    def describe(self, episodes: int) -> str:
        kind = "one-hot" if self.labels == "onehot" else "string"
        return f"{episodes} episodes of {self.classes} classes, length {self.steps}, {kind} labels"

    def paper_rows(self, controller: str, memory: str) -> list[PaperRow]:
        return paper_rows(self.classes, self.labels, controller, memory)

    def resized(
        self, classes: int = 0, length: int = 0, alphabets: Alphabets | Literal[""] = ""
    ) -> "Classification":
        if classes and classes != self.classes and self.labels == "onehot":
            raise MannError(
                f"This model has one-hot labels for exactly {self.classes} classes: use a model with string labels "
                "for another number."
            )
        return dataclasses.replace(
            self,
            classes=classes or self.classes,
            length=length or (0 if classes else self.length),
            alphabets=alphabets or self.alphabets,
            pool=PoolConfig(),  # which is for training, and may have fewer classes
        )

    def stage(self, classes: int) -> Stage:
        """Stages of up to five sizes share one compilation, as long as the largest of them."""
        if self.length:
            return super().stage(classes)
        classes = min(classes, self.classes)
        bucket = min(-(-classes // BUCKET) * BUCKET, self.classes)
        return Stage(dataclasses.replace(self, length=10 * bucket), (classes, 10 * classes))

    def smallest(self) -> "Classification":
        return dataclasses.replace(self, length=2 * self.classes)

    @property
    def first_instance_ceiling(self) -> float:
        """Best possible accuracy on first instances, for a learner that always knows a new class when it sees one.

        It can rule out labels already given: the k-th new class is guessed among those left.
        """
        left = (self.label_code.capacity - k for k in range(self.classes))
        return sum(1 / labels for labels in left) / self.classes


@dataclasses.dataclass(frozen=True)
class AccuracyByInstance:
    """Accuracy on the 1st, 2nd, … 10th time that a class is seen within an episode."""

    task: Classification
    instances: list[Interval]

    def to_json(self) -> dict[str, Any]:
        return {
            "classes": self.task.classes,
            "labels": self.task.labels,
            "repeats": self.task.repeats,
            "first_instance_ceiling": self.task.first_instance_ceiling,
            "instances": instances_to_json(self.instances),
        }

    def table(self, paper: list[PaperRow]) -> ResultTable:
        names = ["human (paper)" if row.model == "Human" else f"{row.model} (paper)" for row in paper]
        rows = []
        for number, cell in enumerate(self.instances, start=1):
            if cell.samples:
                beside = [f"{row.accuracy[number]:.1f}" if number in row.accuracy else "" for row in paper]
                interval = f"{100 * cell.low:.1f} – {100 * cell.high:.1f}"
                rows.append([str(number), f"{100 * cell.value:.1f}", interval, str(cell.samples), *beside])
        ceiling = 100 * self.task.first_instance_ceiling
        note = f"Accuracy in %. A new class can be guessed at best with {ceiling:.1f} % on its 1st instance."
        return ResultTable(["instance", "accuracy", "95 % interval", "samples", *names], rows, [note])
