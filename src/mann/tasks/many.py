"""Few things or many, and an honest "this is new": episodes of varying size, with novelty as an output."""

import dataclasses
import math
from typing import Any, Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from mann.data.render import Drawings
from mann.episodes import Encoded, Episode, SharedPictures, sample_distinct, time_offset
from mann.errors import MannError, check_range
from mann.layers import normalise
from mann.outputs import LettersOrNew
from mann.tasks.alphabets import Alphabets
from mann.tasks.base import Network
from mann.tasks.classification import Arrangement, Classification, Tally
from mann.tasks.pool import PoolConfig

HEAVIEST = 20.0  # a step that is rarer than one in so many counts no more than that
TAUGHT = 0.75  # of the classes of a pool, in a quiz
CONTRAST_STRENGTH = 18.0  # of the softmax over cosines; learnt, it came to 17 to 23


class Contrasted(NamedTuple):
    """What a network said, and what the contrast of its keys costs."""

    outputs: Float[Array, "batch time size"]
    contrast: Float[Array, "batch"]


@dataclasses.dataclass(frozen=True)
class ManyThings(Classification, kind="many"):
    """Classification of between `fewest` and `classes` things, a new number in every episode.

    The network also states how likely it is that a picture is of a class not yet seen in the episode.
    """

    classes: int = 20
    """The largest number of classes in an episode (N)."""
    labels: Literal["onehot", "strings"] = "strings"
    """Five letters from {a..e}, as a 25-long five-hot vector; one-hot labels do not fit varying numbers."""
    fewest: int = 2
    """The smallest number of classes in an episode; numbers are even on a logarithmic scale."""
    crowded: float = 0.0
    """Share of the episodes that have all `classes`: where there is most to be mistaken for, most is learnt."""
    quizzed: float = 0.0
    """Share of the episodes from a pool that teach most of its classes once, then ask, and tell no answer."""
    contrast: float = 0.0
    """Weight of a further loss: each picture of a pool must be found by any one other of its class."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("The share of quizzes", self.quizzed, 0.0, 1.0)
        check_range("The weight of the contrast", self.contrast, 0.0, 1e6)
        if self.contrast and not self._can_contrast:
            raise MannError("A contrast needs a pool with two drawings per class: set task.pool.episodes.")
        if self.quizzed and not (self.pool.episodes and self.pool.drawings > 1):
            raise MannError("A quiz needs a pool with two drawings per class: set task.pool.episodes.")
        if self.quizzed and self.steps <= self.taught:
            raise MannError(
                f"A quiz of {self.taught} things leaves nothing to ask in {self.steps} steps: raise task.length."
            )
        check_range("The fewest classes in an episode", self.fewest, 1, self.classes)
        check_range("The share of crowded episodes", self.crowded, 0.0, 1.0)
        if self.labels != "strings":
            raise MannError("Many things need string labels: set task.labels to strings.")

    @property
    def _can_contrast(self) -> bool:
        return self.pool.episodes > 0 and self.pool.drawings > 1

    @property
    def least_classes(self) -> int:
        return self.fewest

    @property
    def output(self) -> LettersOrNew:
        return LettersOrNew(self.label_code)

    def draw(
        self, key: PRNGKeyArray, source: Drawings | None = None, size: Int[Array, "2"] | None = None
    ) -> Episode:
        if source is not None and len(source.counts) < self.classes:  # held-out classes are few
            return dataclasses.replace(self, classes=len(source.counts)).draw(key, source, size)
        if size is None:
            size_key, key = jax.random.split(key)
            size = self.random_size(size_key)
        return super().draw(key, source, size)

    def random_size(self, key: PRNGKeyArray) -> Int[Array, "2"]:
        """All classes or, even on a logarithmic scale, some of them."""
        low, high = math.log(self.fewest), math.log(self.classes + 1)
        many = jnp.exp(jax.random.uniform(key, (), minval=low, maxval=high)).astype(jnp.int32)
        if self.crowded:
            crowded = jax.random.bernoulli(jax.random.fold_in(key, 0), self.crowded)
            many = jnp.where(crowded, self.classes, many)
        return jnp.stack([jnp.minimum(many, self.classes), jnp.asarray(self.steps)])

    @property
    def taught(self) -> int:
        """Classes that are taught in a quiz."""
        return math.ceil(TAUGHT * self.pool.classes)

    def _arrange(
        self, key: PRNGKeyArray, alike: Int[Array, "classes"], size: Int[Array, "2"] | None
    ) -> Arrangement:
        ordinary = super()._arrange(key, alike, size)
        if not self.quizzed:
            return ordinary
        ordinary = ordinary._replace(told=jnp.ones(self.steps, bool))
        is_quiz = jax.random.bernoulli(jax.random.fold_in(key, 2), self.quizzed)
        quiz = self._quiz(jax.random.fold_in(key, 3))
        return jax.tree.map(lambda a, b: jnp.where(is_quiz, a, b), quiz, ordinary)

    def _quiz(self, key: PRNGKeyArray) -> Arrangement:
        """Drawing 0 of every class that is taught, then the others of these, and all of those that are not."""
        class_key, step_key, label_key = jax.random.split(key, 3)
        drawings, classes = self.pool.drawings, self.pool.classes
        rank = jnp.repeat(jax.random.permutation(class_key, classes), drawings)  # of each picture's class
        is_taught = rank < self.taught
        is_lesson = is_taught & (jnp.arange(classes * drawings) % drawings == 0)
        priority = jax.random.uniform(step_key, rank.shape) + jnp.where(is_lesson, 0.0, 1.0)
        places = jnp.resize(jnp.argsort(priority), (self.steps,)).astype(jnp.int32)
        step = jnp.arange(self.steps)
        told = step < self.taught
        codes = sample_distinct(jax.random.uniform(label_key, (classes,)), self.label_code.capacity)
        which = rank[places].astype(jnp.int32)
        instances = jnp.where(told | ~is_taught[places], 1, 2).astype(jnp.int32)
        targets = self.label_code.encode(codes)[which]
        return Arrangement(places, targets, which, instances, step < classes * drawings, told)

    def unroll(self, network: Network, episodes: Episode, state: Any = None) -> tuple[Any, Any]:
        labels, inputs = episodes.targets, episodes.inputs
        if episodes.told is not None:
            labels = jnp.where(episodes.told[..., None], labels, 0.0)
        if not (self.contrast and isinstance(inputs, SharedPictures)):
            outputs, last, _ = network.unroll_batch(inputs, time_offset(labels), state)
            return outputs, last
        model = cast(Any, network)  # a `Model`: its parts are asked
        encoded = model.encode(inputs.pictures)
        contrast = jax.vmap(lambda keys: contrast_loss(keys, self.pool.drawings))(model.memory.embed(encoded))
        outputs, last, _ = network.unroll_batch(Encoded(inputs.spread(encoded)), time_offset(labels), state)
        return Contrasted(outputs, jnp.repeat(contrast, len(labels) // len(contrast))), last

    def loss(
        self, outputs: Float[Array, "batch time size"] | Contrasted, episodes: Episode
    ) -> Float[Array, "batch"]:
        """Letters of classes that were seen before, and known or new at every step, in nats per step; and the
        contrast of a pool, for each of its episodes."""
        if isinstance(outputs, Contrasted):
            return self.loss(outputs.outputs, episodes) + self.contrast * outputs.contrast
        losses = jnp.where(episodes.mask, self._losses(outputs, episodes), 0.0)
        return jnp.sum(losses, axis=-1) / jnp.sum(episodes.mask, axis=-1).astype(losses.dtype)

    def tally(self, outputs: Float[Array, "batch time size"], episodes: Episode) -> Tally:
        return Tally(super().tally(outputs, episodes).counts, self._losses(outputs, episodes))

    def _losses(
        self, outputs: Float[Array, "batch time size"], episodes: Episode
    ) -> Float[Array, "batch time"]:
        is_new = episodes.instances == 1
        letters = jnp.where(is_new, 0.0, self.output.nll(outputs, episodes.targets))
        total = 1 + jnp.max(jnp.where(episodes.mask, episodes.classes, 0), axis=-1, keepdims=True)
        shared = isinstance(episodes.inputs, SharedPictures)
        weights = even_odds(is_new, total, self.pool.drawings if shared else 0)
        if episodes.told is not None:
            is_quiz = ~jnp.all(episodes.told, axis=-1, keepdims=True)
            asked = jnp.where(episodes.told, 0.0, self._even_odds_in_quiz(is_new))
            weights = jnp.where(is_quiz, asked, weights)
        return letters + weights * self.output.new_nll(outputs, is_new)

    def _even_odds_in_quiz(self, is_new: Bool[Array, "*batch time"]) -> Float[Array, "*batch time"]:
        """Weights under which new and known are equally likely whenever something is asked."""
        known = self.taught * (self.pool.drawings - 1)
        new = (self.pool.classes - self.taught) * self.pool.drawings
        return jnp.where(is_new, 0.5 * (known + new) / max(new, 1), 0.5 * (known + new) / known)

    def score(self, record: dict[str, Any]) -> float:
        return -float(record["held_out_loss"])

    def resized(
        self, classes: int = 0, length: int = 0, alphabets: Alphabets | Literal[""] = ""
    ) -> "ManyThings":
        # With a number of classes, that many in every episode.
        length = length or (0 if classes else self.length)
        changed = dataclasses.replace(
            self, length=length, alphabets=alphabets or self.alphabets, quizzed=0.0, contrast=0.0
        )
        if not classes:
            return changed
        return dataclasses.replace(changed, classes=classes, fewest=classes, pool=PoolConfig())

    def smallest(self) -> "ManyThings":
        few = min(self.classes, 6)
        return dataclasses.replace(
            self, classes=few, fewest=min(self.fewest, few), length=2 * few, quizzed=0.0, contrast=0.0
        )


def contrast_loss(keys: Float[Array, "pictures width"], drawings: int) -> Float[Array, ""]:
    """−log p of a picture's class among all, where each class shows one drawing, over all choices of that one.

    p is a softmax over cosines. Letters of a label leave a class that shares some of them half right; here it is
    wrong.

    Args:
        keys: of the pictures of a pool, class by class.
        drawings: of each class.
    """
    keys = normalise(keys)
    classes = len(keys) // drawings
    logits = CONTRAST_STRENGTH * (keys @ keys.T).reshape(len(keys), classes, drawings)
    log_p = jax.nn.log_softmax(logits, axis=1)
    own, number = jnp.divmod(jnp.arange(len(keys)), drawings)
    right = jnp.take_along_axis(log_p, own[:, None, None], axis=1)[:, 0]
    others = number[:, None] != jnp.arange(drawings)[None]  # a picture is not compared with itself
    return -jnp.sum(jnp.where(others, right, 0.0)) / (len(keys) * (drawings - 1))


def even_odds(
    is_new: Bool[Array, "*batch time"], total: Int[Array, "*batch 1"], drawings: int = 0
) -> Float[Array, "*batch time"]:
    """Weights under which new and known are equally likely at every step, whatever came before.

    With n of N classes seen, a step is new with probability 1 − n/N; or, if each of D drawings per class comes
    once, with probability (N − n)·D / (N·D − t) after t steps. Unweighted, a network would learn that after five
    new things in a row a sixth is to be expected; somebody who teaches five things and then asks about one of
    them expects otherwise.

    Args:
        is_new: where a class is seen for the first time.
        total: classes in the episode (N).
        drawings: that come once, per class (D); 0 if classes are drawn independently at every step.
    """
    seen = jnp.cumsum(is_new, axis=-1) - is_new.astype(jnp.int32)
    left, all_left = total - seen, jnp.broadcast_to(total, seen.shape)
    if drawings:
        left = left * drawings
        steps = jnp.broadcast_to(jnp.arange(is_new.shape[-1]), seen.shape)
        all_left = jnp.maximum(all_left * drawings - steps, 1)
    new = left.astype(jnp.float32) / all_left.astype(jnp.float32)
    weights = 0.5 / jnp.maximum(jnp.where(is_new, new, 1 - new), 1 / HEAVIEST)
    return jnp.where(seen == 0, 0.0, weights)
