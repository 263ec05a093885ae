"""What needs a process of its own: one core alone, and the peak memory of an update."""

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mann.errors import MannError

if TYPE_CHECKING:
    from mann.benchmark import Setting

SECONDS = 1.5  # to measure one point of a growth curve
UPDATES = 5  # in one call: fewer would time the call itself, and single updates may take a second


def start(what: Literal["one_core", "growth", "command"], setting: "Setting", devices: int) -> dict[str, Any]:
    """Run `one_core`, `growth` or `command` in a fresh process and wait for the result."""
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
    print(json.dumps({"one_core": one_core, "growth": growth, "command": command}[what](setting)))


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

    mesh = make_mesh(setting.config.shares)
    drawings = parts.random_drawings(setting.classes, setting.drawings)
    trainer = Trainer(setting.config, drawings, None, mesh)
    work = parts.update_work(trainer, trainer.initial_state(), UPDATES)
    work.run()
    samples: list[float] = []
    while len(samples) < 3 or (sum(samples) < SECONDS and len(samples) < setting.rounds):
        samples.append(timing.seconds(work))
    milliseconds = timing.spread([value * 1e3 / UPDATES for value in samples])
    return {"ms": milliseconds._asdict(), "memory": peak_memory(work.run), "devices": mesh.size}


def command(setting: "Setting") -> dict[str, Any]:
    """`mann train` as people run it, with evaluations and checkpoints counted apart; on a few glyphs."""
    import tempfile

    from mann.benchmark import DEFAULT
    from mann.data import Glyphs
    from mann.training.display import Observer
    from mann.training.loop import train

    class Clock(Observer):
        """When the calls to the devices and the evaluations ended."""

        def __init__(self) -> None:
            self.events: list[tuple[str, float]] = []

        def progress(self, update: int, loss: float) -> None:
            self.events.append(("updates", time.perf_counter()))

        def evaluated(self, record: dict[str, Any]) -> None:
            self.events.append(("evaluation", time.perf_counter()))

    dispatch = setting.config.dispatch
    updates = max(4, setting.trained // dispatch) * dispatch
    config = dataclasses.replace(
        setting.config,
        data=Glyphs(classes=60, validation=20),
        model=dataclasses.replace(setting.config.model, precision=DEFAULT.model.precision),
        optimiser=dataclasses.replace(DEFAULT.optimiser, warmup=1),
        averaging=DEFAULT.averaging,
        updates=updates,
        evaluate_every=updates // dispatch // 2 * dispatch,
    )
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        train(config, Path(folder) / "run", observers=[clock])
    pairs = list(zip(clock.events, clock.events[1:], strict=False))
    plain = [b[1] - a[1] for a, b in pairs if (a[0], b[0]) == ("updates", "updates")]
    evaluations = [b[1] - a[1] for a, b in pairs if b[0] == "evaluation"]
    after = [b[1] - a[1] for a, b in pairs if a[0] == "evaluation"]  # a checkpoint, then updates
    each = sum(plain) / len(plain)
    return {
        "updates_per_second": dispatch / each,
        "ms_per_update": each / dispatch * 1e3,
        "ms_evaluation": min(evaluations) * 1e3,  # the first one compiles
        "ms_checkpoint": max(0.0, statistics.median(after) - each) * 1e3,
        "updates": len(plain) * dispatch,
    }


if __name__ == "__main__":
    main()
