"""A memory of one's own: a ring of slots. Each step overwrites the next slot; reads are by content.

mann train examples/my_memory.py:config --run runs/ring
mann eval runs/ring --use examples/my_memory.py
"""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

import mann
from mann.memory.addressing import content_weights, read


@dataclasses.dataclass(frozen=True)
class RingConfig(mann.SlotConfig, kind="ring"):
    """Slots, width and heads are those of every memory with slots; `strength` is its own."""

    strength: float = 10.0
    """How sharply a key picks the slot that is most like it."""

    def build(self, query, inputs, *, key):
        return Ring(query, self, key=key)


class RingState(NamedTuple):
    memory: jax.Array  # (slots, width)
    read_weights: jax.Array  # (heads, slots)
    write_weights: jax.Array  # (1, slots): a one-hot of the slot that was written last


class Ring(mann.Memory):
    keys: mann.Linear
    written: mann.Linear
    slots: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    heads: int = eqx.field(static=True)
    strength: float = eqx.field(static=True)

    def __init__(self, query, config, *, key):
        key_key, written_key = jax.random.split(key)
        self.keys = mann.Linear(query, config.heads * config.width, key=key_key)
        self.written = mann.Linear(query, config.width, key=written_key)
        self.slots, self.width, self.heads = config.slots, config.width, config.heads
        self.strength = config.strength

    def initial_state(self):
        last = jax.nn.one_hot(self.slots - 1, self.slots)[None]
        return RingState(jnp.zeros((self.slots, self.width)), jnp.zeros((self.heads, self.slots)), last)

    def __call__(self, query, state):
        here = jnp.roll(state.write_weights, 1, axis=1)  # one slot further
        memory = state.memory * (1 - here.T) + here.T * jnp.tanh(self.written(query))[None]
        keys = jnp.tanh(self.keys(query)).reshape(self.heads, self.width)
        weights = content_weights(keys, memory, jnp.full(self.heads, self.strength))
        return read(weights, memory).reshape(-1), RingState(memory, weights, here)

    def trace(self, state):
        return mann.MemoryTrace(state.read_weights, state.write_weights, None, state.memory)


config = mann.Config(
    task=mann.Classification(classes=5),
    model=mann.ModelConfig(memory=RingConfig(slots=64, width=32)),
    data=mann.Glyphs(),
    updates=4000,
    evaluate_every=500,
    averaging=0.99,
)
