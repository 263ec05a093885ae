"""Time and memory of a step against the slots of the memory, in training and online, in a fresh process."""

import contextlib
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import Progress

from mann.data.images import PictureFormat
from mann.errors import MannError
from mann.experiments.entries import Entry
from mann.experiments.records import Record
from mann.memory import LRUAConfig, MemoryConfig
from mann.models import Model, ModelConfig, State, build_model
from mann.runtime import peak_memory, prepare_jax
from mann.tasks import Classification
from mann.training.budget import bytes_available, bytes_needed

TASK = Classification(classes=15, labels="strings")
CALLS = 3  # at the least, after one that does not count


@dataclasses.dataclass(frozen=True)
class Cost(Entry):
    """What a step of the paper's network costs, by the slots of its memory."""

    name: str
    label: str
    neighbours: int
    """Slots that a head reads from; 0 for dense access."""
    slots: tuple[int, ...]
    steps: int = 100
    """Of the episode that is trained on; batches of one."""
    seconds: float = 1.0
    """For the measurement of one time."""

    def description(self) -> dict[str, Any]:
        return {
            "neighbours": self.neighbours,
            "slots": list(self.slots),
            "steps": self.steps,
            "seconds": self.seconds,
        }

    def measure(self, folder: Path, episodes: int) -> Record | None:
        with Progress(transient=True) as bar:
            bar_id = bar.add_task(f"timing {self.name}", total=len(self.slots))
            costs = []
            for row in self._rows():
                costs.append(row)
                bar.advance(bar_id)
        return {"costs": costs}

    def _rows(self) -> Iterator[dict[str, Any]]:
        """One line of the other process after the other. A size that it does not survive ends the list."""
        process = subprocess.Popen(
            [sys.executable, "-m", "mann.experiments.cost"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # A single heap: `malloc_trim` empties no other completely.
            env=os.environ | {"MALLOC_ARENA_MAX": "1"},
        )
        assert process.stdin is not None and process.stdout is not None
        with process:
            with contextlib.suppress(BrokenPipeError):  # it has failed already
                process.stdin.write(json.dumps(self.description()))
                process.stdin.close()
            rows = 0
            for line in process.stdout:
                yield json.loads(line)
                rows += 1
        if not rows:
            raise MannError(f"The process that measures {self.name} failed with code {process.returncode}.")


def measure_cost(memory: MemoryConfig, slots: int, steps: int, seconds: float) -> dict[str, Any]:
    """Milliseconds of a step in training (forward and backward) and online, and bytes of memory in training.

    None stands for what would take more than half of this machine's memory.
    """
    config = ModelConfig(memory=memory.with_slots(slots))
    model = build_model(config, TASK, key=jax.random.key(0))
    task = dataclasses.replace(TASK, length=steps)
    row: dict[str, Any] = {"slots": slots, "training_ms": None, "training_bytes": None}
    if bytes_needed(task, config, PictureFormat(), 1, training=True) < bytes_available() / 2:
        train = training_step(model, steps)
        row["training_ms"] = milliseconds(train, seconds) / steps
        row["training_bytes"] = peak_memory(train)
    return row | {"online_ms": milliseconds(online_step(model), seconds)}


def training_step(model: Model, steps: int) -> Callable[[], object]:
    """One episode of random pictures, forward and backward."""
    inputs = jax.random.uniform(jax.random.key(0), (1, steps, model.input_size))
    labels = jnp.zeros((1, steps, model.label_size))
    arrays, static = eqx.partition(model, eqx.is_array)

    @jax.jit
    def gradient(arrays: Model, inputs: jax.Array) -> Model:
        def loss(arrays: Model) -> jax.Array:
            network: Model = eqx.combine(arrays, static)
            return jnp.sum(network.unroll_batch(inputs, labels).outputs ** 2)

        return jax.grad(loss)(arrays)

    return lambda: jax.block_until_ready(gradient(arrays, inputs))


def online_step(model: Model) -> Callable[[], object]:
    """One step after the other, as a learner does them: from a picture to the output, both in host memory."""
    arrays, static = eqx.partition(model, eqx.is_array)

    @jax.jit
    def step(arrays: Model, x: jax.Array, label: jax.Array, state: State) -> tuple[jax.Array, State]:
        network: Model = eqx.combine(arrays, static)
        return network.step(x, label, state)

    rng = np.random.default_rng(0)
    label = np.zeros(model.label_size, np.float32)
    state = [model.initial_state()]

    def run() -> None:
        x = rng.uniform(size=model.input_size).astype(np.float32)
        outputs, state[0] = step(arrays, x, label, state[0])
        np.asarray(outputs)

    return run


def milliseconds(run: Callable[[], object], seconds: float) -> float:
    """The median of some calls; the first one, which compiles, does not count."""
    run()
    samples: list[float] = []
    while len(samples) < CALLS or sum(samples) < seconds:
        began = time.perf_counter()
        run()
        samples.append(time.perf_counter() - began)
    return 1e3 * statistics.median(samples)


def main() -> None:
    prepare_jax(1)
    request = json.load(sys.stdin)
    memory: MemoryConfig = LRUAConfig()
    if request["neighbours"]:
        memory = memory.with_neighbours(request["neighbours"])
    for slots in request["slots"]:
        row = measure_cost(memory, slots, request["steps"], request["seconds"])
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
