"""Causal attention over the episode, as in SNAIL (Mishra et al. 2018): nothing is chosen, all is kept.

At step t a token is made of x_t and of the pair (x_{t−1}, y_{t−1}) that has just become complete: what SNAIL's
convolution over two steps brings together. A few layers of attention look back from it at the tokens of all earlier
steps. Queries and keys have unit length, with a learned strength per head, as the heads of the memories have.
"""

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from mann.errors import MannError, check_range
from mann.layers import Layer, Linear, normalise
from mann.memory.base import Memory, MemoryTrace, SlotConfig

MOST_LAYERS = 64


@dataclasses.dataclass(frozen=True)
class AttentionConfig(SlotConfig, kind="attention"):
    """Layers of causal attention over all steps of the episode."""

    takes_query: ClassVar[bool] = False
    slots: int = 256
    """Slots (M): steps that are looked back at; the oldest is overwritten."""
    width: int = 128
    """Width of a token (W)."""
    heads: int = 4
    """Heads of each layer, which share the width."""
    layers: int = 3
    """Layers of attention, each followed by two fully connected ones."""
    initial_strength: float = 10.0
    """Where the factor of the cosines of queries and keys starts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("The memory's layers", self.layers, 1, MOST_LAYERS)
        if self.width % self.heads:
            raise MannError(f"{self.heads} heads cannot share a width of {self.width}: make it a multiple.")
        if not (math.isfinite(self.initial_strength) and self.initial_strength > 0):
            raise MannError(f"The initial key strength must be positive, not {self.initial_strength}.")

    def build(self, query: int, inputs: tuple[int, int], *, key: PRNGKeyArray) -> "Attention":
        return Attention(self, *inputs, key=key)

    def smallest(self) -> "AttentionConfig":
        return dataclasses.replace(self, slots=16, width=8, heads=2, layers=2)


class AttentionState(NamedTuple):
    keys: Float[Array, "layers slots width"]  # of unit length for each head
    values: Float[Array, "layers slots width"]
    written: Float[Array, "slots"]  # which step a slot holds, counted from 1; 0 for none
    pending: Float[Array, "width"]  # the embedding of x_{t−1}, which waits for its label
    read_weights: Float[Array, "heads slots"]  # of the last layer, for the trace


class AttentionLayer(Layer):
    """Attention and two fully connected layers, each beside what came in."""

    attend: Linear  # to query, key and value
    merge: Linear
    widen: Linear
    narrow: Linear
    strength: Float[Array, "heads"]  # log of the factor of the cosines
    heads: int = eqx.field(static=True)

    def __init__(self, config: AttentionConfig, *, key: PRNGKeyArray) -> None:
        keys = jax.random.split(key, 4)
        width = config.width
        self.attend = Linear(width, 3 * width, key=keys[0], blocks=3)
        self.merge = Linear(width, width, key=keys[1])
        self.widen = Linear(width, 2 * width, key=keys[2])
        self.narrow = Linear(2 * width, width, key=keys[3])
        self.strength = jnp.full(config.heads, math.log(config.initial_strength), jnp.float32)
        self.heads = config.heads

    def split(self, x: Float[Array, "*time width"]) -> tuple[Array, Array, Array]:
        """Query, key and value; the first two of unit length for each head."""
        query, key, value = jnp.split(self.attend(jax.nn.standardize(x, axis=-1)), 3, axis=-1)
        return self._unit(query), self._unit(key), value

    def _unit(self, x: Float[Array, "*time width"]) -> Float[Array, "*time width"]:
        return normalise(x.reshape(*x.shape[:-1], self.heads, -1)).reshape(x.shape)

    def __call__(
        self,
        x: Float[Array, "time width"],
        query: Float[Array, "time width"],
        keys: Float[Array, "places width"],
        values: Float[Array, "places width"],
        held: Bool[Array, "time places"],
    ) -> tuple[Float[Array, "time width"], Float[Array, "time heads places"]]:
        """What becomes of tokens that look at the places that each may see, and where they looked."""
        q, k, v = (a.reshape(len(a), self.heads, -1) for a in (query, keys, values))
        cosines = jnp.einsum("thw,phw->thp", q, k)
        logits = jnp.where(held[:, None], jnp.exp(self.strength)[None, :, None] * cosines, -jnp.inf)
        weights = jax.nn.softmax(logits, axis=-1)
        x = x + self.merge(jnp.einsum("thp,phw->thw", weights, v).reshape(x.shape))
        return x + self.narrow(jax.nn.relu(self.widen(jax.nn.standardize(x, axis=-1)))), weights


class Attention(Memory):
    """Tokens of all steps, in a ring that every step writes to."""

    embedding: Linear
    token: Linear
    layers: tuple[AttentionLayer, ...]
    slots: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    heads: int = eqx.field(static=True)
    labels: int = eqx.field(static=True)

    def __init__(self, config: AttentionConfig, features: int, labels: int, *, key: PRNGKeyArray) -> None:
        embedding_key, token_key, *keys = jax.random.split(key, 2 + config.layers)
        self.embedding = Linear(features, config.width, key=embedding_key)
        self.token = Linear((config.width, config.width, labels), config.width, key=token_key)
        self.layers = tuple(AttentionLayer(config, key=k) for k in keys)
        self.slots, self.width, self.heads, self.labels = config.slots, config.width, config.heads, labels

    @property
    def read_size(self) -> int:
        """The last layer's token."""
        return self.width

    @property
    def direct_size(self) -> int:
        return self.width + self.labels

    def project(
        self, features: Float[Array, "*time features"], previous_label: Float[Array, "*time label"]
    ) -> Float[Array, "*time direct"]:
        return jnp.concatenate([self.embed(features), previous_label], axis=-1)

    def embed(self, features: Float[Array, "*time features"]) -> Float[Array, "*time width"]:
        # Whatever the size of the features: much larger than labels, they would drown these in the token.
        return self.embedding(jax.nn.standardize(features, axis=-1))

    def initial_state(self) -> AttentionState:
        layers = len(self.layers)
        return AttentionState(
            jnp.zeros((layers, self.slots, self.width)),
            jnp.zeros((layers, self.slots, self.width)),
            jnp.zeros(self.slots),
            jnp.zeros(self.width),
            jnp.zeros((self.heads, self.slots)),
        )

    def __call__(
        self, query: Float[Array, "query"], state: AttentionState
    ) -> tuple[Float[Array, "reads"], Any]:
        now, label = jnp.split(query[query.shape[0] - self.direct_size :], [self.width])
        x = self.token(jnp.concatenate([now, state.pending, label]))[None]
        oldest = jnp.arange(self.slots) == jnp.argmin(state.written)
        written = jnp.where(oldest, jnp.max(state.written) + 1, state.written)
        all_keys, all_values = [], []
        weights = jnp.zeros((1, self.heads, self.slots))
        for number, layer in enumerate(self.layers):
            q, k, v = layer.split(x)
            keys = jnp.where(oldest[:, None], k, state.keys[number])
            values = jnp.where(oldest[:, None], v, state.values[number])
            x, weights = layer(x, q, keys, values, written[None] > 0)
            all_keys.append(keys)
            all_values.append(values)
        last = AttentionState(jnp.stack(all_keys), jnp.stack(all_values), written, now, weights[0])
        return x[0], last

    @property
    def stands_alone(self) -> bool:
        return True

    def unroll(
        self, direct: Float[Array, "time direct"], state: AttentionState
    ) -> tuple[Float[Array, "time reads"], AttentionState]:
        """A whole episode at once: places are the slots at the start, and then one token per step."""
        now, labels = jnp.split(direct, [self.width], axis=1)
        steps, slots = len(now), self.slots
        waiting = jnp.concatenate([state.pending[None], now[:-1]])
        x = self.token(jnp.concatenate([now, waiting, labels], axis=1))
        step = jnp.arange(steps)
        order = jnp.argsort(state.written)  # stable: the first of those never written to
        turn = jnp.argsort(order)  # after how many steps a slot is overwritten
        old = (turn[None] > step[:, None]) & (state.written[None] > 0)
        later = step[:, None] - step[None]
        held = jnp.concatenate([old, (later >= 0) & (later < slots)], axis=1)

        # Where each place is at the end: what was overwritten is dropped.
        kept = jnp.concatenate([turn >= steps, steps - step <= slots])
        slot = jnp.where(kept, jnp.concatenate([jnp.arange(slots), order[step % slots]]), slots)

        def settle(places: Array) -> Array:
            return jnp.zeros((slots, *places.shape[1:])).at[slot].set(places, mode="drop")

        all_keys, all_values = [], []
        weights = jnp.zeros((steps, self.heads, slots + steps))
        for number, layer in enumerate(self.layers):
            q, k, v = layer.split(x)
            keys = jnp.concatenate([state.keys[number], k])
            values = jnp.concatenate([state.values[number], v])
            x, weights = layer(x, q, keys, values, held)
            all_keys.append(settle(keys))
            all_values.append(settle(values))
        numbers = jnp.max(state.written) + 1 + step.astype(jnp.float32)
        written = settle(jnp.concatenate([state.written, numbers]))
        last = AttentionState(
            jnp.stack(all_keys), jnp.stack(all_values), written, now[-1], settle(weights[-1].T).T
        )
        return x, last

    def trace(self, state: AttentionState) -> MemoryTrace:
        newest = (state.written == jnp.max(state.written)) & (state.written > 0)
        contents = jnp.concatenate([*state.keys, *state.values], axis=-1)
        return MemoryTrace(state.read_weights, newest[None].astype(jnp.float32), None, contents)
