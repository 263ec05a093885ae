"""A trained model compiled for one call at a time and for many, which learners share."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float32

from mann.cell import State
from mann.files import is_array
from mann.labels import LabelCode
from mann.models import Model
from mann.outputs import Letters
from mann.trained import Trained

# Numbers of pictures for which the network is compiled: others are made up of these, so that the first call with
# yet another number of pictures does not wait for the compiler.
LENGTHS = (256, 32, 4, 1)  # one after the other
BATCHES = (256, 32, 8)  # side by side; a smaller one is filled up


class _Compiled(NamedTuple):
    """What does not depend on the weights. The first argument of each is the model's arrays."""

    step: Callable[[Any, Any, Any, State], tuple[jax.Array, State]]
    steps: Callable[[Any, Any, Any, State], jax.Array]  # of many pictures, each from the same state
    unroll: Callable[[Any, Any, Any, State], State]  # many pictures with their labels, one after the other
    embed: Callable[[Any, Any], jax.Array]


class Network(NamedTuple):
    """A trained model with its compiled step."""

    trained: Trained
    start: State
    arrays: Any  # of the model
    compiled: _Compiled

    @property
    def names(self) -> Letters:
        """The distribution over labels, for a model that names things."""
        return self.trained.config.task.names

    @property
    def code(self) -> LabelCode:
        return self.names.code

    def step(
        self, pixels: Float32[np.ndarray, "pixels"], label: Float32[np.ndarray, "label"], state: State
    ) -> tuple[jax.Array, State]:
        """One step: the outputs, and the state after it."""
        return self.compiled.step(self.arrays, pixels, label, state)

    def steps(
        self, pixels: Float32[np.ndarray, "n pixels"], label: Float32[np.ndarray, "label"], state: State
    ) -> Float32[np.ndarray, "n outputs"]:
        """The outputs for many pictures, each from the same state."""
        return _in_batches(lambda part: self.compiled.steps(self.arrays, part, label, state), pixels)

    def embed(self, pixels: Float32[np.ndarray, "n pixels"]) -> Float32[np.ndarray, "n embedding"]:
        """Where the network places pictures."""
        return _in_batches(lambda part: self.compiled.embed(self.arrays, part), pixels)

    def unroll(
        self, pixels: Float32[np.ndarray, "n pixels"], labels: Float32[np.ndarray, "n label"], state: State
    ) -> State:
        """The state after many pictures, one after the other, each with the label of the one before it."""
        for part in _parts(len(pixels), LENGTHS):
            state = self.compiled.unroll(self.arrays, pixels[part], labels[part], state)
        return state


def compile_network(trained: Trained) -> Network:
    """Compiled when first called, once for all models of the same parts and sizes."""
    arrays, static = eqx.partition(trained.model, is_array)
    return Network(trained, trained.model.initial_state(), arrays, _compile(static))


@lru_cache(maxsize=16)
def _compile(static: Model) -> _Compiled:
    @jax.jit
    def step(arrays: Model, x: jax.Array, label: jax.Array, state: State) -> tuple[jax.Array, State]:
        return eqx.combine(arrays, static).step(x, label, state)

    @jax.jit
    def steps(arrays: Model, x: jax.Array, label: jax.Array, state: State) -> jax.Array:
        model = eqx.combine(arrays, static)
        projected = model.project(x, jnp.tile(label[None], (len(x), 1)))  # all pictures at once
        return model.readout(jax.vmap(model.cell, in_axes=(0, None))(projected, state)[0])

    @jax.jit
    def unroll(arrays: Model, x: jax.Array, labels: jax.Array, state: State) -> State:
        one = jax.tree.map(lambda leaf: leaf[None], state)  # a batch of one, which runs natively where it can
        after = eqx.combine(arrays, static).unroll_batch(x[None], labels[None], one).state
        return jax.tree.map(lambda leaf: leaf[0], after)

    @jax.jit
    def embed(arrays: Model, x: jax.Array) -> jax.Array:
        return eqx.combine(arrays, static).embed(x)

    return _Compiled(step, steps, unroll, embed)


def _in_batches(
    function: Callable[[Any], jax.Array], pixels: Float32[np.ndarray, "n pixels"]
) -> Float32[np.ndarray, "n result"]:
    filled = np.pad(pixels, ((0, -len(pixels) % BATCHES[-1]), (0, 0)))
    results = [function(filled[part]) for part in _parts(len(filled), BATCHES)]
    return np.concatenate(results)[: len(pixels)]


def _parts(count: int, lengths: tuple[int, ...]) -> Iterator[slice]:
    """Slices of these lengths that make up a number of pictures, the longest first."""
    start = 0
    for length in lengths:
        while count - start >= length:
            yield slice(start, start + length)
            start += length
