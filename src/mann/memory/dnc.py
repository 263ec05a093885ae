"""The memory of the Differentiable Neural Computer (Graves et al. 2016): allocation, and links in time.

Writes go to what is similar or to what is free; what is free is told by gates that release slots after reading.
Reads follow the order of writing forth and back, or find by content. Equations are those of the paper's Methods.
"""

import dataclasses
import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from mann.errors import MannError
from mann.layers import Linear
from mann.memory import addressing
from mann.memory.base import Memory, MemoryTrace, SlotConfig


@dataclasses.dataclass(frozen=True)
class DNCConfig(SlotConfig, kind="dnc"):
    """The DNC's memory: its sizes, and where the learned key strength starts."""

    initial_strength: float = 11.0
    """Where every key strength β starts, roughly; it is 1 + softplus(linear + initial_strength − 1)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (math.isfinite(self.initial_strength) and self.initial_strength > 1):
            raise MannError(f"The initial key strength must be above 1, not {self.initial_strength}.")

    def build(self, query: int, inputs: tuple[int, int], *, key: PRNGKeyArray) -> "DNC":
        return DNC(query, self, key=key)


class DNCState(NamedTuple):
    memory: Float[Array, "slots width"]  # M_t
    usage: Float[Array, "slots"]  # u_t
    precedence: Float[Array, "slots"]  # p_t
    links: Float[Array, "slots slots"]  # L_t: [i, j] is how far i was written right after j
    read_weights: Float[Array, "heads slots"]  # w^r_t
    write_weights: Float[Array, "slots"]  # w^w_t


def update_usage(
    usage: Float[Array, "slots"],
    write_weights: Float[Array, "slots"],
    read_weights: Float[Array, "heads slots"],
    free: Float[Array, "heads"],
) -> Float[Array, "slots"]:
    """u_t = (u + w^w − u ∘ w^w) ∘ ψ, with ψ = Π_i (1 − f^i w^{r,i}); the weights are of the step before."""
    retention = jnp.prod(1 - free[:, None] * read_weights, axis=0)
    return (usage + write_weights - usage * write_weights) * retention


def allocation(usage: Float[Array, "slots"]) -> Float[Array, "slots"]:
    """a_t[φ_j] = (1 − u[φ_j]) Π_{i<j} u[φ_i], where φ sorts the slots by usage, the least used first.

    Nothing is sorted: the slots before i are those that are less used, or as much and of a lower number. That is a
    matrix of slots by slots, as the links are, and much faster than a sort in every step.
    """
    index = jnp.arange(len(usage))
    earlier = (usage[None] < usage[:, None]) | (
        (usage[None] == usage[:, None]) & (index[None] < index[:, None])
    )
    return (1 - usage) * jnp.prod(jnp.where(earlier, usage[None], 1.0), axis=1)


def update_links(
    links: Float[Array, "slots slots"], precedence: Float[Array, "slots"], weights: Float[Array, "slots"]
) -> Float[Array, "slots slots"]:
    """L[i, j] = (1 − w^w[i] − w^w[j]) L[i, j] + w^w[i] p[j], and no slot follows itself."""
    kept = (1 - weights[:, None] - weights[None]) * links
    return (kept + weights[:, None] * precedence[None]) * (1 - jnp.eye(len(weights)))


class DNC(Memory):
    """One write head and R read heads."""

    keys: Linear  # of the read heads, then of the write head
    strengths: Linear
    erased: Linear
    written: Linear
    gates: Linear  # free gates of the read heads, then the allocation gate and the write gate
    modes: Linear  # backward, content and forward, of each read head
    slots: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    heads: int = eqx.field(static=True)

    def __init__(self, query: int, config: DNCConfig, *, key: PRNGKeyArray) -> None:
        heads, width = config.heads, config.width
        keys = jax.random.split(key, 6)
        self.keys = Linear(query, (heads + 1) * width, key=keys[0])
        self.strengths = Linear(query, heads + 1, key=keys[1], bias=config.initial_strength - 1)
        self.erased = Linear(query, width, key=keys[2])
        self.written = Linear(query, width, key=keys[3])
        self.gates = Linear(query, heads + 2, key=keys[4])
        self.modes = Linear(query, 3 * heads, key=keys[5])
        self.slots, self.width, self.heads = config.slots, width, heads

    def initial_state(self) -> DNCState:
        nothing = jnp.zeros(self.slots)
        return DNCState(
            jnp.zeros((self.slots, self.width)),
            nothing,
            nothing,
            jnp.zeros((self.slots, self.slots)),
            jnp.zeros((self.heads, self.slots)),
            nothing,
        )

    def __call__(
        self, query: Float[Array, "query"], state: DNCState
    ) -> tuple[Float[Array, "reads"], DNCState]:
        keys = self.keys(query).reshape(self.heads + 1, self.width)
        strength = 1 + jax.nn.softplus(self.strengths(query))  # β = oneplus
        gates = jax.nn.sigmoid(self.gates(query))
        free, allocate, write = gates[:-2], gates[-2], gates[-1]  # f^i, g^a, g^w
        modes = jax.nn.softmax(self.modes(query).reshape(self.heads, 3), axis=-1)  # π^i
        erased = jax.nn.sigmoid(self.erased(query))  # e

        usage = update_usage(state.usage, state.write_weights, state.read_weights, free)
        content = addressing.content_weights(keys[-1:], state.memory, strength[-1:])[0]  # c^w
        # w^w = g^w (g^a a + (1 − g^a) c^w)
        weights = write * (allocate * allocation(usage) + (1 - allocate) * content)
        # M = M ∘ (1 − w^w eᵀ) + w^w vᵀ
        memory = addressing.erase_and_add(state.memory, weights, erased, self.written(query))

        links = update_links(state.links, state.precedence, weights)
        precedence = (1 - jnp.sum(weights)) * state.precedence + weights  # p
        backward = state.read_weights @ links  # b^i = Lᵀ w^{r,i}
        forward = state.read_weights @ links.T  # f^i = L w^{r,i}
        found = addressing.content_weights(keys[:-1], memory, strength[:-1])  # c^{r,i}
        # w^{r,i} = π^i_1 b^i + π^i_2 c^{r,i} + π^i_3 f^i
        read_weights = modes[:, :1] * backward + modes[:, 1:2] * found + modes[:, 2:] * forward
        reads = addressing.read(read_weights, memory)
        return reads.reshape(-1), DNCState(memory, usage, precedence, links, read_weights, weights)

    def trace(self, state: DNCState) -> MemoryTrace:
        return MemoryTrace(state.read_weights, state.write_weights[None], state.usage, state.memory)
