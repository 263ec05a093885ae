"""An online prototypical network: one mean per class (Snell et al. 2017; online as in Ren et al. 2021).

At step t the label y_{t−1} of the picture before has arrived. If a slot holds this very label, the embedding of
x_{t−1} is added to its sum; else a slot is opened for it, the one that was opened the longest ago. A softmax over
the negative squared distances from x_t to the mean of every slot blends their labels, and the distance to the
nearest of them says whether x_t is something new.
"""

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from mann.errors import MannError
from mann.layers import Linear
from mann.memory.base import KeyConfig, Memory, MemoryTrace, key_layer, pass_on

LEAST = 1e-9  # added to a blended label before its logarithm
UNKNOWN = 10.0  # how sure it is, in nats, that the first thing of all is new


@dataclasses.dataclass(frozen=True)
class PrototypesConfig(KeyConfig, kind="prototypes"):
    """An online prototypical network: the mean embedding of every class, new by the nearest."""

    takes_query: ClassVar[bool] = False
    slots: int = 256
    """Slots (M): classes that are held; the one opened the longest ago makes room."""
    width: int = 64
    """Width of an embedding (W)."""
    heads: int = 1
    """A prototypical network has one embedding."""
    initial_scale: float = 1.0
    """Where the factor of the squared distances in the softmax starts."""
    initial_radius: float = 10.0
    """Where the distance starts, so scaled, beyond which something is more likely new than known."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heads != 1:
            raise MannError("A prototypical network has one embedding: set model.memory.heads to 1.")
        if not (math.isfinite(self.initial_scale) and self.initial_scale > 0):
            raise MannError(f"The initial scale of distances must be positive, not {self.initial_scale}.")
        if not math.isfinite(self.initial_radius):
            raise MannError("The initial radius must be a finite number.")

    def build(self, query: int, inputs: tuple[int, int], *, key: PRNGKeyArray) -> "Prototypes":
        return Prototypes(self, *inputs, key=key)


class PrototypesState(NamedTuple):
    sums: Float[Array, "slots width"]  # of the embeddings of each class
    counts: Float[Array, "slots"]  # how many they are
    names: Float[Array, "slots label"]
    opened: Float[Array, "slots"]  # which class a slot holds, counted from 1; 0 for none
    pending: Float[Array, "width"]  # the embedding of x_{t−1}, which waits for its label
    read_weights: Float[Array, "1 slots"]  # kept for the trace
    written: Float[Array, "1 slots"]  # the slot that was added to, for the trace


class _Places(NamedTuple):
    """Where the pairs of an episode go. A place is a slot at the start, or the class that a step opens."""

    of_pair: Int[Array, "time"]
    opens: Bool[Array, "time"]
    evicted: Int[Array, "time"]  # the place that makes room, or as many as there are for none


class Prototypes(Memory):
    """One mean per class, in a slot that is found by its label."""

    keys: Linear | None  # None: the features are the embedding
    scale: Float[Array, ""]  # log of the factor of squared distances
    radius: Float[Array, ""]
    sharpness: Float[Array, ""]  # log of the factor by which a larger distance says "new"
    slots: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    heads: int = eqx.field(static=True)
    labels: int = eqx.field(static=True)

    def __init__(self, config: PrototypesConfig, features: int, labels: int, *, key: PRNGKeyArray) -> None:
        self.keys = key_layer(features, config, key=key)
        self.scale = jnp.asarray(math.log(config.initial_scale), jnp.float32)
        self.radius = jnp.asarray(config.initial_radius, jnp.float32)
        self.sharpness = jnp.zeros((), jnp.float32)
        self.slots, self.width, self.heads, self.labels = config.slots, config.width, 1, labels

    @property
    def read_size(self) -> int:
        """log p of every letter, and the log odds of something new."""
        return self.labels + 1

    @property
    def direct_size(self) -> int:
        return self.width + self.labels

    def project(
        self, features: Float[Array, "*time features"], previous_label: Float[Array, "*time label"]
    ) -> Float[Array, "*time direct"]:
        return jnp.concatenate([self.embed(features), previous_label], axis=-1)

    def embed(self, features: Float[Array, "*time features"]) -> Float[Array, "*time width"]:
        return features if self.keys is None else self.keys(features)

    def first_readout(self, readout: Linear, hidden: int) -> Linear:
        return pass_on(readout, hidden)

    def initial_state(self) -> PrototypesState:
        return PrototypesState(
            jnp.zeros((self.slots, self.width)),
            jnp.zeros(self.slots),
            jnp.zeros((self.slots, self.labels)),
            jnp.zeros(self.slots),
            jnp.zeros(self.width),
            jnp.zeros((1, self.slots)),
            jnp.zeros((1, self.slots)),
        )

    def __call__(
        self, query: Float[Array, "query"], state: PrototypesState
    ) -> tuple[Float[Array, "reads"], Any]:
        now, label = jnp.split(query[query.shape[0] - self.direct_size :], [self.width])
        slot, opens = self._find(label, state.names, state.opened)
        chosen = (jnp.arange(self.slots) == slot) & (jnp.max(jnp.abs(label)) > 0)
        fresh = chosen & opens
        number = jnp.max(state.opened) + 1
        added = jnp.where(chosen[:, None], state.pending[None], 0.0)
        sums = jnp.where(fresh[:, None], 0.0, state.sums) + added
        counts = jnp.where(fresh, 0.0, state.counts) + chosen.astype(jnp.float32)
        names = jnp.where(fresh[:, None], label[None], state.names)
        opened = jnp.where(fresh, number, state.opened)
        means = sums / jnp.maximum(counts, 1)[:, None]
        distances = jnp.sum((now[None] - means) ** 2, axis=1)
        reads, weights = self.read(distances, names, opened > 0)
        written = chosen[None].astype(jnp.float32)
        return reads, PrototypesState(sums, counts, names, opened, now, weights[None], written)

    def _find(
        self, label: Float[Array, "label"], names: Float[Array, "slots label"], opened: Float[Array, "slots"]
    ) -> tuple[Int[Array, ""], Bool[Array, ""]]:
        """The slot of a label, and whether it is to be opened for it."""
        same = jnp.all(names == label[None], axis=1) & (opened > 0)
        known = jnp.any(same)
        return jnp.where(known, jnp.argmax(same), jnp.argmin(opened)), ~known

    def read(
        self,
        distances: Float[Array, "places"],
        names: Float[Array, "places label"],
        held: Bool[Array, "places"],
    ) -> tuple[Float[Array, "reads"], Float[Array, "places"]]:
        """What the distances to the prototypes tell, and how much each of them counts."""
        scaled = jnp.exp(self.scale) * distances
        some = jnp.any(held)
        logits = jnp.where(held | ~some, -scaled, -jnp.inf)
        weights = jnp.where(held, jax.nn.softmax(logits), 0.0)
        nearest = jnp.min(jnp.where(held | ~some, scaled, jnp.inf))
        new = jnp.where(some, jnp.exp(self.sharpness) * (nearest - self.radius), UNKNOWN)
        return jnp.concatenate([jnp.log(weights @ names + LEAST), new[None]]), weights

    @property
    def stands_alone(self) -> bool:
        return True

    def unroll(
        self, direct: Float[Array, "time direct"], state: PrototypesState
    ) -> tuple[Float[Array, "time reads"], PrototypesState]:
        """A whole episode at once. Only which slot a label has is found step by step, from labels alone.

        The squared distance to a mean s/n is |x|² − 2 x·s/n + |s|²/n², where x·s sums products with the single
        embeddings, and |s|² grows by 2 w·s + |w|² with every w that is added.
        """
        now, labels = jnp.split(direct, [self.width], axis=1)
        steps, slots = len(now), self.slots
        waiting = jnp.concatenate([state.pending[None], now[:-1]])  # what gets its label at each step
        present = jnp.max(jnp.abs(labels), axis=1) > 0
        places, (names, opened, last) = self._places(labels, present, state)

        # Which pairs are of which place, and which places are held, by steps.
        member = (places.of_pair[:, None] == jnp.arange(slots + steps)[None]) & present[:, None]
        member = member.astype(jnp.float32)
        step = jnp.arange(steps)
        never = jnp.full(slots + steps, steps)
        birth = jnp.concatenate(
            [jnp.where(state.opened > 0, -1, steps), jnp.where(places.opens, step, steps)]
        )
        death = never.at[places.evicted].set(step, mode="drop")
        held = (birth[None] <= step[:, None]) & (step[:, None] < death[None])

        def padded(values: Array) -> Array:
            return jnp.concatenate([values, jnp.zeros((steps, *values.shape[1:]))])

        start = padded(state.sums)
        counts = padded(state.counts)[None] + jnp.cumsum(member, axis=0)
        products = now @ start.T + (jnp.tril(now @ waiting.T) @ member)
        among = waiting @ waiting.T  # of the pairs with each other
        before = jnp.sum((waiting @ start.T) * member, axis=1) + jnp.sum(
            jnp.tril(among, -1) * (member @ member.T), axis=1
        )
        grown = 2 * before + jnp.diagonal(among)
        squares = jnp.sum(start**2, axis=1)[None] + jnp.cumsum(member * grown[:, None], axis=0)
        shares = 1 / jnp.maximum(counts, 1)
        distances = jnp.sum(now**2, axis=1)[:, None] - 2 * products * shares + squares * shares**2
        values = jnp.concatenate([state.names, labels])
        reads, weights = jax.vmap(self.read, in_axes=(0, None, 0))(jnp.maximum(distances, 0.0), values, held)

        sums = start + member.T @ waiting
        written = (last == places.of_pair[-1]) & present[-1]
        return reads, PrototypesState(
            sums[last],
            counts[-1][last],
            names,
            opened,
            now[-1],
            weights[-1][last][None],
            written[None].astype(jnp.float32),
        )

    def _places(
        self, labels: Float[Array, "time label"], present: Bool[Array, "time"], state: PrototypesState
    ) -> tuple[_Places, tuple[Float[Array, "slots label"], Float[Array, "slots"], Int[Array, "slots"]]]:
        """Where pairs go; and at the end the labels of the slots, their numbers, and the place that each holds."""
        steps, slots = len(labels), self.slots

        def advance(carry: Any, pair: Any) -> tuple[Any, _Places]:
            names, opened, place = carry
            label, is_present, number = pair
            slot, opens = self._find(label, names, opened)
            opens = opens & is_present
            evicts = opens & (opened[slot] > 0)
            evicted = jnp.where(evicts, place[slot], slots + steps)
            fresh = (jnp.arange(slots) == slot) & opens
            names = jnp.where(fresh[:, None], label[None], names)
            opened = jnp.where(fresh, jnp.max(opened) + 1, opened)
            place = jnp.where(fresh, slots + number, place)
            return (names, opened, place), _Places(place[slot], opens, evicted)

        start = jax.lax.stop_gradient((state.names, state.opened, jnp.arange(slots)))
        pairs = (jax.lax.stop_gradient(labels), present, jnp.arange(steps))
        last, places = jax.lax.scan(advance, start, pairs)
        return places, last

    def trace(self, state: PrototypesState) -> MemoryTrace:
        means = state.sums / jnp.maximum(state.counts, 1)[:, None]
        contents = jnp.concatenate([means, state.names], axis=-1)
        return MemoryTrace(state.read_weights, state.written, None, contents)
