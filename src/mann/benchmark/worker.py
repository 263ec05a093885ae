"""What needs a process of its own: one core alone, and the peak memory of an update."""

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Literal

from mann.errors import MannError

if TYPE_CHECKING:
    from mann.benchmark import Setting

SECONDS = 1.5  # to measure one point of a growth curve
UPDATES = 5  # in one call: fewer would time the call itself, and single updates may take a second


def start(what: Literal["one_core", "growth"], setting: "Setting", devices: int) -> dict[str, Any]:
    """Run `one_core` or `growth` in a fresh process and wait for the result."""
    from mann.training.config import to_dict

    request = dataclasses.asdict(setting) | {"config": to_dict(setting.config)}
    done = subprocess.run(
        [sys.executable, "-m", "mann.benchmark.worker", what, str(devices)],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
        env=os.environ
        | {"MALLOC_ARENA_MAX": "1"},  # a single heap: `malloc_trim` empties no other completely
    )
    if done.returncode:
        problem = done.stderr.strip().splitlines()[-1:] or ["it was killed, perhaps for lack of memory"]
        raise MannError(f"The process that measures {what} failed with code {done.returncode}: {problem[0]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    what, devices = sys.argv[1], int(sys.argv[2])
    if what == "one_core" and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # before JAX starts its threads
    from mann.benchmark import Setting
    from mann.runtime import prepare_jax
    from mann.training.config import from_dict

    prepare_jax(1 if what == "one_core" else devices)
    request = json.load(sys.stdin)
    setting = Setting(**request | {"config": from_dict(request["config"])})
    print(json.dumps({"one_core": one_core, "growth": growth}[what](setting)))


def one_core(setting: "Setting") -> dict[str, Any]:
    """Drawing a batch, and the latency of a single step."""
    from mann.benchmark import parts
    from mann.benchmark.timing import interleave
    from mann.training.distributed import make_mesh

    config = setting.config
    drawings = parts.random_drawings(setting.classes, setting.drawings)
    work = parts.draw_work(config, drawings, make_mesh(1), config.dispatch)
    work.run()
    draw = interleave({"draw": work}, setting.rounds, lambda *_: None)["draw"]
    milliseconds = sorted(online_latency(setting))
    return {
        "draw": draw._asdict(),
        "online_p50": statistics.median(milliseconds),
        "online_p99": milliseconds[int(0.99 * (len(milliseconds) - 1))],
    }


def online_latency(setting: "Setting") -> list[float]:
    """One sample at a time: `Model.step` from a picture in host memory to the output in host memory."""
    import equinox as eqx
    import jax
    import numpy as np

    from mann.models import Model, State, build_model

    config = setting.config
    arrays, static = eqx.partition(
        build_model(config.model, config.task, key=jax.random.key(0)), eqx.is_array
    )

    @jax.jit
    def step(arrays: Model, x: jax.Array, label: jax.Array, state: State) -> tuple[jax.Array, State]:
        return eqx.combine(arrays, static).step(x, label, state)

    rng = np.random.default_rng(0)
    model = eqx.combine(arrays, static)
    x = rng.uniform(size=(model.input_size,)).astype(np.float32)
    label = np.eye(config.task.label_size, dtype=np.float32)[0]
    state = model.initial_state()
    milliseconds = []
    warm_up = 50
    for _ in range(warm_up + setting.calls):
        began = time.perf_counter()
        outputs, state = step(arrays, x, label, state)
        np.asarray(outputs)
        milliseconds.append((time.perf_counter() - began) * 1e3)
    return milliseconds[warm_up:]


def growth(setting: "Setting") -> dict[str, Any]:
    """Time and peak memory of an update."""
    from mann.benchmark import parts, timing
    from mann.runtime import peak_memory
    from mann.training.distributed import make_mesh
    from mann.training.trainer import Trainer

    mesh = make_mesh(setting.config.batch)
    drawings = parts.random_drawings(setting.classes, setting.drawings)
    trainer = Trainer(setting.config, drawings, None, mesh)
    work = parts.update_work(trainer, trainer.initial_state(), UPDATES)
    work.run()
    samples: list[float] = []
    while len(samples) < 3 or (sum(samples) < SECONDS and len(samples) < setting.rounds):
        samples.append(timing.seconds(work))
    milliseconds = timing.spread([value * 1e3 / UPDATES for value in samples])
    return {"ms": milliseconds._asdict(), "memory": peak_memory(work.run), "devices": mesh.size}


if __name__ == "__main__":
    main()
