"""Arrays and their description in one safetensors file, written atomically and verified by digest.

A checkpoint is valid if and only if its digest is: a file that was cut short or altered is detected, named and
skipped. There is no pickle anywhere.
"""

import errno
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from mann.data.cache import write_atomically
from mann.errors import MannError

T = TypeVar("T")
KEEP = 2  # newest checkpoints that are kept, besides the best one


class Damaged(MannError):
    """The file is truncated or altered."""


def _digest(arrays: dict[str, np.ndarray], description: str) -> str:
    hasher = hashlib.sha256(description.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        hasher.update(f"{name} {array.dtype} {array.shape}".encode())
        hasher.update(array.data)
    return hasher.hexdigest()


def save_arrays(path: Path, arrays: dict[str, np.ndarray], description: dict[str, Any]) -> None:
    """Write arrays with a JSON description; the previous file of that name stays intact on failure."""
    text = json.dumps(description, sort_keys=True)
    content = save(arrays, metadata={"description": text, "sha256": _digest(arrays, text)})
    try:
        write_atomically(path, content)
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
        raise MannError(
            f"Could not write {path}: {reason}. What was saved before is intact: make room or choose another "
            "folder, then resume."
        ) from None


def load_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read what `save_arrays` wrote; raises `Damaged` if the digest does not match."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MannError(f"Could not read {path}: {error.strerror}.") from None
    try:
        arrays = load(content)
        metadata = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
        text, expected = metadata["description"], metadata["sha256"]
    except (SafetensorError, ValueError, KeyError) as error:
        raise Damaged(f"{path} is damaged or not a file of mann: {error}.") from None
    if _digest(arrays, text) != expected:
        raise Damaged(f"{path} is damaged: its content does not match its digest.")
    return arrays, json.loads(text)


def is_array(leaf: Any) -> bool:
    """An array on a device or on the host, or the shape of one."""
    return isinstance(leaf, jax.Array | np.ndarray | jax.ShapeDtypeStruct)


def to_arrays(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a tree, named by their place in it (`model.controller.recurrent`)."""
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, is_array))
    return {_name(path): np.asarray(leaf) for path, leaf in leaves}


def from_arrays(like: T, arrays: dict[str, np.ndarray], source: str = "the file") -> T:
    """A tree of the same structure as `like`, with the arrays by name."""
    dynamic, static = eqx.partition(like, is_array)

    def pick(path: Any, leaf: Any) -> jax.Array:
        name = _name(path)
        if name not in arrays:
            raise MannError(f"{source} has no array {name}: it belongs to another model.")
        if arrays[name].shape != leaf.shape:
            raise MannError(f"{name} in {source} has shape {arrays[name].shape}, expected {leaf.shape}.")
        return jax.numpy.asarray(arrays[name], dtype=leaf.dtype)

    return eqx.combine(jax.tree_util.tree_map_with_path(pick, dynamic), static)


def _name(path: Any) -> str:
    parts = (getattr(p, "name", getattr(p, "key", getattr(p, "idx", None))) for p in path)
    return ".".join(str(part) for part in parts)


class Checkpoint(NamedTuple):
    path: Path
    arrays: dict[str, np.ndarray]
    description: dict[str, Any]


def checkpoint_path(folder: Path, update: int) -> Path:
    return folder / f"update-{update:08d}.safetensors"


def list_checkpoints(folder: Path) -> list[Path]:
    """Newest first."""
    return sorted(folder.glob("update-*.safetensors"), reverse=True)


def newest_checkpoint(folder: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest valid checkpoint; damaged ones are named through `warn` and passed over."""
    for path in list_checkpoints(folder):
        try:
            return Checkpoint(path, *load_arrays(path))
        except Damaged as error:
            warn(f"{error} Using the checkpoint before it.")
    return None


def prune_checkpoints(folder: Path) -> None:
    """Delete all but the newest two (the best one has a name of its own)."""
    for path in list_checkpoints(folder)[KEEP:]:
        path.unlink(missing_ok=True)
