"""An online matching network: attention over everything shown so far (Vinyals et al. 2016; Ren et al. 2021).

Embeddings with their labels, in a ring of slots as in `keyvalue.py`. A softmax over the cosines with all of them
blends their labels, and how far the nearest one is says whether x_t is something new.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from mann.errors import MannError
from mann.layers import Linear
from mann.memory.base import pass_on
from mann.memory.keyvalue import KeyValue, KeyValueConfig, crowd

LEAST = 1e-9  # added to a blended label before its logarithm: cosines are never that far apart
UNKNOWN = 10.0  # how sure it is, in nats, that the first thing of all is new


@dataclasses.dataclass(frozen=True)
class MatchingConfig(KeyValueConfig, kind="matching"):
    """An online matching network: cosine attention over all that was shown, new by the nearest."""

    initial_strength: float = 7.5
    """Where the factor of the cosines in the softmax starts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heads != 1:
            raise MannError("A matching network has one embedding: set model.memory.heads to 1.")
        if self.rules_out:
            raise MannError("A matching network rules out nothing: set model.memory.rules-out to false.")

    def build(self, query: int, inputs: tuple[int, int], *, key: PRNGKeyArray) -> "Matching":
        return Matching(self, *inputs, key=key)


class Matching(KeyValue):
    """The ring of `KeyValue`, told as a distribution over labels, and by itself whether something is new."""

    sharpness: Float[Array, "heads"]  # log of the factor by which a lower cosine says "new"

    def __init__(self, config: MatchingConfig, features: int, labels: int, *, key: PRNGKeyArray) -> None:
        super().__init__(config, features, labels, key=key)
        self.sharpness = jnp.full(1, math.log(config.initial_strength), jnp.float32)

    @property
    def read_size(self) -> int:
        """log p of every letter, and the log odds of something new."""
        return self.labels + 1

    def first_readout(self, readout: Linear, hidden: int) -> Linear:
        return pass_on(readout, hidden)

    def read(
        self,
        similarity: Float[Array, "1 places"],
        values: Float[Array, "places label"],
        held: Bool[Array, "1 places"],
        alike: Float[Array, "places"] | None,
    ) -> tuple[Float[Array, "reads"], Float[Array, "1 places"]]:
        best = jnp.max(jnp.where(held, similarity, -2.0), axis=-1)
        some = jnp.any(held)
        if 0 < self.neighbours < similarity.shape[-1]:
            least = jax.lax.top_k(jnp.where(held, similarity, -2.0), self.neighbours)[0][:, -1:]
            held = held & (similarity >= jax.lax.stop_gradient(least))
        # Where nothing is held the softmax is over zeros, and counts for nothing.
        scaled = jnp.exp(self.strength)[:, None] * similarity - crowd(alike, similarity)
        logits = jnp.where(held | ~some, scaled, -jnp.inf)
        weights = jnp.where(held, jax.nn.softmax(logits, axis=-1), 0.0)
        new = jnp.where(some, jnp.exp(self.sharpness) * (self.threshold - best), UNKNOWN)
        return jnp.concatenate([jnp.log(weights[0] @ values + LEAST), new]), weights
