"""The mathematics of reading and writing, as pure functions of one episode's arrays (eqs 2–8).

Sizes: R heads, M slots, W slot width. A read weight is a distribution over slots; one row per head.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mann.layers import EPSILON, normalise


def cosine_similarity(
    keys: Float[Array, "heads width"], memory: Float[Array, "slots width"]
) -> Float[Array, "heads slots"]:
    """K(k, M(i)) for every head and slot (eq 2)."""
    slot_norms = jax.lax.rsqrt(jnp.sum(memory**2, axis=-1) + EPSILON)
    return (normalise(keys) @ memory.T) * slot_norms[None]


def content_weights(
    keys: Float[Array, "heads width"],
    memory: Float[Array, "slots width"],
    strength: Float[Array, "heads"],
) -> Float[Array, "heads slots"]:
    """w^r: softmax over slots of the similarity times the key strength β (eq 3, where β = 1)."""
    return jax.nn.softmax(strength[:, None] * cosine_similarity(keys, memory), axis=-1)


def read(
    weights: Float[Array, "heads slots"], memory: Float[Array, "slots width"]
) -> Float[Array, "heads width"]:
    """r: the weighted sum of slots, one for each head (eq 4)."""
    return weights @ memory


def update_usage(
    usage: Float[Array, "slots"],
    read_weights: Float[Array, "heads slots"],
    write_weights: Float[Array, "write_heads slots"],
    decay: float,
) -> Float[Array, "slots"]:
    """w^u: decayed usage plus what was read and written now (eq 5). Usage only ranks slots: no gradient."""
    used = decay * usage + jnp.sum(read_weights, axis=0) + jnp.sum(write_weights, axis=0)
    return jax.lax.stop_gradient(used)


def least_used(usage: Float[Array, "slots"], count: int) -> Float[Array, "count slots"]:
    """w^lu: one-hot of the least used slot, of the second least used, … (eq 6).

    Ties are broken by slot index, so that exactly `count` slots are marked; the paper's ≤, read literally,
    would mark every tied slot.
    """
    slots = jnp.argmin(usage)[None] if count == 1 else jax.lax.top_k(-usage, count)[1]
    return jax.nn.one_hot(slots, usage.shape[0], dtype=usage.dtype)


def write_weights(
    gate: Float[Array, "heads"],
    read_weights: Float[Array, "heads slots"],
    least_used_weights: Float[Array, "targets slots"],
) -> Float[Array, "heads slots"]:
    """w^w = σ(α) w^r_{t−1} + (1 − σ(α)) w^lu_{t−1} (eq 7); `gate` is σ(α), and one target may be shared."""
    return gate[:, None] * read_weights + (1 - gate[:, None]) * least_used_weights


def erase(memory: Float[Array, "slots width"], erased: Float[Array, "slots"]) -> Float[Array, "slots width"]:
    """Zero the slots marked 1 in `erased`."""
    return memory * (1 - erased[:, None])


def write(
    memory: Float[Array, "slots width"],
    weights: Float[Array, "heads slots"],
    vectors: Float[Array, "heads width"],
) -> Float[Array, "slots width"]:
    """M(i) ← M(i) + w^w(i) k, summed over the heads (eq 8)."""
    return memory + weights.T @ vectors


def interpolate(
    gate: Float[Array, "heads"],
    content: Float[Array, "heads slots"],
    previous: Float[Array, "heads slots"],
) -> Float[Array, "heads slots"]:
    """NTM: the content weights where the gate is 1, the previous weights where it is 0."""
    return gate[:, None] * content + (1 - gate[:, None]) * previous


def shift(
    weights: Float[Array, "heads slots"], distribution: Float[Array, "heads 3"]
) -> Float[Array, "heads slots"]:
    """NTM: circular convolution with a distribution over moves by −1, 0 and +1 slots."""
    moved = jnp.stack([jnp.roll(weights, move, axis=-1) for move in (-1, 0, 1)], axis=1)
    return jnp.einsum("hms,hm->hs", moved, distribution)


def sharpen(
    weights: Float[Array, "heads slots"], exponent: Float[Array, "heads"]
) -> Float[Array, "heads slots"]:
    """NTM: raise to a power ≥ 1 and normalise.

    The small constant keeps the derivative of 0^γ finite; dividing by the largest weight first keeps the sum
    away from zero.
    """
    peak = jax.lax.stop_gradient(jnp.max(weights, axis=-1, keepdims=True))
    powered = (weights / peak + EPSILON) ** exponent[:, None]
    return powered / jnp.sum(powered, axis=-1, keepdims=True)


def erase_and_add(
    memory: Float[Array, "slots width"],
    weights: Float[Array, "slots"],
    erased: Float[Array, "width"],
    added: Float[Array, "width"],
) -> Float[Array, "slots width"]:
    """NTM: M(i) ← M(i) (1 − w(i) e) + w(i) a."""
    return memory * (1 - weights[:, None] * erased[None]) + weights[:, None] * added[None]
