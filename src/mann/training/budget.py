"""Whether a run fits into the memory of this machine, asked before anything is compiled."""

import os

import equinox as eqx
import jax

from mann.data.images import PictureFormat
from mann.errors import MannError
from mann.files import is_array
from mann.models import Model, ModelConfig, build_model
from mann.recurrences import choose_recurrence
from mann.tasks import Task

FLOAT = 4  # bytes


def bytes_needed(
    task: Task, config: ModelConfig, pictures: PictureFormat, episodes: int, training: bool
) -> int:
    """What a call on that many episodes holds at once, at the least.

    There are the weights; every step has its input, the gates that are projected from it, and o_t = (h_t, r_t);
    every episode a state, and in training what the recurrence keeps of each step for the backward pass.
    """
    model: Model = eqx.filter_eval_shape(lambda: build_model(config, task, pictures, key=jax.random.key(0)))
    weights = sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(model, is_array)))
    output = model.controller.hidden_size + model.memory.read_size
    floats = task.steps * (model.input_size + model.controller.gate_size + output) + task.extra_floats
    floats += sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(model.initial_state)))
    if training:
        floats += choose_recurrence(model.cell).floats(model.cell, task.steps)
    return FLOAT * (weights + floats * episodes)


def check_memory(
    task: Task, config: ModelConfig, pictures: PictureFormat, episodes: int, training: bool = False
) -> None:
    """Refuse what cannot fit."""
    try:
        needed = bytes_needed(task, config, pictures, episodes, training)
    except (OverflowError, TypeError, ValueError) as error:  # a size that no array can have
        raise MannError(f"A model of this size cannot be built ({error}): make it smaller.") from None
    available = bytes_available()
    if needed > available:
        raise MannError(
            f"{episodes} episodes of {task.steps} steps need at least {needed / 1e9:.0f} GB of memory, and here "
            f"are {available / 1e9:.0f} GB: use shorter episodes, fewer at a time, or a smaller model."
        )


def bytes_available() -> int:
    """The memory of the accelerators of this process, or that of the machine."""
    limits = [(device.memory_stats() or {}).get("bytes_limit", 0) for device in jax.local_devices()]
    return sum(limits) or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
