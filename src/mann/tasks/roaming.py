"""RoamingOmniglot (Ren et al. 2021): a stream that wanders between contexts, and known or new before the class.

A context is an alphabet, in which classes come by a Chinese restaurant process: a class seen m times returns with
odds m − α, a new one comes with odds θ + kα after k of them. After every picture the stream may wander to another
context. A part of every picture is hidden. What is reported is the area under precision and recall of naming what
is known, and the accuracy after one and after three shows.
"""

import dataclasses
import math
from typing import Any, Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from mann.data.render import Drawings, Transform, render
from mann.episodes import Encoded, Episode, choose_below, instance_numbers, sample_distinct, time_offset
from mann.errors import MannError, check_range
from mann.layers import normalise
from mann.metrics import InstanceCounts, accuracy_by_instance
from mann.paper import PaperRow
from mann.statistics import CONFIDENCE, Interval, area_of_named, instances_to_json, or_none
from mann.tasks.base import Network, ResultTable, Stage, Task
from mann.tasks.classification import MOST
from mann.tasks.many import CONTRAST_STRENGTH, Contrasted, ManyThings

GREY = 0.5  # of what is hidden
CROP = 4 / 28  # of the side: in training, pictures are cropped from ones that are larger by so much
SHOTS = (1, 3)  # shows after which the accuracy is reported
GROUPS = 20  # of episodes, by which the interval of an area is estimated


class Named(NamedTuple):
    """What a network did at every step of a batch of streams."""

    counts: InstanceCounts
    nll: Float[Array, "batch time"]
    new: Float[Array, "batch time"]  # log odds of something new
    right: Bool[Array, "batch time"]  # whether the class is right, if it must be named
    known: Bool[Array, "batch time"]
    mask: Bool[Array, "batch time"]


@dataclasses.dataclass(frozen=True)
class Roaming(ManyThings, kind="roaming"):
    """Streams that wander between alphabets, with a part of every picture hidden (RoamingOmniglot).

    Raises:
        MannError: for sizes that no stream can have.

    Examples:
        >>> import jax, mann
        >>> task = mann.Roaming(classes=6, contexts=2, length=12)
        >>> episode = task.draw(jax.random.key(0), mann.prepare(mann.Glyphs(classes=40).load()))
        >>> episode.targets.shape
        (12, 25)
    """

    contrast: float = 0.0
    """Weight of a further loss: each picture of a stream must be found by any other of its class."""
    classes: int = 50
    """Classes in a stream, at most, over all contexts."""
    length: int = 150
    """Pictures in a stream, at most: each context has its share, and may end earlier (`seat`)."""
    contexts: int = 5
    """Contexts that a stream wanders between."""
    context: Literal["alphabet", "mixture"] = "alphabet"
    """What a context is: an alphabet; or, as the published code samples, classes of different alphabets."""
    discount: float = 0.2
    """α of the Chinese restaurant process: the larger, the more classes."""
    strength: float = 1.0
    """θ of the process: the larger, the sooner new classes."""
    most: int = 6
    """How often a class comes, at most."""
    switch: float = 0.2
    """The probability of drawing the context anew after a picture."""
    hidden: float = 0.3
    """The side of the grey box that hides a part of every picture, as a share of the picture's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("The contexts of a stream", self.contexts, 1, MOST)
        check_range("How often a class comes", self.most, 1, MOST)
        check_range("The hidden share of a side", self.hidden, 0.0, 1.0)
        check_range("The probability of a switch", self.switch, 0.0, 1.0)
        if self.classes % self.contexts or self.length % self.contexts or not self.length:
            raise MannError(
                f"{self.contexts} contexts cannot share {self.classes} classes and {self.length} pictures evenly: "
                "make both a multiple."
            )
        if not (0 <= self.discount < 1 and 0 < self.strength < math.inf):
            raise MannError(
                "The discount of a restaurant process lies in [0, 1), and its strength is positive."
            )
        if self.pool.episodes:
            raise MannError("Streams share no pictures: set task.pool.episodes to 0.")

    def draw(
        self, key: PRNGKeyArray, source: Drawings | None = None, size: Int[Array, "2"] | None = None
    ) -> Episode:
        return self._stream(key, source, cropped=False)

    def draw_training(
        self, keys: Key[Array, "batch"], source: Drawings | None = None, size: Int[Array, "2"] | None = None
    ) -> Episode:
        """As `draw_batch`, with pictures that are cropped at random."""
        return jax.vmap(lambda key: self._stream(key, source, cropped=True))(keys)

    def _stream(self, key: PRNGKeyArray, source: Drawings | None, cropped: bool) -> Episode:
        if source is None:
            raise MannError("A classification task needs pictures.")
        self.check(source)
        keys = jax.random.split(key, 7)
        context, table, mask = self.wander(keys[0], *self.seat(keys[1]))
        chosen, turns = self._choose(keys[2], source)
        which = context * (self.classes // self.contexts) + table
        instances = instance_numbers(which, self.classes)
        per_class = source.grids.shape[1]
        available = source.counts[chosen]
        priority = jax.random.uniform(keys[3], (self.classes, per_class))
        priority = jnp.where(jnp.arange(per_class)[None] < available[:, None], priority, 2.0)
        order = jnp.argsort(priority, axis=1)
        drawing = order[which, (instances - 1) % available[which]].astype(jnp.int32)
        side = source.format.side
        shift = jnp.zeros((self.steps, 2))
        if cropped:  # by whole pixels of 28
            moved = choose_below(jax.random.uniform(keys[4], (self.steps, 2)), 5) - 2
            shift = moved.astype(jnp.float32) * (CROP / 4 * side)
        still = Transform(jnp.zeros(self.steps), shift, turns[which])
        pictures = render(source, chosen[which], drawing, still)
        pictures = self._hide(keys[5], pictures, source)
        codes = sample_distinct(jax.random.uniform(keys[6], (self.classes,)), self.label_code.capacity)
        return Episode(pictures, self.label_code.encode(codes)[which], which, instances, mask)

    def seat(self, key: PRNGKeyArray) -> tuple[Int[Array, "contexts time"], Int[Array, "contexts"]]:
        """The classes of every context in their order, and how many pictures it has.

        With all of its classes in use, a context ends where one more would have come.
        """
        tables, steps = self.classes // self.contexts, self.length // self.contexts

        def guest(
            carry: tuple[Int[Array, "tables"], Bool[Array, ""]], uniform: Float[Array, ""]
        ) -> tuple[tuple[Int[Array, "tables"], Bool[Array, ""]], tuple[Int[Array, ""], Bool[Array, ""]]]:
            seated, ended = carry
            taken = jnp.sum(seated > 0)
            odds = jnp.where(
                (seated > 0) & (seated < self.most), seated.astype(jnp.float32) - self.discount, 0.0
            )
            new = self.strength + self.discount * taken.astype(jnp.float32)
            edges = jnp.cumsum(jnp.concatenate([odds, new[None]]))
            table = jnp.sum(uniform * edges[-1] >= edges[:-1])  # `tables` means a new one
            ended = ended | ((table == tables) & (taken == tables))
            table = jnp.minimum(jnp.where(table == tables, taken, table), tables - 1)
            seated = seated + ((jnp.arange(tables) == table) & ~ended).astype(jnp.int32)
            return (seated, ended), (table.astype(jnp.int32), ~ended)

        def fill(uniform: Float[Array, "time"]) -> tuple[Int[Array, "time"], Bool[Array, "time"]]:
            return jax.lax.scan(guest, (jnp.zeros(tables, jnp.int32), jnp.asarray(False)), uniform)[1]

        table, present = jax.vmap(fill)(jax.random.uniform(key, (self.contexts, steps)))
        return table, jnp.sum(present, axis=1, dtype=jnp.int32)

    def wander(
        self, key: PRNGKeyArray, tables: Int[Array, "contexts time"], lengths: Int[Array, "contexts"]
    ) -> tuple[Int[Array, "steps"], Int[Array, "steps"], Bool[Array, "steps"]]:
        """Context and class of every step, and which steps there are. Contexts go on where they were left.

        Args:
            key: random key.
            tables: the classes of every context, in the order in which it shows them.
            lengths: how many of these there are.
        """

        def step(
            carry: tuple[Int[Array, ""], Int[Array, "contexts"]], uniform: Float[Array, "3"]
        ) -> tuple[tuple[Int[Array, ""], Int[Array, "contexts"]], tuple[Array, Array, Array]]:
            context, used = carry
            left = used < lengths
            ranks = jnp.cumsum(left)  # of those with something left
            other = jnp.argmax(ranks > choose_below(uniform[0], jnp.maximum(ranks[-1], 1)))
            context = jnp.where(left[context], context, other)
            table = tables[context, jnp.minimum(used[context], tables.shape[1] - 1)]
            present = left[context]
            used = used + ((jnp.arange(self.contexts) == context) & present).astype(jnp.int32)
            onward = jnp.where(uniform[1] < self.switch, choose_below(uniform[2], self.contexts), context)
            return (onward, used), (context.astype(jnp.int32), table, present)

        start = (jnp.asarray(0), jnp.zeros(self.contexts, jnp.int32))
        _, (context, table, present) = jax.lax.scan(step, start, jax.random.uniform(key, (self.steps, 3)))
        return context, table, present

    def _choose(
        self, key: PRNGKeyArray, source: Drawings
    ) -> tuple[Int[Array, "classes"], Int[Array, "classes"]]:
        """Different characters, each with one of four quarter turns, which make it a class of its own."""
        population = len(source.counts)
        per_context = self.classes // self.contexts
        alphabets = source.alphabets
        if alphabets is None:  # as many stretches of the data set as there are contexts
            alphabets = jnp.arange(population) * self.contexts // population
        alphabet_key, class_key = jax.random.split(key)
        there = jnp.zeros(population, bool).at[alphabets].set(True)
        order = jnp.argsort(jnp.where(there, jax.random.uniform(alphabet_key, (population,)), 2.0))
        count = jnp.sum(there)
        context, table = jnp.divmod(jnp.arange(self.classes), per_context)
        if self.context == "alphabet":
            place, rank, most = context, table, per_context
        else:  # each class of a context from another alphabet, as far as there are enough
            place, rank, most = table % count, context + self.contexts * (table // count), self.classes
        priority = jax.random.uniform(class_key, (population, 4))

        def ranked(alphabet: Int[Array, ""]) -> Int[Array, "most"]:
            own = jnp.where((alphabets == alphabet)[:, None], priority, -1.0).reshape(-1)
            return jax.lax.top_k(own, most)[1]

        places = order[: max(self.contexts, per_context)]
        pairs = jax.vmap(ranked)(places)[place, rank].astype(jnp.int32)
        return pairs // 4, pairs % 4

    def _hide(
        self, key: PRNGKeyArray, pictures: Float[Array, "time pixels"], source: Drawings
    ) -> Float[Array, "time pixels"]:
        """A grey box somewhere on every picture."""
        side, channels = source.format
        box = int(self.hidden * side)
        corner = choose_below(jax.random.uniform(key, (self.steps, 2)), max(side - box, 1))
        place = jnp.arange(side)[None, None]
        inside = (place >= corner[:, :, None]) & (place < corner[:, :, None] + box)
        covered = (inside[:, 0, :, None] & inside[:, 1, None, :])[..., None]
        return jnp.where(covered, GREY, pictures.reshape(self.steps, side, side, channels)).reshape(
            pictures.shape
        )

    def unroll(self, network: Network, episodes: Episode, state: Any = None) -> tuple[Any, Any]:
        if not self.contrast:
            return super().unroll(network, episodes, state)
        model = cast(Any, network)  # a `Model`: its parts are asked
        encoded = model.encode(episodes.inputs)
        contrast = jax.vmap(contrast_of_stream)(model.memory.embed(encoded), episodes.classes, episodes.mask)
        outputs, last, _ = network.unroll_batch(Encoded(encoded), time_offset(episodes.targets), state)
        return Contrasted(outputs, contrast), last

    @property
    def _can_contrast(self) -> bool:
        return True  # the pictures of a stream

    def check(self, drawings: Drawings) -> None:
        super().check(drawings)
        if drawings.alphabets is None or isinstance(drawings.alphabets, jax.core.Tracer):
            return
        sizes = np.bincount(np.asarray(drawings.alphabets))
        sizes = sizes[sizes > 0]
        if len(sizes) < self.contexts or 4 * sizes.min() < self.classes // self.contexts:
            raise MannError(
                f"A stream wants {self.contexts} alphabets of {self.classes // self.contexts} classes, but the "
                f"data has {len(sizes)} of at least {sizes.min()} characters: use fewer contexts or classes."
            )

    @property
    def least_classes(self) -> int:
        """With its quarter turns, a character is four classes."""
        return -(-self.classes // 4)

    def _losses(
        self, outputs: Float[Array, "batch time size"], episodes: Episode
    ) -> Float[Array, "batch time"]:
        """Letters of what is known, and known or new as often as they come."""
        is_new = episodes.instances == 1
        letters = jnp.where(is_new, 0.0, self.output.nll(outputs, episodes.targets))
        return letters + self.output.new_nll(outputs, is_new)

    def tally(  # type: ignore[override]
        self, outputs: Float[Array, "batch time size"] | Contrasted, episodes: Episode
    ) -> Named:
        if isinstance(outputs, Contrasted):
            outputs = outputs.outputs
        counts, losses = super().tally(outputs, episodes)
        right = self.output.correct(outputs, episodes.targets) & (episodes.instances > 1)
        return Named(counts, losses, outputs[..., -1], right, episodes.instances > 1, episodes.mask)

    def record(self, tally: Named) -> dict[str, Any]:  # type: ignore[override]
        mask = np.asarray(tally.mask)
        by_instance = [cell.value for cell in accuracy_by_instance(tally.counts)]
        return {
            "held_out_loss": float(np.mean(np.asarray(tally.nll, np.float64)[mask])),
            "accuracy": [or_none(round(value, 6)) for value in by_instance],
            "average_precision": round(average_precision(tally), 6),
        }

    def score(self, record: dict[str, Any]) -> float:
        return float(record["average_precision"])

    def headline(self, record: dict[str, Any]) -> str:
        shots = (record["accuracy"][shots] for shots in SHOTS)
        cells = " ".join("    –" if value is None else f"{100 * value:4.1f}%" for value in shots)
        return f"held-out average precision {100 * record['average_precision']:4.1f}%, after 1 and 3 shows {cells}"

    def summarise(self, tally: Named, reference: Any) -> "KnownOrNew":  # type: ignore[override]
        return KnownOrNew(self, interval_of_area(tally), accuracy_by_instance(tally.counts))

    def describe(self, episodes: int) -> str:
        kind = "alphabets" if self.context == "alphabet" else "mixtures of alphabets"
        return f"{episodes} streams of up to {self.steps} pictures from {self.contexts} {kind}"

    def paper_rows(self, controller: str, memory: str) -> list[PaperRow]:
        return []

    def resized(self, classes: int = 0, length: int = 0, alphabets: Any = "") -> "Roaming":
        Task.resized(self, classes, length, alphabets)
        return self

    def stage(self, classes: int) -> Stage:
        raise MannError("Streams have no curriculum: set curriculum.every to 0.")

    def smallest(self) -> "Roaming":
        return dataclasses.replace(self, classes=6, contexts=2, length=12, contrast=0.0)


def contrast_of_stream(
    keys: Float[Array, "time width"], classes: Int[Array, "time"], mask: Bool[Array, "time"]
) -> Float[Array, ""]:
    """−log p of one picture of a class, given another, against all pictures of other classes of the stream.

    p is a softmax over cosines; the mean is over all pairs of different pictures of the same class.

    Args:
        keys: of the pictures.
        classes: of the pictures, as numbers.
        mask: which pictures there are.
    """
    keys = normalise(keys)
    logits = CONTRAST_STRENGTH * keys @ keys.T
    same = classes[:, None] == classes[None]
    # Finite, so that a stream of a single class has a gradient.
    others = jax.nn.logsumexp(jnp.where(~same & mask[None], logits, -1e6), axis=1, keepdims=True)
    pairs = same & mask[:, None] & mask[None] & ~jnp.eye(len(keys), dtype=bool)
    loss = jnp.where(pairs, jnp.logaddexp(logits, others) - logits, 0.0)
    return jnp.sum(loss) / jnp.maximum(jnp.sum(pairs), 1).astype(loss.dtype)


def average_precision(tally: Named) -> float:
    """Over all steps of all streams together, as published."""
    mask = np.asarray(tally.mask)
    return area_of_named(*(np.asarray(values)[mask] for values in (tally.new, tally.right, tally.known)))


def interval_of_area(tally: Named) -> Interval:
    """The average precision, with a 95 % interval from that of groups of streams."""
    value, streams = average_precision(tally), len(np.asarray(tally.mask))
    groups = np.array_split(np.arange(streams), min(GROUPS, streams))
    areas = [average_precision(jax.tree.map(lambda a, g=group: np.asarray(a)[g], tally)) for group in groups]
    half = CONFIDENCE * float(np.std(areas, ddof=1)) / math.sqrt(len(areas)) if len(areas) > 1 else math.nan
    return Interval(value, value - half, value + half, int(np.sum(np.asarray(tally.mask))))


@dataclasses.dataclass(frozen=True)
class KnownOrNew:
    """Average precision of naming what is known, and accuracy by how often a class was shown."""

    task: Roaming
    area: Interval
    instances: list[Interval]

    def to_json(self) -> dict[str, Any]:
        return {
            "context": self.task.context,
            "average_precision": self.area.value,
            "low": or_none(self.area.low),
            "high": or_none(self.area.high),
            "instances": instances_to_json(self.instances),
        }

    def table(self, paper: list[PaperRow]) -> ResultTable:
        rows = [_row("average precision", self.area)]
        for shots in SHOTS:
            shows = "1 show" if shots == 1 else f"{shots} shows"
            rows.append(_row(f"accuracy after {shows}", self.instances[shots]))
        note = (
            "In %. Average precision: area under precision and recall of naming what is known, the surest first. "
            "Accuracy: where it must be named."
        )
        return ResultTable(["what", "value", "95 % interval", "samples"], rows, [note])


def _row(what: str, cell: Interval) -> list[str]:
    value, low, high = (100 * number for number in cell[:3])
    return [what, f"{value:.1f}", f"{low:.1f} – {high:.1f}", str(cell.samples)]
