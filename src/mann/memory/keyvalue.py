"""Key and value apart: what to find in one place, what to tell in another, both straight from the input.

At step t the label y_{t−1} of the picture before has arrived, and the pair (key of x_{t−1}, y_{t−1}) is written
into the oldest slot. The key of x_t, made from the encoded picture alone, is then compared with all keys by
cosine; a softmax over the most similar slots, and over one more place that stands for "none of them", blends
their values. So nothing but the key is compared, nothing but the value is told, and reading says by itself how
likely it is that x_t is something new.

A class that was shown three times has three places in that softmax, and is three times as likely before x_t is
looked at. Balanced, each pair counts by one over the number of pairs with its label: what speaks for a class is
the mean over its examples, not their sum.
"""

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from mann.errors import MannError, check_range
from mann.layers import Linear, normalise
from mann.memory.base import KeyConfig, Memory, MemoryTrace, key_layer

CERTAIN = 4.0  # nats for "new" or "known" where all or none of the softmax says so, at the start of training
TINY = 1e-4  # added to a blended value before its logarithm


@dataclasses.dataclass(frozen=True)
class KeyValueConfig(KeyConfig, kind="keyvalue"):
    """Pairs of key and label in a ring of slots, found by the key alone."""

    takes_query: ClassVar[bool] = False
    slots: int = 256
    """Slots (M): pairs that are held; the oldest is overwritten."""
    width: int = 64
    """Width of a key (W)."""
    heads: int = 1
    """Read heads (R), each with keys of its own."""
    neighbours: int = 0
    """Read only from so many most similar slots (K); 0 means from all."""
    rules_out: bool = False
    """Also tell which labels the pairs have, as far as "none of them" is likely: what is new has another one."""
    balanced: bool = False
    """Every label counts alike, however many of its pairs are held: by the mean over them, not by their sum."""
    initial_strength: float = 10.0
    """Where the key strength β of every head starts."""
    initial_threshold: float = 0.5
    """Where the similarity starts at which a head finds "none of them" as likely as a slot."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("The memory's neighbours", self.neighbours, 0, self.slots)
        if not (math.isfinite(self.initial_strength) and self.initial_strength > 0):
            raise MannError(f"The initial key strength must be positive, not {self.initial_strength}.")
        if not -1 <= self.initial_threshold <= 1:
            raise MannError(
                f"A similarity lies between -1 and 1, the threshold {self.initial_threshold} does not."
            )

    def with_neighbours(self, neighbours: int) -> "KeyValueConfig":
        return dataclasses.replace(self, neighbours=neighbours)

    def build(self, query: int, inputs: tuple[int, int], *, key: PRNGKeyArray) -> "KeyValue":
        return KeyValue(self, *inputs, key=key)


class KeyValueState(NamedTuple):
    keys: Float[Array, "slots heads width"]  # of unit length
    values: Float[Array, "slots label"]
    written: Float[Array, "slots"]  # which pair a slot holds, counted from 1; 0 for none
    pending: Float[Array, "heads width"]  # the key of x_{t−1}, which waits for its label
    read_weights: Float[Array, "heads slots"]  # kept for the trace
    alike: Float[Array, "slots"] | None = None  # if balanced: pairs with the label of each, itself among them


class KeyValue(Memory):
    """A ring of pairs: each is written into the slot that was written the longest ago."""

    keys: Linear | None  # None: the features are the keys
    strength: Float[Array, "heads"]  # log β
    threshold: Float[Array, "heads"]
    slots: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    heads: int = eqx.field(static=True)
    labels: int = eqx.field(static=True)
    neighbours: int = eqx.field(static=True)
    rules_out: bool = eqx.field(static=True)
    balanced: bool = eqx.field(static=True)

    def __init__(self, config: KeyValueConfig, features: int, labels: int, *, key: PRNGKeyArray) -> None:
        self.keys = key_layer(features, config, key=key)
        self.strength = jnp.full(config.heads, math.log(config.initial_strength), jnp.float32)
        self.threshold = jnp.full(config.heads, config.initial_threshold, jnp.float32)
        self.slots, self.width, self.heads, self.labels = config.slots, config.width, config.heads, labels
        self.neighbours, self.rules_out = config.neighbours, config.rules_out
        self.balanced = config.balanced

    @property
    def read_size(self) -> int:
        """Per head: the blended value, its logarithm, how likely "none of them" is, and the highest similarity.

        With `rules_out`, also the labels in use, times how likely "none of them" is.
        """
        return self.heads * ((3 if self.rules_out else 2) * self.labels + 2)

    @property
    def direct_size(self) -> int:
        return self.heads * self.width + self.labels

    def first_readout(self, readout: Linear, hidden: int) -> Linear:
        """From the logarithm of the blended value to its letters, and from "none of them" to "new".

        With `rules_out`, a label in use is unlikely as far as "none of them" is likely.
        """
        outputs = readout.weight.shape[1]
        letters = jnp.eye(self.labels, outputs) / self.heads
        none = jnp.zeros((1, outputs)).at[0, self.labels :].set(2 * CERTAIN / self.heads)
        rows = [jnp.zeros_like(letters), letters, none, jnp.zeros((1, outputs))]
        told = jnp.concatenate([*rows, -CERTAIN * letters] if self.rules_out else rows)
        weight = jnp.concatenate([jnp.zeros((hidden, outputs)), jnp.tile(told, (self.heads, 1))])
        bias = jnp.zeros(outputs).at[self.labels :].set(-CERTAIN)
        return eqx.tree_at(lambda layer: (layer.weight, layer.bias), readout, (weight, bias))

    def project(
        self, features: Float[Array, "*time features"], previous_label: Float[Array, "*time label"]
    ) -> Float[Array, "*time direct"]:
        return jnp.concatenate([self.embed(features), previous_label], axis=-1)

    def embed(self, features: Float[Array, "*time features"]) -> Float[Array, "*time keys"]:
        return features if self.keys is None else self.keys(features)

    def initial_state(self) -> KeyValueState:
        return KeyValueState(
            jnp.zeros((self.slots, self.heads, self.width)),
            jnp.zeros((self.slots, self.labels)),
            jnp.zeros(self.slots),
            jnp.zeros((self.heads, self.width)),
            jnp.zeros((self.heads, self.slots)),
            jnp.zeros(self.slots) if self.balanced else None,
        )

    def __call__(
        self, query: Float[Array, "query"], state: KeyValueState
    ) -> tuple[Float[Array, "reads"], Any]:
        raw, label = jnp.split(query[query.shape[0] - self.direct_size :], [self.heads * self.width])
        present = jnp.max(jnp.abs(label)) > 0  # the null label names nothing

        oldest = jnp.arange(self.slots) == jnp.argmin(state.written)  # the first of those never written to
        chosen = oldest & present

        def put(old: Array, new: Array) -> Array:
            return jnp.where(chosen.reshape(-1, *[1] * new.ndim), jnp.broadcast_to(new[None], old.shape), old)

        written = put(state.written, jnp.max(state.written) + 1)
        values = put(state.values, label)
        now = normalise(raw.reshape(self.heads, self.width))
        # With the keys from before and the new one apart, so that reading does not wait for writing.
        newest = jnp.sum(now * state.pending, axis=1, keepdims=True)
        similarity = jnp.where(chosen[None], newest, jnp.einsum("hw,shw->hs", now, state.keys))
        alike = None
        if state.alike is not None:
            gone = jnp.sum(jnp.where(chosen[:, None], state.values, 0.0), axis=0)
            fewer = _have(gone, state.values) & (jnp.max(jnp.abs(gone)) > 0)
            more = _have(label, values) & present
            alike = jnp.where(more, jnp.sum(more, dtype=jnp.float32), state.alike - fewer.astype(jnp.float32))
        reads, weights = self.read(similarity, values, written[None] > 0, alike)
        return reads, KeyValueState(put(state.keys, state.pending), values, written, now, weights, alike)

    def read(
        self,
        similarity: Float[Array, "heads places"],
        values: Float[Array, "places label"],
        held: Bool[Array, "1 places"],
        alike: Float[Array, "places"] | None,
    ) -> tuple[Float[Array, "reads"], Float[Array, "heads places"]]:
        """What the heads tell, and where they looked.

        Args:
            similarity: of the key of x_t with those of all places.
            values: of the places.
            held: whether a place holds a pair.
            alike: how many pairs have the label of each, where that counts.
        """
        similarity = jnp.where(held, similarity, -2.0)  # below every cosine
        best = jnp.max(similarity, axis=-1)
        in_use = jnp.max(jnp.where(held[0][:, None], values, 0.0), axis=0)
        if 0 < self.neighbours < similarity.shape[-1]:
            least = jax.lax.top_k(similarity, self.neighbours)[0][:, -1:]
            held = held & (similarity >= jax.lax.stop_gradient(least))
        beta = jnp.exp(self.strength)[:, None]
        # In this order: 0 · ∞ has no gradient.
        logits = jnp.where(held, beta * similarity - crowd(alike, similarity), -jnp.inf)
        logits = jnp.concatenate([beta * self.threshold[:, None], logits], axis=-1)
        weights = jax.nn.softmax(logits, axis=-1)  # the first place: none of them
        blended = weights[:, 1:] @ values
        none = weights[:, :1]
        parts = [blended, jnp.log(blended + TINY), none, jnp.maximum(best, -1.0)[:, None]]
        if self.rules_out:
            parts.append(none * in_use[None])
        told = jnp.concatenate(parts, axis=-1)
        return told.reshape(-1), weights[:, 1:]

    def needed(self, state: KeyValueState) -> int:
        """Those that hold a pair, and the one that is written next; they are filled in order."""
        return min(self.slots, 1 + int(np.count_nonzero(state.written)))

    def crop(self, state: KeyValueState, slots: int) -> KeyValueState:
        keys, values, written, pending, weights, alike = state
        alike = None if alike is None else alike[:slots]
        return KeyValueState(
            keys[:slots], values[:slots], written[:slots], pending, weights[:, :slots], alike
        )

    @property
    def stands_alone(self) -> bool:
        return True

    def unroll(
        self, direct: Float[Array, "time direct"], state: KeyValueState
    ) -> tuple[Float[Array, "time reads"], KeyValueState]:
        """A whole episode at once: every step looks at the pairs that are there by then.

        Places are the slots at the start, and then one pair per step. The n-th write goes to the n-th oldest slot,
        and from the oldest on again.
        """
        raw, labels = jnp.split(direct, [self.heads * self.width], axis=1)
        steps, slots = len(raw), self.slots
        now = normalise(raw.reshape(steps, self.heads, self.width))
        waiting = jnp.concatenate([state.pending[None], now[:-1]])  # the key that gets its label at each step
        present = jnp.max(jnp.abs(labels), axis=1) > 0
        writes = jnp.cumsum(present)  # so far, this step included
        keys, values = jnp.concatenate([state.keys, waiting]), jnp.concatenate([state.values, labels])
        order = jnp.argsort(state.written)  # stable: the first of those never written to
        turn = jnp.argsort(order)  # how many writes later a slot is overwritten
        old = (turn[None] >= writes[:, None]) & (state.written[None] > 0)
        later = writes[:, None] - writes[None]  # pairs written since
        new = present[None] & (later >= 0) & (later < slots) & jnp.tri(steps, dtype=bool)
        similarity = jnp.einsum("thw,phw->thp", now, keys)
        held = jnp.concatenate([old, new], axis=1)[:, None]
        alike = None
        if self.balanced:
            there = jnp.concatenate([state.written > 0, present])
            arrives = jnp.concatenate([jnp.zeros(slots, jnp.int32), jnp.arange(steps, dtype=jnp.int32)])
            leaves = jnp.searchsorted(writes, jnp.concatenate([turn + 1, writes + slots]))
            alike = _alike_by_step(values, there, arrives, leaves, steps)
        reads, weights = jax.vmap(self.read, in_axes=(0, None, 0, None if alike is None else 0))(
            similarity, values, held, alike
        )

        # Where each place is at the end: what was overwritten, or never written, is dropped.
        slot = jnp.concatenate([jnp.arange(slots), order[(writes - 1) % slots]])
        kept = jnp.concatenate([turn >= writes[-1], present & (writes[-1] - writes < slots)])
        slot = jnp.where(kept, slot, slots)

        def settle(places: Array) -> Array:
            return jnp.zeros((slots, *places.shape[1:])).at[slot].set(places, mode="drop")

        numbers = jnp.max(state.written) + writes.astype(jnp.float32)
        written = settle(jnp.concatenate([state.written, numbers]))
        last = KeyValueState(
            settle(keys),
            settle(values),
            written,
            now[-1],
            settle(weights[-1].T).T,
            None if alike is None else settle(alike[-1]),
        )
        return reads, last

    def similarity(
        self, query: Float[Array, "query"], state: KeyValueState
    ) -> Float[Array, "heads slots"] | None:
        return jnp.einsum("hw,shw->hs", state.pending, state.keys)

    def familiarity(self, state: KeyValueState) -> Float[Array, ""]:
        """The largest cosine with a key that is held, as the mean over heads; −1 if none is."""
        similarity = jnp.einsum("hw,shw->hs", state.pending, state.keys)
        return jnp.mean(jnp.max(jnp.where(state.written > 0, similarity, -1.0), axis=-1))

    def trace(self, state: KeyValueState) -> MemoryTrace:
        newest = (state.written == jnp.max(state.written)) & (state.written > 0)
        contents = jnp.concatenate([state.keys.reshape(self.slots, -1), state.values], axis=-1)
        return MemoryTrace(state.read_weights, newest[None].astype(jnp.float32), None, contents)


def _have(label: Float[Array, "label"], values: Float[Array, "places label"]) -> Bool[Array, "places"]:
    """Which places have a label."""
    return jnp.max(jnp.abs(values - label[None]), axis=1) < 0.5


def crowd(
    alike: Float[Array, "places"] | None, similarity: Float[Array, "heads places"]
) -> Float[Array, "heads places"]:
    """By how many nats a pair counts for less, since others speak for the same label."""
    if alike is None:
        return jnp.zeros_like(similarity)
    return jnp.broadcast_to(jnp.log(jnp.maximum(alike, 1.0))[None], similarity.shape)


def _alike_by_step(
    values: Float[Array, "places label"],
    there: Bool[Array, "places"],
    arrives: Int[Array, "places"],
    leaves: Int[Array, "places"],
    steps: int,
) -> Float[Array, "steps places"]:
    """How many pairs have the label of each place at every step.

    Args:
        values: of the places.
        there: whether a place ever holds a pair.
        arrives: at which step it does.
        leaves: at which step it no longer does; `steps` for never.
        steps: of the episode.
    """
    squares = jnp.sum(values**2, axis=1)
    apart = squares[:, None] + squares[None] - 2 * values @ values.T
    first = jnp.argmax(apart < 0.5, axis=1)  # the first place with the same label stands for all of them
    one = there.astype(jnp.float32)
    changes = jnp.zeros((steps, len(values))).at[arrives, first].add(one)
    changes = changes.at[leaves, first].add(-one, mode="drop")
    return jax.lax.stop_gradient(jnp.cumsum(changes, axis=0)[:, first])
