"""Run a model on unseen episodes, shared out over the devices of this process. No collectives."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Key

from mann.data.render import Drawings
from mann.episodes import Task
from mann.metrics import Tally, tally_episodes
from mann.models import Model, State, tile_state
from mann.training.distributed import AXIS

CHAINS = 8  # parallel sequences of episodes a device, when the memory persists from one to the next
FILLING = 10  # episodes that fill a chain's memory before it counts: in training it is empty only once
FILLING_STREAM = 1 << 20  # of random numbers, apart from those that the episodes draw from the same key

TallyFunction = Callable[[Model, Drawings | None, Key[Array, "episodes"]], Tally]


def make_tally(task: Task, persistent: bool, static: Any, mesh: Mesh) -> TallyFunction:
    """Compile a function of (arrays of the model, drawings, keys) that tallies one episode for each key.

    `static` is the part of the model that is not arrays. The number of keys must be a multiple of the number
    of devices. With persistent memory, episodes follow one another without a wipe, in a memory full of others.
    """

    def share(arrays: Model, drawings: Drawings | None, keys: Key[Array, "episodes"]) -> Tally:
        model: Model = eqx.combine(arrays, static)
        if persistent:
            return _tally_chains(model, task, drawings, keys)
        return tally_episodes(model, task, drawings, keys)[0]

    whole, split = PartitionSpec(), PartitionSpec(AXIS)
    return jax.jit(
        jax.shard_map(share, mesh=mesh, in_specs=(whole, whole, split), out_specs=split, check_vma=False)
    )


def _tally_chains(model: Model, task: Task, drawings: Drawings | None, keys: Key[Array, "episodes"]) -> Tally:
    chains = next(n for n in range(min(CHAINS, len(keys)), 0, -1) if len(keys) % n == 0)

    def next_link(state: State, keys: Key[Array, "episodes"]) -> tuple[State, Tally]:
        tally, state = tally_episodes(model, task, drawings, keys, jax.vmap(model.next_episode)(state))
        return state, tally

    links = keys.reshape(-1, chains)
    apart = jax.vmap(lambda key: jax.random.fold_in(key, FILLING_STREAM))(links[0])
    filling = jax.vmap(lambda key: jax.random.split(key, FILLING), out_axes=1)(apart)
    full, _ = jax.lax.scan(next_link, tile_state(model.initial_state(), chains), filling)
    _, tallies = jax.lax.scan(next_link, full, links)
    return jax.tree.map(lambda leaf: leaf.reshape(len(keys), *leaf.shape[2:]), tallies)
