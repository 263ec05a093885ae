"""What is minimised and what is reported: the loss of an episode and the accuracy by instance."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from mann.data.render import Drawings
from mann.episodes import Episode, Task, draw_episodes, time_offset
from mann.models import Model, State
from mann.outputs import Gaussian, Output, output_of

INSTANCES = 10  # reported: 1st, 2nd, … 10th time that a class is seen


class InstanceCounts(NamedTuple):
    """How often each instance occurred, and how often the prediction for it was right."""

    correct: Float[Array, "*batch 10"]
    seen: Float[Array, "*batch 10"]


def episode_loss(
    output: Output, outputs: Float[Array, "*batch time size"], episode: Episode
) -> Float[Array, "*batch"]:
    """−log p(y_t), averaged over the steps of each episode that are not padding."""
    losses = jnp.where(episode.mask, output.nll(outputs, episode.targets), 0.0)
    return jnp.sum(losses, axis=-1) / jnp.sum(episode.mask, axis=-1).astype(losses.dtype)


def count_by_instance(
    correct: Bool[Array, "*batch time"],
    instances: Int[Array, "*batch time"],
    mask: Bool[Array, "*batch time"],
) -> InstanceCounts:
    """Tally predictions by how many times their class has been seen, episode by episode."""
    numbers = jnp.arange(1, INSTANCES + 1)
    here = (instances[..., None] == numbers.reshape((1,) * instances.ndim + (-1,))) & mask[..., None]
    right = here & correct[..., None]
    return InstanceCounts(
        jnp.sum(right, axis=-2).astype(jnp.float32), jnp.sum(here, axis=-2).astype(jnp.float32)
    )


class Tally(NamedTuple):
    """What a model did on a batch of unseen episodes."""

    counts: InstanceCounts
    nll: Float[Array, "batch time"]  # −log p(y_t) of every step, in nats
    squared_error: Float[Array, "batch time"]  # of the prediction, summed over the label
    deviations: Float[Array, "batch time"] | None  # Gaussian output: the error in predicted scales


def tally_episodes(
    model: Model,
    task: Task,
    drawings: Drawings | None,
    keys: Key[Array, "batch"],
    state: State | None = None,
) -> tuple[Tally, State]:
    """Draw one episode for each key and run the model on it, from wiped memories or from a batch of states."""
    episodes = draw_episodes(task, keys, drawings)
    outputs, state = model.unroll_batch(episodes.inputs, time_offset(episodes.targets), state)
    output = output_of(task)
    correct = output.correct(outputs, episodes.targets)
    counts = count_by_instance(correct, episodes.instances, episodes.mask)
    error = jnp.sum((output.predict(outputs) - episodes.targets) ** 2, axis=-1)
    deviations = None
    if isinstance(output, Gaussian):
        mean, scale = output.mean_and_scale(outputs)
        deviations = (episodes.targets[..., 0] - mean) / scale
    return Tally(counts, output.nll(outputs, episodes.targets), error, deviations), state
