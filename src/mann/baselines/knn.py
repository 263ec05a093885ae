"""One nearest neighbour over what the episode has shown so far: unlimited memory, no learning.

As the paper's supplement says: with nothing seen yet it names one of the N classes at random; after that it can
only name classes that it has seen, so that accuracy on first instances is 1/N².
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray

from mann.data.render import Drawings
from mann.episodes import Episode, SharedPictures
from mann.metrics import InstanceCounts, count_by_instance
from mann.tasks import Classification

Features = Callable[[Float[Array, "n pixels"]], Float[Array, "n features"]]


def raw_pixels(pixels: Float[Array, "n pixels"]) -> Float[Array, "n pixels"]:
    """The pictures themselves."""
    return pixels


def nearest_before(features: Float[Array, "time features"]) -> Array:
    """For every step, the earlier step with the closest features (Euclidean); 0 for the first step."""
    squares = jnp.sum(features**2, axis=-1)
    distances = squares[:, None] + squares[None] - 2 * features @ features.T
    steps = jnp.arange(len(features))
    earlier = steps[None] < steps[:, None]
    return jnp.argmin(jnp.where(earlier, distances, jnp.inf), axis=-1)


def is_correct(
    episode: Episode, features: Float[Array, "time features"], classes: int, key: PRNGKeyArray
) -> Bool[Array, "time"]:
    """Whether the class of the nearest earlier sample is the right one; a guess at the first step."""
    correct = episode.classes[nearest_before(features)] == episode.classes
    guess = jax.random.randint(key, (), 0, classes) == episode.classes[0]
    return correct.at[0].set(guess)


def tally_neighbours(
    task: Classification, features: Features, keys: Key[Array, "batch"], drawings: Drawings
) -> InstanceCounts:
    """Accuracy by instance on one episode for each key: the same episodes that a network would see."""
    episodes = task.draw_batch(keys, drawings)
    assert not isinstance(episodes.inputs, SharedPictures)
    batch, steps, pixels = episodes.inputs.shape
    embedded = features(episodes.inputs.reshape(-1, pixels)).reshape(batch, steps, -1)  # all at once

    def one(episode: Episode, embedded: Float[Array, "time features"], key: PRNGKeyArray) -> InstanceCounts:
        correct = is_correct(episode, embedded, task.classes, jax.random.fold_in(key, 1))
        return count_by_instance(correct, episode.instances, episode.mask)

    return jax.vmap(one)(episodes, embedded, keys)
