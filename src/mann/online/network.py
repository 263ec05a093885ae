"""A trained model compiled for one call at a time and for many, which learners share."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float32, UInt32

from mann.cell import State
from mann.errors import MannError
from mann.files import is_array
from mann.labels import LabelCode
from mann.models import Model
from mann.native.host import HostStep, on_host
from mann.outputs import Letters
from mann.trained import Novelty, Trained, with_slots

# Numbers of pictures for which the network is compiled: others are made up of these, so that the first call with
# yet another number of pictures does not wait for the compiler.
LENGTHS = (256, 32, 4, 1)  # one after the other
BATCHES = (256, 32, 8)  # side by side; a smaller one is filled up
SLOTS = (16, 64, 256)  # of a memory of which no more are needed


Leaves = tuple[jax.Array, ...]


class Glances(NamedTuple):
    """One step for each of many learners, whose state is not kept: what is worth a look afterwards."""

    outputs: Any  # n outputs, with, last, how familiar each picture is
    read_weights: Any  # n heads slots
    write_weights: Any  # n write_heads slots
    usage: Any  # n slots, or None
    held: Any  # n slots: the largest number in each, by magnitude


class _Compiled(NamedTuple):
    """What does not depend on the weights. The first argument of each is the model's arrays."""

    # Outputs come with one number more: how familiar a picture is (`Memory.familiarity`), −1 if nobody can say.
    step: Callable[[Any, Any, Any, State], tuple[jax.Array, State]]
    steps: Callable[[Any, Any, Any, State], jax.Array]  # of many pictures, each from the same state
    unroll: Callable[[Any, Any, Any, State], State]  # many pictures with their labels, one after the other
    embed: Callable[[Any, Any], jax.Array]
    glance: Callable[[Any, Any, Any, Any], "Glances"]  # of many pictures, each from a packed state of its own


@dataclass(frozen=True, eq=False)
class Network:
    """A trained model with its compiled step."""

    trained: Trained
    start: State
    arrays: Leaves  # of the model
    compiled: _Compiled
    host: HostStep | None  # takes the place of the compiled step, where there is one
    smaller: dict[int, "Network"]  # the same with fewer slots

    # Every prediction asks for these: they are made once.

    @cached_property
    def names(self) -> Letters:
        """The distribution over labels, for a model that names things."""
        return self.trained.config.task.names

    @cached_property
    def code(self) -> LabelCode:
        return self.names.code

    @cached_property
    def states_novelty(self) -> bool:
        """Whether the network says more than the letters of a label: that something is new."""
        return self.names.size > self.code.size

    @cached_property
    def novelty(self) -> Novelty:
        """How it is told that something is new."""
        return self.trained.novelty

    @cached_property
    def slots(self) -> int:
        return self.trained.model.memory.slots

    def fit(self, needed: int) -> "Network":
        """The same network with a memory of few slots, where no more are needed: there is less to look through."""
        for slots in SLOTS:
            if needed <= slots < self.slots:
                if slots not in self.smaller:
                    try:
                        self.smaller[slots] = compile_network(with_slots(self.trained, slots))
                    except MannError:  # it cannot be that small
                        continue
                return self.smaller[slots]
        return self

    def crop(self, state: State, slots: int) -> State:
        """A state for the same network with so many slots."""
        if slots == self.slots:
            return state
        return state._replace(memory=self.trained.model.memory.crop(state.memory, slots))

    def step(
        self, pixels: Float32[np.ndarray, "pixels"], label: Float32[np.ndarray, "label"], state: State
    ) -> tuple[jax.Array | np.ndarray, State]:
        """One step: the outputs with, last, how familiar the picture is; and the state after it."""
        if self.host is not None:
            return self.host(pixels, label, state)
        return self.compiled.step(self.arrays, pixels, label, state)

    def steps(
        self, pixels: Float32[np.ndarray, "n pixels"], label: Float32[np.ndarray, "label"], state: State
    ) -> Float32[np.ndarray, "n outputs"]:
        """The outputs for many pictures, each from the same state, with, last, how familiar each is."""
        small = self.fit(self.trained.model.memory.needed(state.memory))
        state = self.crop(state, small.slots)
        return _in_batches(lambda part: small.compiled.steps(small.arrays, part, label, state), pixels)

    def embed(self, pixels: Float32[np.ndarray, "n pixels"]) -> Float32[np.ndarray, "n embedding"]:
        """Where the network places pictures."""
        return _in_batches(lambda part: self.compiled.embed(self.arrays, part), pixels)

    def unroll(
        self, pixels: Float32[np.ndarray, "n pixels"], labels: Float32[np.ndarray, "n label"], state: State
    ) -> State:
        """The state after many pictures, one after the other, each with the label of the one before it."""
        if self.host is not None:  # mostly faster than unrolled, and no wait for the compiler
            for x, label in zip(pixels, labels, strict=True):
                _, state = self.host(x, label, state)
            return state
        for part in _parts(len(pixels), LENGTHS):
            state = self.compiled.unroll(self.arrays, pixels[part], labels[part], state)
        return state

    def place(self, state: State) -> State:
        """A state from elsewhere, where `step` finds it quickest."""
        return state if self.host is None else on_host(state)


def compile_network(trained: Trained) -> Network:
    """Compiled when first called, once for all models of the same parts and sizes."""
    arrays, static = eqx.partition(trained.model, is_array)
    leaves, structure = jax.tree.flatten(
        arrays
    )  # taking a module apart in every call takes as long as a step
    host, start = trained.model.host_step(), trained.model.initial_state()
    return Network(
        trained,
        start if host is None else on_host(start),
        tuple(leaves),
        _compile(static, structure),
        host,
        {},
    )


@lru_cache(maxsize=16)
def _compile(static: Model, structure: jax.tree_util.PyTreeDef) -> _Compiled:
    def whole(arrays: Leaves) -> Model:
        return eqx.combine(jax.tree.unflatten(structure, arrays), static)

    @jax.jit
    def step(arrays: Leaves, x: jax.Array, label: jax.Array, state: State) -> tuple[jax.Array, State]:
        model = whole(arrays)
        outputs, after = model.step(x, label, state)
        return _with_familiarity(model, outputs, after), after

    @jax.jit
    def steps(arrays: Leaves, x: jax.Array, label: jax.Array, state: State) -> jax.Array:
        model = whole(arrays)
        projected = model.project(x, jnp.tile(label[None], (len(x), 1)))  # all pictures at once
        hidden, after = jax.vmap(model.cell, in_axes=(0, None))(projected, state)
        return jax.vmap(partial(_with_familiarity, model))(model.readout(hidden), after)

    @jax.jit
    def unroll(arrays: Leaves, x: jax.Array, labels: jax.Array, state: State) -> State:
        one = jax.tree.map(lambda leaf: leaf[None], state)  # a batch of one, which runs natively where it can
        after = whole(arrays).unroll_batch(x[None], labels[None], one).state
        return jax.tree.map(lambda leaf: leaf[0], after)

    @jax.jit
    def embed(arrays: Leaves, x: jax.Array) -> jax.Array:
        return whole(arrays).embed(x)

    @jax.jit
    def glance(arrays: Leaves, x: jax.Array, labels: jax.Array, packed: jax.Array) -> Glances:
        model = whole(arrays)
        states = _unpack_states(packed, model.initial_state())
        hidden, after = jax.vmap(model.cell)(model.project(x, labels), states)
        outputs = jax.vmap(partial(_with_familiarity, model))(model.readout(hidden), after)
        if not model.memory.slots:
            nothing = jnp.zeros((len(x), 0))
            return Glances(outputs, nothing[:, None], nothing[:, None], None, nothing)
        trace = jax.vmap(model.memory.trace)(after.memory)
        held = jnp.abs(trace.memory).max(axis=-1)
        return Glances(outputs, trace.read_weights, trace.write_weights, trace.usage, held)

    return _Compiled(step, steps, unroll, embed, glance)


def pack_state(state: State) -> UInt32[np.ndarray, "words"]:
    """All of a state in one array on the host: many of them are put together in one call, not in one per part."""
    return np.concatenate([np.asarray(leaf).view(np.uint32).ravel() for leaf in jax.tree.leaves(state)])


def _unpack_states(packed: jax.Array, like: State) -> State:
    """What `pack_state` made of states like this one, with an axis of states before the others."""
    leaves, structure = jax.tree.flatten(like)
    parts = jnp.split(packed, np.cumsum([leaf.size for leaf in leaves])[:-1], axis=1)
    return jax.tree.unflatten(
        structure,
        [
            jax.lax.bitcast_convert_type(part, leaf.dtype).reshape(len(packed), *leaf.shape)
            for part, leaf in zip(parts, leaves, strict=True)
        ],
    )


def _with_familiarity(model: Model, outputs: jax.Array, state: State) -> jax.Array:
    familiarity = model.memory.familiarity(state.memory) if model.memory.slots else None
    return jnp.append(outputs, -1.0 if familiarity is None else familiarity)


def _in_batches(
    function: Callable[[Any], jax.Array], pixels: Float32[np.ndarray, "n pixels"]
) -> Float32[np.ndarray, "n result"]:
    # Of no pictures at all the result has a shape as well.
    missing = -len(pixels) % BATCHES[-1] if len(pixels) else BATCHES[-1]
    filled = np.pad(pixels, ((0, missing), (0, 0)))
    results = [function(filled[part]) for part in _parts(len(filled), BATCHES)]
    return np.concatenate(results)[: len(pixels)]


def _parts(count: int, lengths: tuple[int, ...]) -> Iterator[slice]:
    """Slices of these lengths that make up a number of pictures, the longest first."""
    start = 0
    for length in lengths:
        while count - start >= length:
            yield slice(start, start + length)
            start += length
