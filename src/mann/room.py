"""Whether episodes fit into the memory of this machine, asked before anything is compiled."""

import os

import jax

from mann.episodes import Regression, Task
from mann.errors import MannError
from mann.models import ModelConfig

FLOAT = 4  # bytes


def bytes_needed(task: Task, model: ModelConfig, episodes: int) -> int:
    """What a call on that many episodes holds at once, at the least.

    Every step has its input, the gates that are projected from it, and o_t = (h_t, r_t); a function needs a
    covariance matrix and its Cholesky factor.
    """
    gates = (4 if model.controller == "lstm" else 1) * model.hidden
    reads = model.heads * model.width if model.memory != "none" else 0
    floats = task.steps * (task.input_size + gates + model.hidden + reads)
    if isinstance(task, Regression):
        floats += 2 * task.steps**2
    return FLOAT * floats * episodes


def check_room(task: Task, model: ModelConfig, episodes: int) -> None:
    """Refuse what cannot fit."""
    needed, available = bytes_needed(task, model, episodes), bytes_available()
    if needed > available:
        raise MannError(
            f"{episodes} episodes of {task.steps} steps need at least {needed / 1e9:.0f} GB of memory, and here "
            f"are {available / 1e9:.0f} GB: use shorter episodes, or fewer at a time."
        )


def bytes_available() -> int:
    """The memory of the accelerators of this process, or that of the machine."""
    limits = [(device.memory_stats() or {}).get("bytes_limit", 0) for device in jax.local_devices()]
    return sum(limits) or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
