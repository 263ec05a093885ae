"""The access module of the Neural Turing Machine (Graves et al. 2014): by content *and* by location.

The paper's comparison row "MANN (NTM)": one write head with erase and add, and R read heads.
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


@dataclasses.dataclass(frozen=True)
class NTMConfig(SlotConfig, kind="ntm"):
    """The NTM's access module: its sizes, and where the learned addressing starts."""

    initial_strength: float = 1.0
    """Where the key strength β starts, roughly; it is softplus(linear + initial_strength)."""
    initial_heads: Literal["even", "moving"] = "even"
    """How heads start: every move equally likely, or writing slot after slot and reading by content."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not math.isfinite(self.initial_strength):
            raise MannError("The initial key strength of the NTM must be a finite number.")

    def build(self, query: int, inputs: tuple[int, int], *, key: PRNGKeyArray) -> "NTM":
        return NTM(query, self, key=key)


HEADS = {  # biases of strength, gate, the moves by −1, 0, +1, and sharpening: of read heads, of the write head
    "even": ((0, 0, 0, 0, 0, 0), (0, 0, 0, 0, 0, 0)),
    "moving": ((0, 2, 0, 3, 0, 3), (0, -2, 0, 0, 3, 3)),
}


class NTMState(NamedTuple):
    memory: Float[Array, "slots width"]  # M_t
    weights: Float[Array, "heads_and_one slots"]  # R read heads, then the write head


class NTM(Memory):
    """Content addressing, interpolation, shift and sharpening for each head; then erase, add and read."""

    keys: Linear
    addressing: Linear  # a head's strength, gate, three shifts and sharpening
    erase: Linear
    add: Linear
    slots: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    heads: int = eqx.field(static=True)
    config: NTMConfig = eqx.field(static=True)

    def __init__(self, query: int, config: NTMConfig, *, key: PRNGKeyArray) -> None:
        heads, width = config.heads, config.width
        key_key, addressing_key, erase_key, add_key = jax.random.split(key, 4)
        self.keys = Linear(query, (heads + 1) * width, key=key_key)
        reading, writing = HEADS[config.initial_heads]
        self.addressing = eqx.tree_at(
            lambda linear: linear.bias,
            Linear(query, (heads + 1) * 6, key=addressing_key),
            jnp.array(heads * reading + writing, jnp.float32),
        )
        self.erase = Linear(query, width, key=erase_key)
        self.add = Linear(query, width, key=add_key)
        self.slots, self.width, self.heads, self.config = config.slots, width, heads, config

    def initial_state(self) -> NTMState:
        first = jax.nn.one_hot(0, self.slots)
        return NTMState(
            jnp.full((self.slots, self.width), EMPTY, jnp.float32), jnp.tile(first, (self.heads + 1, 1))
        )

    def address(
        self,
        keys: Float[Array, "n width"],
        raw: Float[Array, "n 6"],
        memory: Float[Array, "slots width"],
        previous: Float[Array, "n slots"],
    ) -> Float[Array, "n slots"]:
        """The weights of some heads on `memory` (NTM eqs 5–9)."""
        strength = jax.nn.softplus(raw[:, 0] + self.config.initial_strength)
        gate = jax.nn.sigmoid(raw[:, 1])
        moves = jax.nn.softmax(raw[:, 2:5], axis=-1)
        exponent = 1 + jax.nn.softplus(raw[:, 5])
        content = addressing.content_weights(keys, memory, strength)
        gated = addressing.interpolate(gate, content, previous)
        return addressing.sharpen(addressing.shift(gated, moves), exponent)

    def __call__(
        self, query: Float[Array, "query"], state: NTMState
    ) -> tuple[Float[Array, "reads"], NTMState]:
        keys = jnp.tanh(self.keys(query)).reshape(self.heads + 1, self.width)
        raw = self.addressing(query).reshape(self.heads + 1, 6)
        erased = jax.nn.sigmoid(self.erase(query))
        added = jnp.tanh(self.add(query))

        write_weights = self.address(keys[-1:], raw[-1:], state.memory, state.weights[-1:])
        memory = addressing.erase_and_add(state.memory, write_weights[0], erased, added)
        read_weights = self.address(keys[:-1], raw[:-1], memory, state.weights[:-1])
        reads = addressing.read(read_weights, memory)
        return reads.reshape(-1), NTMState(memory, jnp.concatenate([read_weights, write_weights]))

    def trace(self, state: NTMState) -> MemoryTrace:
        return MemoryTrace(state.weights[:-1], state.weights[-1:], None, state.memory)

    def kernel(self) -> MemoryKernel:
        padded = -(-self.slots // 16) * 16  # as in config.h
        return MemoryKernel(
            "ntm",
            (self.keys, self.addressing, self.erase, self.add),
            weighted=self.heads + 1,
            targets=0,
            extra=(self.heads + 1, padded),
            interval=1,
            attributes={"strength": self.config.initial_strength},
            start=lambda state: (state.memory, state.weights, jnp.zeros(0)),
            finish=lambda memory, weights, written, usage: NTMState(memory, weights),
        )
