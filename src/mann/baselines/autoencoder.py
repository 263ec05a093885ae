"""The autoencoder behind the paper's "deep features": 200, 200 leaky ReLUs, a bottleneck of 32, and back."""

import dataclasses
import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from mann.data.render import Drawings
from mann.errors import MannError
from mann.files import from_arrays, load_arrays, save_arrays, to_arrays
from mann.layers import Linear
from mann.tasks import Classification


@dataclasses.dataclass(frozen=True)
class AutoencoderConfig:
    """Sizes, and how long to train."""

    hidden: int = 200
    bottleneck: int = 32
    images: int = 60_000_000
    """Augmented pictures to train on."""
    batch: int = 800
    learning_rate: float = 1e-3
    seed: int = 0
    save_every: int = 2000
    """Updates between checkpoints."""

    @property
    def updates(self) -> int:
        return max(1, self.images // self.batch)


class Autoencoder(eqx.Module):
    """Pictures to 32 numbers and back."""

    encoder: list[Linear]
    decoder: list[Linear]

    def __init__(self, config: AutoencoderConfig, pixels: int, *, key: PRNGKeyArray) -> None:
        half = [pixels, config.hidden, config.hidden]
        sizes = itertools.pairwise([*half, config.bottleneck, *half[::-1]])
        layers = [Linear(a, b, key=k) for (a, b), k in zip(sizes, jax.random.split(key, 6), strict=True)]
        self.encoder, self.decoder = layers[:3], layers[3:]

    def encode(self, pixels: Float[Array, "n pixels"]) -> Float[Array, "n bottleneck"]:
        return _through(self.encoder, pixels)

    def decode(self, features: Float[Array, "n bottleneck"]) -> Float[Array, "n pixels"]:
        """Logits of ink."""
        return _through(self.decoder, features)


def _through(layers: list[Linear], values: Float[Array, "n a"]) -> Float[Array, "n b"]:
    for layer in layers[:-1]:
        values = jax.nn.leaky_relu(layer(values))
    return layers[-1](values)


class _State(NamedTuple):
    model: Autoencoder
    optimiser: optax.OptState
    update: Int[Array, ""]


def train_autoencoder(
    config: AutoencoderConfig,
    drawings: Drawings,
    path: Path,
    progress: Callable[[int, int, float], None] = lambda done, total, loss: None,
) -> Autoencoder:
    """Train on augmented drawings, or go on from the file at `path`, where the newest state is kept.

    The loss is the cross-entropy of each pixel, read as the probability of ink; the learning rate falls along a
    cosine.
    """
    optimiser = optax.adam(optax.cosine_decay_schedule(config.learning_rate, config.updates))
    model = Autoencoder(config, drawings.format.size, key=jax.random.key(config.seed))
    state = _State(model, optimiser.init(model), jnp.zeros((), jnp.int32))
    expected = dataclasses.asdict(config)
    if path.exists():
        arrays, description = load_arrays(path)
        if description["autoencoder"] != expected:
            raise MannError(f"{path} holds an autoencoder of another configuration: choose another folder.")
        state = from_arrays(state, arrays, str(path))
    pictures = Classification(classes=1, length=1)

    @partial(jax.jit, donate_argnums=0)
    def several(state: _State, drawings: Drawings, count: Int[Array, ""]) -> tuple[_State, Array]:
        def update(_: Array, carry: tuple[_State, Array]) -> tuple[_State, Array]:
            state, _ = carry
            key = jax.random.fold_in(jax.random.key(config.seed), state.update)
            pixels = draw_inputs(pictures, jax.random.split(key, config.batch), drawings)
            loss, gradient = jax.value_and_grad(reconstruction_loss)(state.model, pixels)
            with jax.numpy_dtype_promotion("standard"):  # optax raises floats to integer powers
                changes, inner = optimiser.update(gradient, state.optimiser)
            return _State(optax.apply_updates(state.model, changes), inner, state.update + 1), loss

        return jax.lax.fori_loop(0, count, update, (state, jnp.zeros(())))

    while (done := int(state.update)) < config.updates:
        count = min(config.save_every - done % config.save_every, config.updates - done)
        state, loss = several(state, drawings, jnp.asarray(count))
        save_arrays(path, to_arrays(state), {"autoencoder": expected})
        progress(done + count, config.updates, float(loss))
    return state.model


def draw_inputs(task: Classification, keys: Key[Array, "n"], drawings: Drawings) -> Float[Array, "n pixels"]:
    """One augmented picture for each key, of any class."""
    return task.draw_batch(keys, drawings).inputs[:, 0]


def reconstruction_loss(model: Autoencoder, pixels: Float[Array, "n pixels"]) -> Float[Array, ""]:
    """Cross-entropy of the reconstructed pixels, in nats per pixel."""
    logits = model.decode(model.encode(pixels))
    return jnp.mean(optax.sigmoid_binary_cross_entropy(logits, pixels))
