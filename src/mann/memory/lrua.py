"""Least Recently Used Access: the paper's memory module (section 3.2).

Writes go to the least recently used slot or to the slots read one step ago; reads are by content alone. Where
the paper can be read in more than one way, the reading is a field of `LRUAConfig`: see docs/choices.md.
"""

import dataclasses
import math
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from mann.errors import MannError
from mann.layers import Linear
from mann.memory import addressing
from mann.memory.base import EMPTY, Memory, MemoryKernel, MemoryTrace, SlotConfig
from mann.memory.sparse import SparseConfig

INTERVAL = 32  # steps between the kernel's copies of the memory; between them, it is rebuilt backwards


@dataclasses.dataclass(frozen=True)
class LRUAConfig(SlotConfig, kind="lrua"):
    """Least Recently Used Access: its sizes, and the readings of the paper that implementations disagree on."""

    key_strength: Literal["learned", "none"] = "learned"
    """β in softmax(β · cosine): learned per head and step, or 1 (eq 3), which blurs every read of many slots."""
    initial_strength: float = 11.0
    """Where the learned β starts, roughly; it is 1 + softplus(linear + initial_strength − 1)."""
    written: Literal["separate", "key"] = "separate"
    """What is written: a vector of its own, or the key itself as in eq 8."""
    order: Literal["write_first", "read_first"] = "write_first"
    """Read M_t after writing (the paper), or M_{t−1} before it."""
    least_used: Literal["shared", "per_head"] = "shared"
    """One least used slot for all heads, or head i writes to the i-th least used (n = number of reads)."""
    erased: Literal["one", "all", "none"] = "one"
    """Zero the single least used slot before writing (the paper), every slot marked least used, or none."""
    decay: float = 0.99
    """γ, the decay of usage (eq 5)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heads > self.slots:
            raise MannError(f"{self.heads} heads need at least as many slots, but there are {self.slots}.")
        if not 0 <= self.decay <= 1:
            raise MannError(f"The usage decay γ must lie between 0 and 1, not {self.decay}.")
        if not (math.isfinite(self.initial_strength) and self.initial_strength > 1):
            raise MannError(f"The initial key strength must be above 1, not {self.initial_strength}.")

    def with_neighbours(self, neighbours: int) -> SparseConfig:
        """Sparse access with the same weights; its usage and its empty slots are a little different."""
        if self.key_strength != "learned" or self.written != "separate" or self.order != "write_first":
            raise MannError(
                "Sparse access has a learned key strength, writes a vector of its own, and writes first."
            )
        return SparseConfig(
            self.slots,
            self.width,
            self.heads,
            neighbours=neighbours,
            least_used=self.least_used,
            initial_strength=self.initial_strength,
        )

    def build(self, query: int, inputs: tuple[int, int], *, key: PRNGKeyArray) -> "LRUA":
        return LRUA(query, self, key=key)


PAPER_MEMORY = LRUAConfig(key_strength="none", written="key", least_used="per_head")
"""The literal reading of the main text."""


class LRUAState(NamedTuple):
    memory: Float[Array, "slots width"]  # M_t
    read_weights: Float[Array, "heads slots"]  # w^r_t
    write_weights: Float[Array, "heads slots"]  # w^w_t, kept for the trace
    usage: Float[Array, "slots"]  # w^u_t


class LRUA(Memory):
    """The memory module of the paper, with one gate, key and written vector per head."""

    keys: Linear
    gates: Linear
    vectors: Linear | None
    strengths: Linear | None
    slots: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    heads: int = eqx.field(static=True)
    config: LRUAConfig = eqx.field(static=True)

    def __init__(self, query: int, config: LRUAConfig, *, key: PRNGKeyArray) -> None:
        heads, width = config.heads, config.width
        key_key, gate_key, vector_key, strength_key = jax.random.split(key, 4)
        self.keys = Linear(query, heads * width, key=key_key)
        self.gates = Linear(query, heads, key=gate_key)
        separate, learned = config.written == "separate", config.key_strength == "learned"
        self.vectors = Linear(query, heads * width, key=vector_key) if separate else None
        self.strengths = (
            Linear(query, heads, key=strength_key, bias=config.initial_strength - 1) if learned else None
        )
        self.slots, self.width, self.heads, self.config = config.slots, width, heads, config

    def initial_state(self) -> LRUAState:
        first = jax.nn.one_hot(0, self.slots)
        each = jnp.tile(first, (self.heads, 1))
        return LRUAState(
            jnp.full((self.slots, self.width), EMPTY, jnp.float32), each, jnp.zeros_like(each), first
        )

    def __call__(
        self, query: Float[Array, "query"], state: LRUAState
    ) -> tuple[Float[Array, "reads"], LRUAState]:
        config = self.config
        keys = jnp.tanh(self.keys(query)).reshape(self.heads, self.width)
        gate = jax.nn.sigmoid(self.gates(query))  # σ(α)
        vectors, strength = keys, jnp.ones(self.heads)
        if self.vectors is not None:
            vectors = jnp.tanh(self.vectors(query)).reshape(self.heads, self.width)
        if self.strengths is not None:
            strength = 1 + jax.nn.softplus(self.strengths(query))  # β

        targets = addressing.least_used(  # eq 6
            state.usage, 1 if config.least_used == "shared" else self.heads
        )
        write_weights = addressing.write_weights(gate, state.read_weights, targets)  # eq 7
        memory = state.memory
        if config.erased == "one":
            memory = addressing.erase(memory, targets[0])
        elif config.erased == "all":
            memory = addressing.erase(memory, jnp.sum(targets, axis=0))
        memory = addressing.write(memory, write_weights, vectors)  # eq 8

        source = memory if config.order == "write_first" else state.memory
        read_weights = addressing.content_weights(keys, source, strength)  # eqs 2, 3
        reads = addressing.read(read_weights, source)  # eq 4
        usage = addressing.update_usage(state.usage, read_weights, write_weights, config.decay)  # eq 5
        return reads.reshape(-1), LRUAState(memory, read_weights, write_weights, usage)

    def similarity(self, query: Float[Array, "query"], state: LRUAState) -> Float[Array, "heads slots"]:
        """K(k, M(i)) of every head and slot, for the query that led to `state` (eq 2)."""
        keys = jnp.tanh(self.keys(query)).reshape(self.heads, self.width)
        return addressing.cosine_similarity(keys, state.memory)

    def trace(self, state: LRUAState) -> MemoryTrace:
        return MemoryTrace(state.read_weights, state.write_weights, state.usage, state.memory)

    def kernel(self) -> MemoryKernel:
        config = self.config
        targets = 1 if config.least_used == "shared" else self.heads
        linears = (self.keys, self.vectors, self.gates, self.strengths)
        return MemoryKernel(
            "lrua",
            tuple(linear for linear in linears if linear is not None),
            weighted=self.heads,
            targets=targets,
            extra=(targets, self.width),
            interval=INTERVAL,
            attributes={
                "learned": int(config.key_strength == "learned"),
                "separate": int(config.written == "separate"),
                "write_first": int(config.order == "write_first"),
                "erased": {"one": 1, "all": targets, "none": 0}[config.erased],
                "decay": config.decay,
            },
            start=lambda state: (state.memory, state.read_weights, jax.lax.stop_gradient(state.usage)),
            finish=LRUAState,
        )
