"""Episodes: the stream (x_1, null), (x_2, y_1), …, (x_T, y_{T−1}) as a pure function of a PRNG key.

Everything here runs inside `jit`, from a data set that lives on the device: there is no loader, and the same
key gives the same episode on every machine.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class SharedPictures(NamedTuple):
    """The inputs of several episodes, of pictures that they share: each is encoded once (`mann.tasks.pool`)."""

    pictures: Float[Array, "pools pool features"]
    """One pool of pictures for so many episodes that follow one another in the batch."""
    places: Int[Array, "batch time"]
    """Which picture of its pool is x_t."""

    def spread(self, encoded: Float[Array, "pools pool encoded"]) -> Float[Array, "batch time encoded"]:
        """What became of the pictures, at every step of every episode."""
        pools, batch = len(encoded), len(self.places)
        places = self.places.reshape(pools, batch // pools, self.places.shape[1])
        chosen = jax.vmap(lambda pool, of_pool: pool[of_pool])(encoded, places)
        return chosen.reshape(*self.places.shape, encoded.shape[2])


class Encoded(NamedTuple):
    """The inputs of episodes, as an encoder has made them (`Model.encode`)."""

    features: Float[Array, "batch time features"]


class Episode(NamedTuple):
    """One episode. Steps where `mask` is false are padding (curriculum): no loss, no accuracy."""

    inputs: Float[Array, "*batch time features"] | SharedPictures
    """x_t: pixels, or the argument of a function; or, in training, pictures that episodes share."""
    targets: Float[Array, "*batch time label"]
    """y_t: one-hot, five-hot, or the value of a function."""
    classes: Int[Array, "*batch time"]
    """Which of the episode's classes x_t belongs to."""
    instances: Int[Array, "*batch time"]
    """1 where that class is seen for the first time, 2 for the second, and so on."""
    mask: Bool[Array, "*batch time"]
    """False for padding."""
    told: Bool[Array, "*batch time"] | None = None
    """Where y_t goes in with x_{t+1}; None means everywhere."""


def time_offset(targets: Float[Array, "*batch time label"]) -> Float[Array, "*batch time label"]:
    """y_{t−1} for every step t, with the null label (zeros) at the first one.

    Examples:
        >>> time_offset(jnp.array([[1.0], [2.0], [3.0]])).ravel().tolist()
        [0.0, 1.0, 2.0]
    """
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


def instance_numbers(classes: Int[Array, "time"], count: int) -> Int[Array, "time"]:
    """How many times the class of each step has been seen, this step included."""
    seen = jnp.cumsum(jax.nn.one_hot(classes, count, dtype=jnp.int32), axis=0)
    return jnp.take_along_axis(seen, classes[:, None], axis=1)[:, 0]
