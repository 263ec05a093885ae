"""Least recently used access with sparse reads and writes (after Rae et al. 2016): a memory of any size.

A head reads from the K slots that are most like its key, and writes to the K that it read one step ago and to the
least recently used slot, so that a step touches a handful of slots, however many there are. Only the search for
the most similar ones looks at all of them.

Nothing of the size of the memory is kept for the backward pass either. Writing is linear in the memory, so that its
gradient needs none of the contents, and reading needs the K slots that were read: `access` records these instead of
the memory, and accumulates the memory's gradient in place. docs/choices.md says what was decided and why.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from mann.errors import MannError, check_range
from mann.layers import EPSILON, Linear, normalise
from mann.memory.addressing import cosine_similarity
from mann.memory.base import MOST, Memory, MemoryTrace, SlotConfig

EMPTY = EPSILON**-0.5  # 1 / |M(i)| of a slot that holds nothing
FADING = 0.99  # usage in a trace: by this factor less for every step since a slot was used, as with LRUA


@dataclasses.dataclass(frozen=True)
class SparseConfig(SlotConfig, kind="sparse"):
    """LRUA that reads from the most similar slots alone; weights of an `LRUAConfig` of the same width fit it."""

    slots: int = 1024
    """Slots (M): a choice at test time as well, since no weight depends on it."""
    neighbours: int = 8
    """Slots that a head reads from (K): the most similar ones."""
    threshold: float = 0.005
    """δ: a slot counts as used when a head's weight of reading or writing is above it."""
    least_used: Literal["shared", "per_head"] = "shared"
    """One least recently used slot for all heads, or head i writes to the i-th of them."""
    initial_strength: float = 11.0
    """Where the learned key strength β starts, roughly; it is 1 + softplus(linear + initial_strength − 1)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("The memory's neighbours (K)", self.neighbours, 1, MOST)
        for count, what in ((self.heads, "heads"), (self.neighbours, "neighbours (K) per head")):
            if count > self.slots:
                raise MannError(f"{count} {what} need at least as many slots, but there are {self.slots}.")
        if not 0 <= self.threshold <= 1:
            raise MannError(f"The threshold δ of usage must lie between 0 and 1, not {self.threshold}.")
        if not (math.isfinite(self.initial_strength) and self.initial_strength > 1):
            raise MannError(f"The initial key strength must be above 1, not {self.initial_strength}.")

    def with_neighbours(self, neighbours: int) -> "SparseConfig":
        return dataclasses.replace(self, neighbours=neighbours)

    def smallest(self) -> "SparseConfig":
        return dataclasses.replace(
            self, slots=8, width=4, heads=min(self.heads, 2), neighbours=min(self.neighbours, 4)
        )

    def build(self, query: int, inputs: tuple[int, int], *, key: PRNGKeyArray) -> "Sparse":
        return Sparse(query, self, key=key)


class SparseState(NamedTuple):
    memory: Float[Array, "slots width"]  # M_t
    inverse: Float[Array, "slots"]  # 1 / |M_t(i)|: kept, since few of them change in a step
    age: Float[Array, "slots"]  # steps since a slot was last used, exact up to 2²⁴
    read_slots: Int[Array, "heads neighbours"]  # where each head read, the most similar slot first
    read_weights: Float[Array, "heads neighbours"]  # w^r_t of these slots; all others are 0
    write_slots: Int[Array, "heads touched"]  # the slots read before, then the least recently used one
    write_weights: Float[Array, "heads touched"]  # w^w_t, kept for the trace


class SparseKernel(NamedTuple):
    """What the native kernel needs of a memory with sparse access (`mann.native.sparse`)."""

    linears: tuple[Linear, ...]  # from the query to keys, vectors, gates and strengths
    neighbours: int
    targets: int  # least recently used slots that are written to in a step
    threshold: float
    start: Callable[[Any], tuple[Array, Array, Array, Array]]  # a batch of states to M_0, w_0, where, ages
    finish: Callable[
        [Array, Array, Array, Array, Array, Array], Any
    ]  # M_T, w_T, where, w^w_T, where, ages to states


class Sparse(Memory):
    """Sparse access, with one gate, key, written vector and key strength per head, as in `LRUA`."""

    keys: Linear
    gates: Linear
    vectors: Linear
    strengths: Linear
    slots: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    heads: int = eqx.field(static=True)
    config: SparseConfig = eqx.field(static=True)

    def __init__(self, query: int, config: SparseConfig, *, key: PRNGKeyArray) -> None:
        heads, width = config.heads, config.width
        key_key, gate_key, vector_key, strength_key = jax.random.split(key, 4)
        self.keys = Linear(query, heads * width, key=key_key)
        self.gates = Linear(query, heads, key=gate_key)
        self.vectors = Linear(query, heads * width, key=vector_key)
        self.strengths = Linear(query, heads, key=strength_key, bias=config.initial_strength - 1)
        self.slots, self.width, self.heads, self.config = config.slots, width, heads, config

    @property
    def targets(self) -> int:
        """How many least recently used slots are written to in a step."""
        return 1 if self.config.least_used == "shared" else self.heads

    def initial_state(self) -> SparseState:
        """All slots empty and, as with LRUA, the first one as if it had just been read."""
        nearest = jnp.tile(jnp.arange(self.config.neighbours), (self.heads, 1))
        return SparseState(
            jnp.zeros((self.slots, self.width), jnp.float32),
            jnp.full(self.slots, EMPTY, jnp.float32),
            jnp.ones(self.slots, jnp.float32).at[0].set(0.0),
            nearest,
            (nearest == 0).astype(jnp.float32),
            jnp.zeros((self.heads, self.config.neighbours + 1), jnp.int32),
            jnp.zeros((self.heads, self.config.neighbours + 1), jnp.float32),
        )

    def __call__(
        self, query: Float[Array, "query"], state: SparseState
    ) -> tuple[Float[Array, "reads"], SparseState]:
        config, heads = self.config, self.heads
        keys = jnp.tanh(self.keys(query)).reshape(heads, self.width)
        gate = jax.nn.sigmoid(self.gates(query))[:, None]  # σ(α)
        vectors = jnp.tanh(self.vectors(query)).reshape(heads, self.width)
        strength = 1 + jax.nn.softplus(self.strengths(query))[:, None]  # β

        targets = least_recently_used(state.age, self.targets)
        write_slots = jnp.concatenate([state.read_slots, jnp.broadcast_to(targets, heads)[:, None]], axis=1)
        write_weights = jnp.concatenate([gate * state.read_weights, 1 - gate], axis=1)  # eq 7
        unit = normalise(keys)
        memory, inverse, read_slots, rows = access(
            config.neighbours,
            *(state.memory, jax.lax.stop_gradient(state.inverse), targets),
            *(write_slots, write_weights, vectors, jax.lax.stop_gradient(unit)),
        )
        cosine = jnp.einsum("hw,hkw->hk", unit, normalise(rows))  # eq 2
        read_weights = jax.nn.softmax(strength * cosine, axis=-1)  # eq 3, over the most similar slots
        reads = jnp.einsum("hk,hkw->hw", read_weights, rows)  # eq 4

        touched = jnp.concatenate([write_slots, read_slots], axis=1)
        again = write_slots[:, :-1] == write_slots[:, -1:]  # the least recently used slot was read as well
        whole = write_weights[:, -1:] + jnp.sum(write_weights[:, :-1], axis=1, keepdims=True, where=again)
        above = jnp.concatenate([write_weights[:, :-1], whole, read_weights], axis=1) > config.threshold
        age = (state.age + 1).at[jnp.where(above, touched, self.slots)].set(0.0, mode="drop")
        return reads.reshape(-1), SparseState(
            memory,
            jax.lax.stop_gradient(inverse),
            *(jax.lax.stop_gradient(age), read_slots, read_weights, write_slots, write_weights),
        )

    def similarity(self, query: Float[Array, "query"], state: SparseState) -> Float[Array, "heads slots"]:
        """K(k, M(i)) of every head and slot, for the query that led to `state` (eq 2)."""
        keys = jnp.tanh(self.keys(query)).reshape(self.heads, self.width)
        return cosine_similarity(keys, state.memory)

    def trace(self, state: SparseState) -> MemoryTrace:
        """With the weights of all slots; usage fades with the steps since a slot was used."""

        def spread(slots: Array, weights: Array) -> Array:
            return jnp.zeros((self.heads, self.slots)).at[jnp.arange(self.heads)[:, None], slots].add(weights)

        empty = state.inverse > 0.99 * EMPTY
        return MemoryTrace(
            spread(state.read_slots, state.read_weights),
            spread(state.write_slots, state.write_weights),
            jnp.where(empty, 0.0, FADING**state.age),
            state.memory,
        )

    def sparse_kernel(self) -> SparseKernel:
        def finish(
            memory: Array, weights: Array, slots: Array, written: Array, written_slots: Array, age: Array
        ) -> SparseState:
            inverse = jax.lax.rsqrt(jnp.sum(jax.lax.stop_gradient(memory) ** 2, axis=-1) + EPSILON)
            return SparseState(memory, inverse, age, slots, weights, written_slots, written)

        return SparseKernel(
            (self.keys, self.vectors, self.gates, self.strengths),
            self.config.neighbours,
            self.targets,
            self.config.threshold,
            lambda state: (state.memory, state.read_weights, state.read_slots, state.age),
            finish,
        )


def least_recently_used(age: Float[Array, "slots"], count: int) -> Int[Array, "count"]:
    """The slots that were not used for the longest time, the oldest first; of equals, the lower ones.

    A search through all slots, like the one for similar ones; the native kernel keeps a list instead.
    """
    return jnp.argmax(age)[None] if count == 1 else jax.lax.top_k(age, count)[1]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def access(
    neighbours: int,
    memory: Float[Array, "slots width"],
    inverse: Float[Array, "slots"],
    targets: Int[Array, "targets"],
    slots: Int[Array, "heads touched"],
    weights: Float[Array, "heads touched"],
    vectors: Float[Array, "heads width"],
    keys: Float[Array, "heads width"],
) -> tuple[
    Float[Array, "slots width"],
    Float[Array, "slots"],
    Int[Array, "heads neighbours"],
    Float[Array, "heads neighbours width"],
]:
    """Erase, write, and find the slots to read (eqs 2, 8). The choice of slots has no gradient.

    Args:
        neighbours: K, how many slots a head reads.
        memory: M_{t−1}.
        inverse: 1 / |M_{t−1}(i)|; without a gradient.
        targets: slots to erase before writing.
        slots: where each head writes; slots may occur more than once.
        weights: w^w_t of these.
        vectors: what each head writes.
        keys: of unit length, what each head looks for; without a gradient.

    Returns:
        M_t, 1 / |M_t(i)|, the K most similar slots of each head, the best first, and what they hold.
    """
    added = weights[:, :, None] * vectors[:, None]
    memory = memory.at[targets].set(0.0).at[slots].add(added)
    inverse = inverse.at[slots].set(jax.lax.rsqrt(jnp.sum(memory[slots] ** 2, axis=-1) + EPSILON))
    nearest = jax.lax.top_k((keys @ memory.T) * inverse[None], neighbours)[1]
    return memory, inverse, nearest, memory[nearest]


def _forward(neighbours: int, *arrays: Array) -> tuple[tuple[Array, Array, Array, Array], tuple[Array, ...]]:
    results = access(neighbours, *arrays)
    _, _, targets, slots, weights, vectors, _ = arrays
    return results, (targets, slots, weights, vectors, results[2])


def _backward(neighbours: int, recorded: tuple[Array, ...], gradients: tuple[Array, ...]) -> tuple[Any, ...]:
    targets, slots, weights, vectors, nearest = recorded
    dmemory, _, _, drows = gradients
    dmemory = dmemory.at[nearest].add(drows)  # of M_t, all of it
    dwritten = dmemory[slots]
    dweights = jnp.einsum("hkw,hw->hk", dwritten, vectors)
    dvectors = jnp.einsum("hkw,hk->hw", dwritten, weights)
    return dmemory.at[targets].set(0.0), None, None, None, dweights, dvectors, None


access.defvjp(_forward, _backward)
