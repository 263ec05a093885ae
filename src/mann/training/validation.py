"""Run a model on unseen episodes, split over the devices of this process. No collectives.

What comes out depends on the model, the task and the keys alone, not on how many devices share the work.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Key

from mann import kernel
from mann.models import Model, State, tile_state
from mann.tasks import Task
from mann.training.distributed import AXIS

CHAINS = 16  # parallel sequences of episodes, when the memory persists from one to the next
FILLING = 10  # episodes that fill a chain's memory before it counts: in training it is empty only once
FILLING_STREAM = 1 << 20  # of random numbers, apart from those that the episodes draw from the same key

TallyFunction = Callable[[Model, Any, Key[Array, "episodes"]], Any]


def make_tally(
    task: Task, persistent: bool, static: Any, mesh: Mesh, *, reference: bool = False
) -> TallyFunction:
    """A function of (arrays of the model, source, keys) that tallies one episode for each key.

    `static` is the part of the model that is not arrays. With persistent memory, episodes follow one another
    without a wipe, in `CHAINS` memories full of others: episode i is the next of chain i mod `CHAINS`. With
    `reference` come, beside the tallies, those of an ideal predictor on the same episodes (`Task.reference`).

    It is compiled when first called, once for all models of the same parts and sizes.
    """
    return _make_tally(task, persistent, static, mesh, reference, kernel.available())


@lru_cache(maxsize=16)
def _make_tally(
    task: Task, persistent: bool, static: Any, mesh: Mesh, reference: bool, native: bool
) -> TallyFunction:
    """With the native kernel or without it, another program is compiled."""
    tally = _tally_chains if persistent else _tally_apart
    unit = CHAINS if persistent else mesh.size
    devices = next(n for n in range(mesh.size, 0, -1) if unit % n == 0)  # each has as many chains
    split_over = Mesh(mesh.devices.flat[:devices], (AXIS,))

    def count(outputs: Any, episodes: Any) -> Any:
        counted = task.tally(outputs, episodes)
        return (counted, task.reference(episodes)) if reference else counted

    def share(arrays: Model, source: Any, keys: Key[Array, "chains links"]) -> Any:
        return tally(eqx.combine(arrays, static), task, source, keys, count)

    whole, split = PartitionSpec(), PartitionSpec(AXIS)
    compiled = jax.jit(
        jax.shard_map(
            share, mesh=split_over, in_specs=(whole, whole, split), out_specs=split, check_vma=False
        )
    )

    def run(arrays: Model, source: Any, keys: Key[Array, "episodes"]) -> Any:
        episodes = len(keys)
        indices = np.arange(-(-episodes // unit) * unit) % episodes  # filled up with some that do not count
        chains = keys[indices].reshape(-1, unit).T
        parts = jax.tree.map(np.asarray, compiled(arrays, source, chains))  # leaves: (chains, links, …)
        return jax.tree.map(lambda leaf: leaf.swapaxes(0, 1).reshape(-1, *leaf.shape[2:])[:episodes], parts)

    return run


def _tally_apart(
    model: Model, task: Task, source: Any, keys: Key[Array, "chains links"], count: Callable[[Any, Any], Any]
) -> Any:
    """Every episode from a wiped memory."""
    episodes = task.draw_batch(keys.reshape(-1), source)
    outputs, _ = task.unroll(model, episodes)
    tallies = count(outputs, episodes)
    return jax.tree.map(lambda leaf: leaf.reshape(*keys.shape, *leaf.shape[1:]), tallies)


def _tally_chains(
    model: Model, task: Task, source: Any, keys: Key[Array, "chains links"], count: Callable[[Any, Any], Any]
) -> Any:
    """Every chain of episodes in one memory that is never wiped."""

    def next_link(state: State, keys: Key[Array, "chains"]) -> tuple[State, Any]:
        episodes = task.draw_batch(keys, source)
        outputs, state = task.unroll(model, episodes, jax.vmap(model.next_episode)(state))
        return state, count(outputs, episodes)

    apart = jax.vmap(lambda key: jax.random.fold_in(key, FILLING_STREAM))(keys[:, 0])
    filling = jax.vmap(lambda key: jax.random.split(key, FILLING), out_axes=1)(apart)
    full, _ = jax.lax.scan(next_link, tile_state(model.initial_state(), len(keys)), filling)
    _, tallies = jax.lax.scan(next_link, full, keys.T)
    return jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), tallies)
