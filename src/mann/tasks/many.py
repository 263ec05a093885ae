"""Few things or many, and an honest "this is new": episodes of varying size, with novelty as an output."""

import dataclasses
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from mann.data.render import Drawings
from mann.episodes import Episode, SharedPictures
from mann.errors import MannError, check_range
from mann.outputs import LettersOrNew
from mann.tasks.alphabets import Alphabets
from mann.tasks.classification import Classification, Tally
from mann.tasks.pool import PoolConfig

HEAVIEST = 20.0  # a step that is rarer than one in so many counts no more than that


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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("The fewest classes in an episode", self.fewest, 1, self.classes)
        check_range("The share of crowded episodes", self.crowded, 0.0, 1.0)
        if self.labels != "strings":
            raise MannError("Many things need string labels: set task.labels to strings.")

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

    def loss(self, outputs: Float[Array, "batch time size"], episodes: Episode) -> Float[Array, "batch"]:
        """Letters of classes that were seen before, and known or new at every step, in nats per step."""
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
        return letters + weights * self.output.new_nll(outputs, is_new)

    def score(self, record: dict[str, Any]) -> float:
        return -float(record["held_out_loss"])

    def resized(
        self, classes: int = 0, length: int = 0, alphabets: Alphabets | Literal[""] = ""
    ) -> "ManyThings":
        # With a number of classes, that many in every episode.
        length = length or (0 if classes else self.length)
        changed = dataclasses.replace(self, length=length, alphabets=alphabets or self.alphabets)
        if not classes:
            return changed
        return dataclasses.replace(changed, classes=classes, fewest=classes, pool=PoolConfig())

    def smallest(self) -> "ManyThings":
        few = min(self.classes, 6)
        return dataclasses.replace(self, classes=few, fewest=min(self.fewest, few), length=2 * few)


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
