"""A memory that learns what to keep: where to write, what to add to what is there, what to forget.

Key and value are apart, as in `keyvalue`: the pair (key of x_{t−1}, y_{t−1}) arrives at step t, and reading
compares the key of x_t with all keys by cosine. But no rule says where a pair goes. Every slot i is described by a
few numbers φ_i, among them its age, how much it is read, how alike its key is to the new one, whether it has the
same label, and how wrong the answer was when it was written. One small network, the same for all slots, makes three
numbers of them:

    s_i, f_i, k_i = g(φ_i)
    r_i ← (1 − σ(f_i)) r_i                                   forget: r_i of what a slot holds is still there
    w = one-hot of the largest of s_1, …, s_M and s_0        write there, or nowhere, unless a slot is empty
    n'_i = σ(k_i) a_i r_i n_i                                what stays of its n_i pairs where the new one goes;
                                                             a_i: 1 if they have the same label, 0 if none of
                                                             its letters; the 4th power of the share, if some
    K_i ← K_i + w_i (key − K_i) / (n'_i + 1)                 the mean of old and new; V_i likewise
    n_i ← (1 − w_i) n_i + w_i (n'_i + 1),  r_i ← (1 − w_i) r_i + w_i

So a pair may join those of its class, replace another or be dropped, and whatever is contradicted or out of date
may fade. Different labels are not mixed in a slot: as long as keys say nothing, the mean of all that came is the
best guess, and a network that learned to keep just that stayed there. The choice is hard; its gradient is that of
the softmax (straight through). What has faded counts for less in reading, by a learned share, and so may what is
old or was surprising.
"""

import dataclasses
import math
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from mann.errors import MannError, check_range
from mann.layers import Linear, normalise
from mann.memory.base import MOST, Memory, MemoryTrace, SlotConfig, pass_on

TINY = 1e-4  # added to probabilities before their logarithm
FADED = 1e-6  # the least that is said to be left, before the logarithm
EMPTY = 0.05  # a slot of which less is left is empty
USED = 0.95  # decay of how much a slot is read
LONG = 5.0  # log of the age that counts as 1, about 150 pairs
SWIFT = (
    10.0  # gates move so many times faster than a learning rate allows, or they would hardly open in a run
)
SAME = 4  # power of the share of letters that agree: four of five are not yet the same label


@dataclasses.dataclass(frozen=True)
class SelectiveConfig(SlotConfig, kind="selective"):
    """Pairs of key and label in slots; which are kept, joined, replaced or forgotten is learned."""

    takes_query: ClassVar[bool] = False
    slots: int = 128
    """Slots (M)."""
    width: int = 64
    """Width of a key (W)."""
    heads: int = 1
    """Read heads: one."""
    hidden: int = 16
    """Hidden units of the network that looks at every slot."""
    sees_null: bool = True
    """Whether the null label, with which an episode begins, may make it forget."""
    initial_strength: float = 10.0
    """Where the key strength β starts."""
    initial_threshold: float = 0.5
    """Where the similarity starts at which "none of them" is as likely as a slot."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("The memory's hidden units", self.hidden, 1, MOST)
        if self.heads != 1:
            raise MannError("A selective memory has one read head: set model.memory.heads to 1.")
        if not (math.isfinite(self.initial_strength) and self.initial_strength > 0):
            raise MannError(f"The initial key strength must be positive, not {self.initial_strength}.")
        if not -1 <= self.initial_threshold <= 1:
            raise MannError(
                f"A similarity lies between -1 and 1, the threshold {self.initial_threshold} does not."
            )

    def build(self, query: int, inputs: tuple[int, int], *, key: PRNGKeyArray) -> "Selective":
        return Selective(self, *inputs, key=key)


class SelectiveState(NamedTuple):
    keys: Float[Array, "slots width"]  # K, the mean key of the pairs in a slot
    values: Float[Array, "slots label"]  # V, their mean label
    pairs: Float[Array, "slots"]  # n, how many they are
    left: Float[Array, "slots"]  # r, the share of them that has not faded
    age: Float[Array, "slots"]  # labels that came since the last was written here
    use: Float[Array, "slots"]  # decayed sum of the read weights
    surprise: Float[Array, "slots"]  # how wrong the answer was for the pair that was written last
    pending: Float[Array, "width"]  # the key of x_{t−1}, which waits for its label
    similarity: Float[Array, "slots"]  # of that key with all others
    told: Float[Array, "label"]  # what was read for it
    read_weights: Float[Array, "slots"]
    write_weights: Float[Array, "slots"]  # kept for the trace


FEATURES = (  # φ_i, and what s_i, f_i and k_i start with of each: first empty slots, then the same label, then old
    ("held", (-4.0, 0.0, 0.0)),
    ("similar", (0.0, 0.0, 0.0)),
    ("same label", (8.0, 0.0, 8.0)),
    ("similar, same label", (2.0, 0.0, 0.0)),
    ("similar, other label", (0.0, 0.0, 0.0)),
    ("age", (3.0, 0.0, 0.0)),
    ("pairs", (0.0, 0.0, 0.0)),
    ("use", (-0.5, 0.0, 0.0)),
    ("surprise then", (0.0, 0.0, 0.0)),
    ("read", (0.0, 0.0, 0.0)),
    ("read, other label", (0.0, 0.0, 0.0)),
    ("surprise now", (0.0, 0.0, 0.0)),
    (
        "no label",
        (0.0, 5.0, 0.0),
    ),  # even odds of forgetting at the null label: from shut, the gate hardly learns
    ("one", (0.0, -5.0, -4.0)),
)
READING = (1.0, 0.0, 0.0, 0.0)  # what faded, pairs, age and surprise add to the reading logits at the start
NOWHERE = (-4.0, 0.0, 0.0)  # s_0 of one, of surprise, and of the likeness of the best slot of the same label


class Selective(Memory):
    """Slots of joined pairs with a small network that says where to write and what to forget."""

    plain: ClassVar[tuple[str, ...]] = ("first", "second", "straight")
    encode: Linear
    strength: Float[Array, ""]  # log β
    threshold: Float[Array, ""]
    first: Float[Array, "features hidden"]
    second: Float[Array, "hidden 3"]
    straight: Float[Array, "features 3"]
    nowhere: Float[Array, "3"]
    reading: Float[Array, "4"]
    slots: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    heads: int = eqx.field(static=True)
    labels: int = eqx.field(static=True)
    sees_null: bool = eqx.field(static=True)

    def __init__(self, config: SelectiveConfig, features: int, labels: int, *, key: PRNGKeyArray) -> None:
        encode_key, first_key, second_key = jax.random.split(key, 3)
        self.encode = Linear(features, config.width, key=encode_key)
        self.strength = jnp.asarray(math.log(config.initial_strength), jnp.float32)
        self.threshold = jnp.asarray(config.initial_threshold, jnp.float32)
        count = len(FEATURES)
        self.first = jax.random.normal(first_key, (count, config.hidden)) / math.sqrt(count)
        self.second = 0.01 * jax.random.normal(second_key, (config.hidden, 3)) / math.sqrt(config.hidden)
        self.straight = jnp.array([start for _, start in FEATURES], jnp.float32) / SWIFT
        self.nowhere = jnp.array(NOWHERE, jnp.float32) / SWIFT
        self.reading = jnp.array(READING, jnp.float32) / SWIFT
        self.slots, self.width, self.heads, self.labels = config.slots, config.width, 1, labels
        self.sees_null = config.sees_null

    @property
    def read_size(self) -> int:
        """The logarithm of the blended value, and the log odds of "none of them"."""
        return self.labels + 1

    @property
    def direct_size(self) -> int:
        return self.width + self.labels

    def project(
        self, features: Float[Array, "*time features"], previous_label: Float[Array, "*time label"]
    ) -> Float[Array, "*time direct"]:
        return jnp.concatenate([normalise(self.encode(features)), previous_label], axis=-1)

    def embed(self, features: Float[Array, "*time features"]) -> Float[Array, "*time keys"]:
        return self.encode(features)

    def first_readout(self, readout: Linear, hidden: int) -> Linear:
        return pass_on(readout, hidden)

    def initial_state(self) -> SelectiveState:
        nothing = jnp.zeros(self.slots)
        return SelectiveState(
            jnp.zeros((self.slots, self.width)),
            jnp.zeros((self.slots, self.labels)),
            *(nothing, nothing, nothing, nothing, nothing),
            jnp.zeros(self.width),
            nothing,
            jnp.zeros(self.labels),
            *(nothing, nothing),
        )

    def describe(
        self, label: Float[Array, "label"], state: SelectiveState
    ) -> tuple[Float[Array, "slots features"], Float[Array, ""]]:
        """φ_i of every slot, and how wrong the last answer was."""
        squares = jnp.sum(label**2)
        present = (squares > 0).astype(jnp.float32)
        size = jnp.maximum(squares, 1e-6)
        held = state.left  # what has been forgotten is described as what was never there
        same = held * (state.values @ label / size) ** SAME
        similar = present * held * state.similarity
        surprise = present * (1 - state.told @ label / size)
        read = present * state.read_weights
        columns = [
            held,
            similar,
            same,
            similar * same,
            similar * (1 - same),
            held * jnp.log1p(state.age) / LONG,
            held * jnp.log1p(state.pairs),
            held * state.use,
            held * state.surprise,
            read,
            read * (1 - same),
            jnp.broadcast_to(surprise, held.shape),
            jnp.broadcast_to(1 - present if self.sees_null else jnp.zeros(()), held.shape),
            jnp.ones_like(held),
        ]
        # Looked at, not shaped: short trials did better without gradients through all that was kept before.
        return jax.lax.stop_gradient((jnp.stack(columns, axis=1), surprise))

    def __call__(
        self, query: Float[Array, "query"], state: SelectiveState
    ) -> tuple[Float[Array, "reads"], SelectiveState]:
        now, label = jnp.split(query[query.shape[0] - self.direct_size :], [self.width])
        present = (jnp.max(jnp.abs(label)) > 0).astype(jnp.float32)  # the null label names nothing
        described, surprise = self.describe(label, state)
        gates = described @ self.straight + jax.nn.relu(described @ self.first) @ self.second
        score, forget, keep = SWIFT * gates.T

        left = state.left * jax.nn.sigmoid(-forget)
        best = jnp.max(described[:, 3])  # the likeness of the most similar slot of the same label
        nowhere = SWIFT * self.nowhere @ jnp.stack([jnp.ones(()), surprise, best])
        # While there is room, nothing is dropped: a memory that stays empty has no gradient by which to mend it.
        nowhere = jnp.where(jnp.any(left < EMPTY), -jnp.inf, nowhere)
        scores = jnp.concatenate([score, nowhere[None]])
        soft = jax.nn.softmax(scores)
        hard = jax.nn.one_hot(jnp.argmax(scores), self.slots + 1)
        write = present * (hard + soft - jax.lax.stop_gradient(soft))[: self.slots]
        same = described[:, 2] * jax.nn.sigmoid(-forget)  # a_i r_i
        kept = jax.nn.sigmoid(keep) * same * state.pairs
        rate = (write / (kept + 1))[:, None]
        keys = state.keys + rate * (state.pending[None] - state.keys)
        values = state.values + rate * (label[None] - state.values)
        pairs = (1 - write) * state.pairs + write * (kept + 1)
        # A slot that has faded is not written to just to be read again.
        written = jax.lax.stop_gradient(write)
        left = (1 - written) * left + written
        age = (1 - written) * (state.age + present)
        surprises = state.surprise + written * (surprise - state.surprise)

        similarity = normalise(keys) @ now
        told, odds, weights = self.read(similarity, values, pairs, left, age, surprises)
        use = jax.lax.stop_gradient(USED * state.use + weights)
        reads = jnp.concatenate([jnp.log(told + TINY), odds[None]])
        return reads, SelectiveState(
            keys,
            values,
            pairs,
            left,
            age,
            use,
            surprises,
            now,
            *jax.lax.stop_gradient((similarity, told, weights, write)),
        )

    def read(
        self,
        similarity: Float[Array, "slots"],
        values: Float[Array, "slots label"],
        pairs: Float[Array, "slots"],
        left: Float[Array, "slots"],
        age: Float[Array, "slots"],
        surprise: Float[Array, "slots"],
    ) -> tuple[Float[Array, "label"], Float[Array, ""], Float[Array, "slots"]]:
        """The blended value, the log odds of "none of them", and where it looked."""
        beta = jnp.exp(self.strength)
        held = pairs > 0
        fade = jnp.log(left + FADED)
        more = jnp.log(jnp.maximum(pairs, 1.0))
        bias = jnp.stack([fade, more, jnp.log1p(age) / LONG, surprise], axis=1) @ (SWIFT * self.reading)
        logits = jnp.where(held, beta * similarity + bias, -jnp.inf)
        logits = jnp.concatenate([beta * self.threshold[None], logits])
        weights = jax.nn.softmax(logits)  # the first place: none of them
        odds = jnp.log(weights[0] + TINY) - jnp.log(jnp.sum(weights[1:]) + TINY)
        return weights[1:] @ values, odds, weights[1:]

    def similarity(self, query: Float[Array, "query"], state: SelectiveState) -> Float[Array, "heads slots"]:
        return state.similarity[None]

    def familiarity(self, state: SelectiveState) -> Float[Array, ""]:
        """The largest cosine with a key that is held; −1 if none is."""
        return jnp.max(jnp.where(state.left >= EMPTY, state.similarity, -1.0))

    def trace(self, state: SelectiveState) -> MemoryTrace:
        contents = jnp.concatenate([state.keys, state.values], axis=-1)
        return MemoryTrace(state.read_weights[None], state.write_weights[None], state.use, contents)
