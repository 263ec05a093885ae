"""The checkpoints of a run: how they are named, which is the newest valid one, and which are kept."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mann.files import Damaged, load_arrays

KEEP = 2  # newest checkpoints that are kept, besides the best one


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
