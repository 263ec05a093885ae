"""Devices and machines: which ones share the work, and how arrays are spread over them.

Data parallelism: every device draws its share of the batch and computes its gradient; the sum over devices is
one all-reduce of one flat vector per update. CPU cores count as devices.

A trap: XLA's in-process collectives on CPU can deadlock when several programs are in flight, because each one
waits for threads that the others hold. So there is one program at a time, with several updates in it: see
`Trainer.advance`, which waits for the losses of one dispatch before the next.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mann.errors import MannError

AXIS = "batch"


def has_partners() -> bool:
    """Whether other processes share the work."""
    return jax.process_count() > 1


def is_main() -> bool:
    """Whether this process writes the files."""
    return jax.process_index() == 0


def make_mesh(shares: int) -> Mesh:
    """All devices of all processes; in a single process, as many as the shares of a batch can be spread over."""
    devices = jax.devices()
    if jax.process_count() == 1:
        devices = devices[: max(n for n in range(1, len(devices) + 1) if shares % n == 0)]
    elif shares % len(devices):
        raise MannError(
            f"A batch of {shares} shares cannot be split evenly over {len(devices)} devices: make it a multiple."
        )
    return Mesh(np.array(devices), (AXIS,))


def local_mesh(mesh: Mesh) -> Mesh:
    """The devices of a mesh that belong to this process."""
    return Mesh(np.array([d for d in mesh.devices.flat if d.process_index == jax.process_index()]), (AXIS,))


def replicate(tree: Any, mesh: Mesh) -> Any:
    """The same arrays on every device."""
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))


def split_batch(tree: Any, mesh: Mesh) -> Any:
    """Spread the first axis over the devices."""
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec(AXIS)))


def to_host(tree: Any) -> Any:
    """Whole arrays on the host of every process, wherever their parts are."""

    def fetch(leaf: jax.Array) -> np.ndarray:
        if leaf.is_fully_addressable:
            return np.asarray(leaf)
        if leaf.is_fully_replicated:
            return np.asarray(leaf.addressable_data(0))
        return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))

    return jax.tree.map(fetch, tree)


def is_whole_here(tree: Any) -> bool:
    """Whether `to_host` needs no other process."""
    return all(leaf.is_fully_addressable or leaf.is_fully_replicated for leaf in jax.tree.leaves(tree))


@contextmanager
def together() -> Iterator[None]:
    """What only the main process does: if it fails there, all processes stop instead of waiting for it."""
    problem = None
    try:
        yield
    except MannError as error:
        problem = error
    failed = anywhere(problem is not None)
    if problem is not None:
        raise problem
    if failed:
        raise MannError("Another process of this run stopped: see its message.")


def anywhere(flag: bool) -> bool:
    """Whether the flag is set in any process, so that all of them stop at the same update."""
    if jax.process_count() == 1:
        return flag
    return bool(np.any(multihost_utils.process_allgather(np.array(flag))))
