"""What is counted: accuracy by instance, that is by how many times a class has been seen within the episode."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from mann.statistics import Interval, wilson_by_episode

INSTANCES = 10  # reported: 1st, 2nd, … 10th time that a class is seen


class InstanceCounts(NamedTuple):
    """How often each instance occurred, and how often the prediction for it was right."""

    correct: Float[Array, "*batch 10"]
    seen: Float[Array, "*batch 10"]


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


def accuracy_by_instance(counts: InstanceCounts) -> list[Interval]:
    """Accuracy of the 1st, 2nd, … 10th instance over all episodes; NaN for one that never occurred."""
    correct, seen = np.asarray(counts.correct), np.asarray(counts.seen)
    return [wilson_by_episode(correct[:, i], seen[:, i]) for i in range(seen.shape[1])]
