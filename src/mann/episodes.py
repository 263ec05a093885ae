"""Episodes: the stream (x_1, null), (x_2, y_1), …, (x_T, y_{T−1}) as a pure function of a PRNG key.

Everything here runs inside `jit`, from a data set that lives on the device: there is no loader, and the same
key gives the same episode on every machine.
"""

import dataclasses
import itertools
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from mann.data.functions import GaussianProcess, draw_function
from mann.data.render import SIZE, Drawings, Transform, random_transform, render
from mann.errors import MannError

LETTERS = 5  # letters in a string label, and size of the alphabet {a..e}
STRINGS = LETTERS**LETTERS  # 3125 possible string labels


class Episode(NamedTuple):
    """One episode. Steps where `mask` is false are padding (curriculum): no loss, no accuracy."""

    inputs: Float[Array, "*batch time features"]  # x_t: pixels, or the argument of a function
    targets: Float[Array, "*batch time label"]  # y_t: one-hot, five-hot, or the value of a function
    classes: Int[Array, "*batch time"]  # which of the episode's classes x_t belongs to
    instances: Int[Array, "*batch time"]  # 1 where that class is seen for the first time, and so on
    mask: Bool[Array, "*batch time"]


def time_offset(targets: Float[Array, "*batch time label"]) -> Float[Array, "*batch time label"]:
    """y_{t−1} for every step t, with the null label (zeros) at the first one."""
    return jnp.concatenate([jnp.zeros_like(targets[..., :1, :]), targets[..., :-1, :]], axis=-2)


def sample_distinct(uniform: Float[Array, "count"], population: int) -> Int[Array, "count"]:
    """Different integers below `population`, every ordered choice equally likely, one for each number in [0, 1).

    The i-th choice is the r-th of those not taken yet. No permutation of the whole population, no sort.
    """
    count = len(uniform)
    index = jnp.arange(count)
    remaining = population - index
    ranks = jnp.floor(uniform * remaining.astype(uniform.dtype)).astype(jnp.int32)
    ranks = jnp.minimum(ranks, remaining - 1)  # the product may round up

    def choose(
        i: Int[Array, ""], carry: tuple[Int[Array, "count"], Int[Array, "count"]]
    ) -> tuple[Int[Array, "count"], Int[Array, "count"]]:
        chosen, taken = carry  # taken: the same in ascending order, padded with `population`
        value = ranks[i] + jnp.sum(taken - index <= ranks[i], dtype=jnp.int32)
        place = jnp.sum(taken < value, dtype=jnp.int32)
        moved = jnp.where(index == place, value, jnp.roll(taken, 1))
        return chosen.at[i].set(value), jnp.where(index < place, taken, moved)

    nothing = jnp.zeros(count, jnp.int32)
    return jax.lax.fori_loop(0, count, choose, (nothing, nothing + population + count))[0]


def choose_below(uniform: Float[Array, "*n"], limit: int | Int[Array, "..."]) -> Int[Array, "*n"]:
    """Integers from 0 to limit − 1, from numbers in [0, 1)."""
    limits = jnp.broadcast_to(jnp.asarray(limit, jnp.int32), uniform.shape)
    return jnp.minimum((uniform * limits.astype(uniform.dtype)).astype(jnp.int32), limits - 1)


def encode_strings(codes: Int[Array, "n"]) -> Float[Array, "n 25"]:
    """Codes 0 … 3124 as five letters from {a..e}, each a one-hot of five."""
    powers = LETTERS ** jnp.arange(LETTERS - 1, -1, -1)
    letters = codes[:, None] // powers[None] % LETTERS
    return jax.nn.one_hot(letters, LETTERS).reshape(len(codes), LETTERS * LETTERS)


def string_of(target: Float[Array, "25"]) -> str:
    """The five letters of an encoded string label, for people."""
    return "".join("abcde"[int(i)] for i in jnp.argmax(target.reshape(LETTERS, LETTERS), axis=-1))


def instance_numbers(classes: Int[Array, "time"], count: int) -> Int[Array, "time"]:
    """How many times the class of each step has been seen, this step included."""
    seen = jnp.cumsum(jax.nn.one_hot(classes, count, dtype=jnp.int32), axis=0)
    return jnp.take_along_axis(seen, classes[:, None], axis=1)[:, 0]


@dataclasses.dataclass(frozen=True)
class Classification:
    """Pictures of a few classes, with labels that are shuffled from episode to episode."""

    classes: int = 5
    """Classes in an episode (N)."""
    length: int = 0
    """Samples in an episode (T); 0 means 10·N, as in the paper's supplement."""
    labels: Literal["onehot", "strings"] = "onehot"
    """One-hot of size N, or five letters from {a..e} as a 25-long five-hot vector."""
    balanced: bool = False
    """Every class equally often. The paper draws the class of each sample at random, so that counts differ."""
    repeats: bool = False
    """Let the same drawing return within an episode (newly augmented), instead of using up the class's
    drawings first. The paper does not say; without repeats is the harder reading."""
    augment: bool = True
    """Rotate by up to ±π/16, shift by up to ±10 of 105 pixels, and turn each class by a multiple of 90°."""

    def __post_init__(self) -> None:
        if self.classes < 1 or self.length < 0:
            raise MannError("An episode needs at least 1 class and a length that is not negative.")
        if self.labels == "strings" and self.classes > STRINGS:
            raise MannError(f"There are {STRINGS} string labels: ask for at most that many classes.")

    @property
    def steps(self) -> int:
        return self.length or 10 * self.classes

    @property
    def input_size(self) -> int:
        return SIZE * SIZE

    @property
    def label_size(self) -> int:
        return self.classes if self.labels == "onehot" else LETTERS * LETTERS

    @property
    def output(self) -> Literal["categorical", "strings"]:
        return "categorical" if self.labels == "onehot" else "strings"

    def check(self, drawings: Drawings) -> None:
        """Refuse a data set with too few classes for this task."""
        if (have := len(drawings.counts)) < self.classes:
            raise MannError(
                f"An episode of {self.classes} classes cannot be drawn from a data set of {have}: "
                "use fewer classes or a larger data set."
            )

    def draw(
        self,
        key: PRNGKeyArray,
        drawings: Drawings,
        classes: int | Int[Array, ""] | None = None,
        length: int | Int[Array, ""] | None = None,
    ) -> Episode:
        """Draw one episode.

        `classes` and `length`, which may be traced, use only that much of the full size (a curriculum without
        recompilation): the rest of the steps is masked.
        """
        self.check(drawings)
        active = self.classes if classes is None else classes
        population, per_class = drawings.grids.shape[:2]
        # All random numbers of the episode at once: one call compiles and runs faster than many small ones.
        n, steps = self.classes, self.steps
        sizes = [n, n, n, steps, steps if self.repeats else n * per_class]
        uniform = jax.random.uniform(key, (sum(sizes) + 3 * steps,))
        for_class, for_label, for_quarter, for_sample, for_drawing, for_transform = jnp.split(
            uniform, list(itertools.accumulate(sizes))
        )

        chosen = sample_distinct(for_class, population)
        label_count = n if self.labels == "onehot" else STRINGS
        codes = sample_distinct(for_label, label_count)
        encoded = jax.nn.one_hot(codes, label_count) if self.labels == "onehot" else encode_strings(codes)

        mask = jnp.arange(steps) < (steps if length is None else length)
        if self.balanced:  # the rank of a step among those that are not padding
            which = jnp.argsort(jnp.argsort(jnp.where(mask, for_sample, 2.0))).astype(jnp.int32) % active
        else:
            which = choose_below(for_sample, active)
        instances = instance_numbers(which, n)

        available = drawings.counts[chosen]  # a padded class has fewer real drawings than the array holds
        if self.repeats:
            drawing = choose_below(for_drawing, available[which])
        else:
            priority = for_drawing.reshape(n, per_class)
            priority = jnp.where(jnp.arange(per_class)[None] < available[:, None], priority, 2.0)
            order = jnp.argsort(priority, axis=1)
            drawing = order[which, (instances - 1) % available[which]]

        rotation, shift = random_transform(for_transform.reshape(steps, 3))
        quarter = choose_below(for_quarter, 4)[which]
        if not self.augment:
            rotation, shift, quarter = (
                jnp.zeros_like(rotation),
                jnp.zeros_like(shift),
                jnp.zeros_like(quarter),
            )
        pixels = render(drawings.grids, chosen[which], drawing, Transform(rotation, shift, quarter))
        return Episode(pixels, encoded[which], which, instances, mask)


@dataclasses.dataclass(frozen=True)
class Regression:
    """Values of a function drawn from a Gaussian process, a new one in every episode."""

    dimensions: int = 1
    """Dimensions of x: 1, 2 or 3."""
    length: int = 50
    """Samples in an episode (T)."""
    low: float = -2.0
    high: float = 2.0
    """x is uniform in [low, high] in every dimension."""
    process: GaussianProcess = GaussianProcess()

    def __post_init__(self) -> None:
        if self.dimensions not in (1, 2, 3):
            raise MannError(f"Regression is defined for 1, 2 or 3 dimensions, not {self.dimensions}.")
        if self.length < 1:
            raise MannError("An episode needs at least one sample: set its length to 1 or more.")
        if not self.low < self.high:
            raise MannError(f"The input range is empty: {self.low} is not below {self.high}.")

    @property
    def steps(self) -> int:
        return self.length

    @property
    def input_size(self) -> int:
        return self.dimensions

    @property
    def label_size(self) -> int:
        return 1

    @property
    def output(self) -> Literal["gaussian"]:
        return "gaussian"

    def draw(self, key: PRNGKeyArray) -> Episode:
        """Draw one episode; every x is seen once, so all steps are first instances of one class."""
        x_key, y_key = jax.random.split(key)
        x = jax.random.uniform(x_key, (self.length, self.dimensions), minval=self.low, maxval=self.high)
        y = draw_function(y_key, x, self.process).values
        steps = jnp.zeros(self.length, jnp.int32)
        return Episode(x, y[:, None], steps, steps + 1, jnp.ones(self.length, bool))


Task = Classification | Regression


def draw_episodes(task: Task, keys: Key[Array, "batch"], drawings: Drawings | None) -> Episode:
    """One episode for each key; `drawings` are needed for classification alone."""
    if isinstance(task, Regression):
        return jax.vmap(task.draw)(keys)
    if drawings is None:
        raise MannError("A classification task needs pictures.")
    return jax.vmap(task.draw, in_axes=(0, None))(keys, drawings)
